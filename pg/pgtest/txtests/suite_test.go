package txtests_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
	"github.com/idem-go/idem/storetest"
)

func TestTheSuiteInEveryExecMode(t *testing.T) {
	t.Parallel()
	for _, mode := range execModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			runSuite(t, open(t, execMode(mode)))
		})
	}
}

// The table is partitioned as docs/scale.md tells.
func TestTheSuiteOnPartitions(t *testing.T) {
	t.Parallel()
	pool := open(t)
	mustExec(t, pool, `CREATE TABLE parts (LIKE idempotency_requests INCLUDING ALL) PARTITION BY HASH (user_id, scope, idempotency_key)`)
	mustExec(t, pool, `CREATE TABLE part_0 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 0) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05)`)
	mustExec(t, pool, `CREATE TABLE part_1 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 1) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05)`)
	mustExec(t, pool, `DROP TABLE idempotency_requests`)
	mustExec(t, pool, `ALTER TABLE parts RENAME TO idempotency_requests`)
	runSuite(t, pool)
}

func runSuite(t *testing.T, pool *pgxpool.Pool) {
	storetest.RunTx(t, func(testing.TB) storetest.TxSubject[pgx.Tx] {
		return storetest.TxSubject[pgx.Tx]{
			Store: pg.New(pool),
			Write: func(ctx context.Context, tx pgx.Tx, name string) error { return pay(ctx, tx, idem.Key{Key: name}) },
			Count: func(ctx context.Context, name string) (n int, err error) {
				err = pool.QueryRow(ctx, `SELECT count(*) FROM payments WHERE key = $1`, name).Scan(&n)
				return n, err
			},
			Within: func(tx pgx.Tx) idem.TxStore[pgx.Tx] { return pg.New(tx) },
		}
	})
}
