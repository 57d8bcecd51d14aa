package main

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
)

func openPostgres(ctx context.Context, dsn string) (idem.Store, Ledger, func(), error) {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return nil, nil, nil, err
	}
	store := pg.New(pool)
	ledger := &postgresLedger{pool, store}
	if err = pg.Migrate(ctx, pool); err == nil {
		err = ledger.migrate(ctx)
	}
	if err != nil {
		pool.Close()
		return nil, nil, nil, err
	}
	return store, ledger, pool.Close, nil
}

// postgresLedger keeps payments in the table "payments".
type postgresLedger struct {
	pool  *pgxpool.Pool
	store *pg.Store
}

func (l *postgresLedger) migrate(ctx context.Context) error {
	_, err := l.pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS payments (
		id uuid PRIMARY KEY, amount bigint NOT NULL, currency text NOT NULL, made_at timestamptz NOT NULL DEFAULT now())`)
	return err
}

// Add makes the payment in the transaction that records the answer: after a
// crash there are both, or neither.
func (l *postgresLedger) Add(ctx context.Context, p Payment) error {
	tx, err := pg.Begin(ctx, l.store)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `INSERT INTO payments (id, amount, currency) VALUES ($1, $2, $3)`, p.ID, p.Amount, p.Currency)
	return err
}

func (l *postgresLedger) List(ctx context.Context) ([]Payment, error) {
	rows, err := l.pool.Query(ctx, `SELECT id::text, amount, currency FROM payments ORDER BY made_at`)
	if err != nil {
		return nil, err
	}
	payments, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Payment])
	return append([]Payment{}, payments...), err
}
