package txtests_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
	"github.com/idem-go/idem/storetest"
)

func TestTheSuiteInEveryExecMode(t *testing.T) {
	t.Parallel()
	for _, mode := range execModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			pool := open(t, execMode(mode))
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
		})
	}
}
