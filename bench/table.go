package main

import (
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
)

// A table is one of the benchmark's own, so that tables of several sizes or
// settings stand side by side and are measured in turn.
type table struct {
	name  string
	pool  *pgxpool.Pool
	store *pg.Store
	do    call

	rows, expired int // as filled; the first rows are the expired ones
	fresh         atomic.Int64
}

// A call is idem.Do with a result of some size. It tells how long fn takes, and
// is told when fn began.
type call func(ctx context.Context, store idem.Store, key idem.Key, fn func()) (replayed bool, err error)

func callWith[T any](result T) call {
	return func(ctx context.Context, store idem.Store, key idem.Key, fn func()) (bool, error) {
		res, err := idem.Do(ctx, store, key, samplePayment, func(context.Context) (T, idem.Status, error) {
			fn()
			return result, 201, nil
		})
		return res.Replayed, err
	}
}

// newTable migrates a table and alters it: see exec.
func newTable(ctx context.Context, pool *pgxpool.Pool, name string, do call, alter ...string) (*table, error) {
	t := &table{name: name, pool: pool, do: do, store: pg.New(pool, pg.WithTable(name))}
	if err := pg.Migrate(ctx, pool, pg.WithTable(name)); err != nil {
		return nil, err
	}
	return t, t.exec(ctx, alter...)
}

func (t *table) exec(ctx context.Context, statements ...string) error {
	names := strings.NewReplacer("{{table}}", t.name, "{{purge_index}}", t.name+"_purge_after_idx", "{{key}}", t.name+"_pkey")
	for _, sql := range statements {
		sql = names.Replace(sql)
		if _, err := t.pool.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

var scopes = []string{"orders.create", "payments.create", "payments.refund", "POST /v1/subscriptions/{id}/cancel"}

// key is that of row i: what fill makes of the same number.
func key(i int) idem.Key {
	sum := md5.Sum([]byte(strconv.Itoa(i)))
	return idem.Key{
		User:  fmt.Sprintf("user_%08d", i*7919%1_000_003),
		Scope: scopes[i%len(scopes)],
		Key:   fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:]),
	}
}

const (
	fillBatch = 100_000
	fillConns = 4

	// Two weeks of records, from the oldest to the newest, the expired ones first.
	// The body is added to nothing so that each row is compressed anew.
	fill = `
INSERT INTO {{table}} (user_id, scope, idempotency_key,
	request_hash, hash_version, status, token, execution_id, attempt, reclaimed,
	lease_expires_at, expires_at, purge_after, inserted_at, updated_at, completed_at,
	response_status, response_codec, response_codec_version, response_body, error_code, error_message)
SELECT 'user_' || lpad((i * 7919 %% 1000003)::text, 8, '0'), (ARRAY['%s'])[i %% %d + 1], md5(i::text)::uuid::text,
	request_hash, hash_version, status, gen_random_uuid(), gen_random_uuid(), attempt, reclaimed,
	due - interval '14 days', due, due, due - interval '15 days', due - interval '14 days', due - interval '14 days',
	response_status, response_codec, response_codec_version, response_body || '', error_code, error_message
FROM {{table}}_sample, generate_series(%d::bigint, %d) AS i, LATERAL (
	SELECT now() + (i - %d) * (interval '14 days' / %d)
		+ CASE WHEN i < %[5]d THEN interval '-1 hour' ELSE interval '1 hour' END AS due
) AS d`
)

// fill makes n settled records, of which the first have expired, with indexes as
// loose as random keys make them in time.
func (t *table) fill(ctx context.Context, n, expired int) error {
	t.rows, t.expired = n, expired
	if _, err := t.do(ctx, t.store, key(0), func() {}); err != nil {
		return err
	}
	if err := t.exec(ctx,
		`CREATE TABLE {{table}}_sample AS SELECT * FROM {{table}}`,
		`TRUNCATE {{table}}`,
		`ALTER TABLE {{table}} DROP CONSTRAINT {{key}}`); err != nil {
		return err
	}
	if err := t.insert(ctx, 0, n); err != nil {
		return err
	}
	return t.exec(ctx,
		`ALTER TABLE {{table}} ADD CONSTRAINT {{key}} PRIMARY KEY (user_id, scope, idempotency_key) WITH (fillfactor = 70)`,
		`VACUUM ANALYZE {{table}}`)
}

// insert makes more rows of the same record, over a few connections.
func (t *table) insert(ctx context.Context, from, to int) error {
	batches := make(chan string)
	failed := make(chan error, fillConns)
	for range fillConns {
		go func() {
			var err error
			for sql := range batches {
				if err == nil {
					err = t.exec(ctx, sql)
				}
			}
			failed <- err
		}()
	}
	for ; from < to; from += fillBatch {
		batches <- fmt.Sprintf(fill, strings.Join(scopes, "','"), len(scopes), from, min(from+fillBatch, to)-1, t.expired, t.rows)
	}
	close(batches)
	var err error
	for range fillConns {
		err = errors.Join(err, <-failed)
	}
	return err
}

