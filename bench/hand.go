package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// by hand is what a careful engineer writes into each handler: the same
// durability, the payload hashed, the result encoded, nothing more.
type byHand struct{ pool *pgxpool.Pool }

const handSchema = `
CREATE TABLE hand (
	user_id text NOT NULL, scope text NOT NULL, idempotency_key text NOT NULL,
	request_hash text NOT NULL, status text NOT NULL, response_status smallint, response_body bytea,
	inserted_at timestamptz NOT NULL DEFAULT now(), completed_at timestamptz,
	PRIMARY KEY (user_id, scope, idempotency_key)
) WITH (fillfactor = 70);
CREATE TABLE business (id bigserial PRIMARY KEY, amount bigint NOT NULL, note text NOT NULL)`

func hash(p payment) (string, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

var errInProgress = errors.New("in progress")

// firstRun claims, "runs", and completes: two commits.
func (h byHand) firstRun(ctx context.Context, key string, p payment) error {
	sum, err := hash(p)
	if err != nil {
		return err
	}
	tag, err := h.pool.Exec(ctx, `INSERT INTO hand (user_id, scope, idempotency_key, request_hash, status)
		VALUES ($1, $2, $3, $4, 'processing') ON CONFLICT DO NOTHING`, user, scope, key, sum)
	if err != nil {
		return err
	}
	if tag.RowsAffected() == 0 {
		return errInProgress
	}
	body, err := json.Marshal(p)
	if err != nil {
		return err
	}
	_, err = h.pool.Exec(ctx, `UPDATE hand SET status = 'succeeded', response_status = 201, response_body = $4, completed_at = now()
		WHERE user_id = $1 AND scope = $2 AND idempotency_key = $3`, user, scope, key, body)
	return err
}

// replay reads the record and decodes the result.
func (h byHand) replay(ctx context.Context, key string, p payment) error {
	sum, err := hash(p)
	if err != nil {
		return err
	}
	var stored, status string
	var code int
	var body []byte
	err = h.pool.QueryRow(ctx, `SELECT request_hash, status, response_status, response_body FROM hand
		WHERE user_id = $1 AND scope = $2 AND idempotency_key = $3`, user, scope, key).Scan(&stored, &status, &code, &body)
	if err != nil {
		return err
	}
	if stored != sum || status != "succeeded" {
		return fmt.Errorf("record %s: %s", key, status)
	}
	var result payment
	return json.Unmarshal(body, &result)
}

// inProgress reads a record that is processing.
func (h byHand) inProgress(ctx context.Context, key string, p payment) error {
	sum, err := hash(p)
	if err != nil {
		return err
	}
	var stored, status string
	err = h.pool.QueryRow(ctx, `SELECT request_hash, status FROM hand
		WHERE user_id = $1 AND scope = $2 AND idempotency_key = $3`, user, scope, key).Scan(&stored, &status)
	if err != nil {
		return err
	}
	if stored != sum || status != "processing" {
		return fmt.Errorf("record %s: %s", key, status)
	}
	return nil
}

const insertBusiness = `INSERT INTO business (amount, note) VALUES ($1, $2)`

// transaction is idempotent by hand: begin, select the record, the business
// insert, insert the record, commit.
func (h byHand) transaction(ctx context.Context, key string, p payment) error {
	sum, err := hash(p)
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, h.pool, func(tx pgx.Tx) error {
		var stored string
		err := tx.QueryRow(ctx, `SELECT request_hash FROM hand
			WHERE user_id = $1 AND scope = $2 AND idempotency_key = $3`, user, scope, key).Scan(&stored)
		if !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("record %s is there: %w", key, err)
		}
		if _, err := tx.Exec(ctx, insertBusiness, p.Amount, p.Note); err != nil {
			return err
		}
		body, err := json.Marshal(p)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO hand (user_id, scope, idempotency_key, request_hash, status, response_status, response_body, completed_at)
			VALUES ($1, $2, $3, $4, 'succeeded', 201, $5, now())`, user, scope, key, sum, body)
		return err
	})
}

// bare is the business alone, without any idempotency.
func (h byHand) bare(ctx context.Context, _ string, p payment) error {
	if _, err := hash(p); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, h.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, insertBusiness, p.Amount, p.Note)
		if err != nil {
			return err
		}
		_, err = json.Marshal(p)
		return err
	})
}
