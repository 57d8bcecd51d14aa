package txtests_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
)

// large reports whether the cases run at their literal sizes, as make cases does.
var large = os.Getenv("IDEM_TEST_LARGE") != ""

// Many callers of many keys, plain and in transactions mixed, whatever the default isolation of the role.
func TestLargeManyCallersOfManyKeys(t *testing.T) {
	t.Parallel()
	keys, callers := 100, 8
	if large {
		keys = 300
	}
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			// Not in parallel: each already uses all there is.
			ctx := watchdog(t)
			pool := open(t, maxConns(16), setting("default_transaction_isolation", string(level)))
			if got := query[string](t, pool, "SHOW transaction_isolation"); got != string(level) {
				t.Fatalf("the default isolation is %s", got)
			}
			var plain, inTx, conflicts atomic.Int64
			var all sync.WaitGroup
			work := make(chan idem.Key)
			for range 16 {
				all.Go(func() {
					for key := range work {
						answer(ctx, t, pool, key, &plain, &inTx, &conflicts)
					}
				})
			}
			for i := 0; i < keys; i += 10 { // ten keys at a time: their callers meet
				var batch []idem.Key
				for j := range 10 * callers {
					batch = append(batch, k("%d", i+j%10))
				}
				rand.Shuffle(len(batch), func(a, b int) { batch[a], batch[b] = batch[b], batch[a] })
				for _, key := range batch {
					work <- key
				}
			}
			close(work)
			all.Wait()
			for what, c := range map[string]struct {
				sql  string
				want int
			}{
				"effects":            {`SELECT count(*) FROM payments`, keys},
				"keys with effects":  {`SELECT count(DISTINCT key) FROM payments`, keys},
				"records":            {`SELECT count(*) FROM ` + table, keys},
				"records of success": {`SELECT count(*) FROM ` + table + ` WHERE status = 'succeeded'`, keys},
				"locks":              {heldLocks, 0},
			} {
				if n := query[int](t, pool, c.sql); n != c.want {
					t.Errorf("%d %s, want %d", n, what, c.want)
				}
			}
			t.Logf("%d effects by Do, %d by DoTx; plain Do got %d answers with SQLSTATE 40001", plain.Load(), inTx.Load(), conflicts.Load())
		})
	}
}

// answer calls the key, plain or in a transaction, until it has an answer.
func answer(ctx context.Context, t *testing.T, pool *pgxpool.Pool, key idem.Key, plain, inTx, conflicts *atomic.Int64) {
	s := pg.New(pool)
	for mode := rand.IntN(4); ; {
		isPlain := mode < 2
		var res idem.Result[int64]
		var err error
		if isPlain {
			res, err = idem.Do(ctx, s, key, "p", func(ctx context.Context) (int64, idem.Status, error) {
				if mode == 0 {
					return 1, 201, pay(ctx, pool, key)
				}
				tx, err := pg.Begin(ctx, s)
				if err != nil {
					return 0, 0, err
				}
				return 1, 201, pay(ctx, tx, key)
			})
		} else {
			res, err = pg.DoTx(ctx, s, key, "p", ends(key, 201, nil))
		}
		switch {
		case err == nil && !res.Replayed && isPlain:
			plain.Add(1)
		case err == nil && !res.Replayed:
			inTx.Add(1)
		case isPlain && sqlState(err) == "40001":
			conflicts.Add(1)
			continue
		case errors.Is(err, idem.ErrInProgress):
			continue
		case err != nil:
			t.Errorf("%s, plain %v: %v", key.Key, isPlain, err)
		}
		return
	}
}