// firstRun runs with a key that is new. claimed, if there is one, is told how
// long the claim took, and takes the time of the closure.
func (t *table) firstRun(claimed func(time.Duration)) operation {
	return func(ctx context.Context, _ int) error {
		start, runs := time.Now(), 0
		_, err := t.do(ctx, t.store, key(t.rows+int(t.fresh.Add(1))), func() {
			runs++
			if claimed != nil {
				claimed(time.Since(start))
			}
		})
		if err == nil && runs != 1 {
			return fmt.Errorf("a new key ran %d times", runs)
		}
		return err
	}
}

// retry replays the record of one of the latest first runs, as most replays do.
func (t *table) retry(ctx context.Context, _ int) error {
	return t.settled(ctx, t.rows+1+rand.IntN(int(t.fresh.Load())))
}

// replay replays any of the records that live.
func (t *table) replay(ctx context.Context, _ int) error {
	return t.settled(ctx, t.expired+rand.IntN(t.rows-t.expired))
}

func (t *table) settled(ctx context.Context, n int) error {
	var runs int
	replayed, err := t.do(ctx, t.store, key(n), func() { runs++ })
	if err == nil && (runs > 0 || !replayed) {
		return fmt.Errorf("a settled key ran %d times", runs)
	}
	return err
}

// An anatomy is what the server says of a table.
type anatomy struct {
	Heap, Toast, Key, Purge int64 // bytes: body, its overflow, primary key, the other indexes
	Updates, HOT            int64
}

func (t *table) anatomy(ctx context.Context) (a anatomy, err error) {
	// What its sessions have done is told first.
	for _, conn := range t.pool.AcquireAllIdle(ctx) {
		for _, sql := range []string{`SELECT pg_stat_force_next_flush()`, `SELECT 1`} {
			if _, e := conn.Exec(ctx, sql); e != nil {
				err = e
			}
		}
		conn.Release()
	}
	if err != nil {
		return a, err
	}
	err = t.pool.QueryRow(ctx, `
		WITH t AS (
			SELECT $1::text::regclass::oid AS oid UNION SELECT relid FROM pg_partition_tree($1::text::regclass)
		)
		SELECT sum(pg_relation_size(oid))::bigint, sum(coalesce(pg_total_relation_size(nullif(reltoastrelid, 0)), 0))::bigint,
			sum(pg_relation_size(indexrelid))::bigint, sum(pg_indexes_size(oid) - pg_relation_size(indexrelid))::bigint,
			coalesce(sum(n_tup_upd), 0)::bigint, coalesce(sum(n_tup_hot_upd), 0)::bigint
		FROM t JOIN pg_class USING (oid) JOIN pg_index ON indrelid = oid AND indisprimary
			LEFT JOIN pg_stat_user_tables ON relid = oid`, t.name).
		Scan(&a.Heap, &a.Toast, &a.Key, &a.Purge, &a.Updates, &a.HOT)
	return a, err
}

// hotSince is the share of the updates since then that touched no index.
func (a anatomy) hotSince(then anatomy) float64 {
	return float64(a.HOT-then.HOT) / float64(max(a.Updates-then.Updates, 1))
}

// wal is what operations wrote to the write-ahead log.
type wal struct {
	operations, records, bytes, images int64 // images: of the bytes, whole pages after a checkpoint
}

func (w *wal) add(v wal) {
	w.operations += v.operations
	w.records += v.records
	w.bytes += v.bytes
	w.images += v.images
}

// measureWAL measures as measure does, and counts the log.
func measureWAL(ctx context.Context, pool *pgxpool.Pool, callers int, d time.Duration, op operation) (s sample, w wal, err error) {
	w, err = countWAL(ctx, pool, func() (int, error) {
		s, err = measure(ctx, callers, d, op)
		return s.operations, err
	})
	return s, w, err
}

// countWAL counts the log that f writes, which tells how many operations it was.
// It needs pg_walinspect, which comes with Postgres 15.
func countWAL(ctx context.Context, pool *pgxpool.Pool, f func() (int, error)) (w wal, err error) {
	const position = `SELECT pg_current_wal_flush_lsn()::text`
	var from, to string
	if err := pool.QueryRow(ctx, position).Scan(&from); err != nil {
		return w, err
	}
	n, err := f()
	if err != nil {
		return w, err
	}
	w.operations = int64(n)
	if err := pool.QueryRow(ctx, position).Scan(&to); err != nil || from == to {
		return w, err
	}
	return w, pool.QueryRow(ctx, `
		SELECT sum(count)::bigint, sum(combined_size)::bigint, sum(fpi_size)::bigint
		FROM pg_get_wal_stats($1::text::pg_lsn, $2::text::pg_lsn)`, from, to).Scan(&w.records, &w.bytes, &w.images)
}
