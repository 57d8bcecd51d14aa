package storetests_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
)

// Under every default isolation level racing callers run one closure per key, and what the others get can be retried.
func TestRacesUnderEveryIsolationLevel(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"serializable", "repeatable read", "read committed"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			ctx := watchdog(t)
			config := migrated(t)
			isolation := func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["default_transaction_isolation"] = level }
			store := pg.New(connect(t, config, maxConns(8), isolation))
			const keys, callers = 40, 8
			var stale [keys]atomic.Int64
			var unavailable atomic.Int64
			for key := range keys {
				if key%2 == 0 { // half of the keys have a claim to be taken over
					crash(t, store, k("%d", key), "p", idem.WithLease(1))
				}
			}
			race(callers, func(int) {
				for key := range keys {
					_, err := idem.Do(ctx, store, k("%d", key), "p", func(context.Context) (int, idem.Status, error) {
						stale[key].Add(1)
						return key, 201, nil
					})
					switch {
					case errors.Is(err, idem.ErrUnavailable) && (sqlState(err) == "40001" || sqlState(err) == "40P01"):
						unavailable.Add(1)
					case err != nil && !errors.Is(err, idem.ErrInProgress):
						t.Errorf("key %d: %v", key, err)
					}
				}
			})
			for key := range keys {
				if n := stale[key].Load(); n > 1 {
					t.Errorf("key %d: the closure ran %d times", key, n)
				}
			}
			if n := unavailable.Load(); n > 0 && level == "read committed" {
				t.Errorf("%d calls gave up on serialization failures", n)
			} else if n > 0 {
				t.Logf("%d of %d calls gave up on serialization failures", n, keys*callers)
			}
		})
	}
}

// race runs n callers that start together.
func race(n int, f func(caller int)) {
	var ready, done sync.WaitGroup
	ready.Add(n)
	for caller := range n {
		done.Go(func() {
			ready.Done()
			ready.Wait()
			f(caller)
		})
	}
	done.Wait()
}

// In a caller's transaction a serialization failure is the caller's to handle: it is returned once, and nothing runs.
func TestSerializationFailureInATransaction(t *testing.T) {
	t.Parallel()
	pool := open(t)
	ctx := watchdog(t)
	var n runs
	err := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		mustExec(t, tx, "SELECT count(*) FROM "+table) // the snapshot is taken
		n.mustDo(t, pg.New(pool), k("x"), "p")
		tries := 0
		store := pg.New(&hookedTx{tx, &tries})
		_, err := n.do(ctx, store, k("x"), "p")
		wantErr(t, err, idem.ErrUnavailable)
		if sqlState(err) != "40001" || tries != 1 {
			t.Errorf("after %d tries: %v", tries, err)
		}
		mustExec(t, tx, "SELECT 1")
		return nil
	})
	wantErr(t, err, nil)
	n.want(t, 1)
}

// hookedTx counts the savepoints that the store takes.
type hookedTx struct {
	pgx.Tx
	begun *int
}

func (h *hookedTx) Begin(ctx context.Context) (pgx.Tx, error) {
	*h.begun++
	return h.Tx.Begin(ctx)
}
