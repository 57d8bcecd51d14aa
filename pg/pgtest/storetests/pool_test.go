package storetests_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
)

// No connection is held while closures run: one is enough for calls within calls that use it themselves.
func TestPoolOfOne(t *testing.T) {
	t.Parallel()
	pool := open(t, maxConns(1))
	store := pg.New(pool)
	ctx := watchdog(t)
	var nested func(depth int) (int, error)
	nested = func(depth int) (int, error) {
		res, err := idem.Do(ctx, store, k("depth %d", depth), depth, func(context.Context) (int, idem.Status, error) {
			if acquired := pool.Stat().AcquiredConns(); acquired != 0 {
				t.Errorf("depth %d: %d connections are held", depth, acquired)
			}
			n := query[int](t, pool, "SELECT $1::int", depth)
			if depth == 3 {
				return n, 200, nil
			}
			inner, err := nested(depth + 1)
			return n + inner, 200, err
		})
		return res.Value, err
	}
	for range 2 {
		if sum, err := nested(0); err != nil || sum != 6 {
			t.Errorf("%d, %v, want 6", sum, err)
		}
	}
}

// Many calls share one connection, each with a closure that needs it too.
func TestPoolOfOneUnderLoad(t *testing.T) {
	t.Parallel()
	pool := open(t, maxConns(1))
	store := pg.New(pool)
	ctx := watchdog(t)
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			_, err := idem.Do(ctx, store, k("load %d", i%25), "p", func(ctx context.Context) (int, idem.Status, error) {
				var n int
				err := pool.QueryRow(ctx, "SELECT 1").Scan(&n)
				return n, 200, err
			})
			if err != nil && !errors.Is(err, idem.ErrInProgress) {
				t.Errorf("call %d: %v", i, err)
			}
		})
	}
	all.Wait()
}

// Callers that go away at any point of the call cost neither connections nor claims.
func TestB43CancelledCallersDoNotChurnThePool(t *testing.T) {
	t.Parallel()
	pool := open(t, maxConns(4))
	store := pg.New(pool)
	warm(t, pool, 4)
	before := pool.Stat()

	var ran, cancelled atomic.Int64
	var all sync.WaitGroup
	for caller := range 10 {
		all.Go(func() {
			for i := range 100 {
				ctx, cancel := context.WithTimeout(watchdog(t), rand.N(8*time.Millisecond))
				_, err := idem.Do(ctx, store, k("%d/%d", caller, i), "p", func(context.Context) (int, idem.Status, error) {
					ran.Add(1)
					return 1, 201, nil
				})
				cancel()
				switch {
				case errors.Is(err, context.DeadlineExceeded):
					cancelled.Add(1)
				case err != nil:
					t.Errorf("error %v, want none or the deadline's", err)
				}
			}
		})
	}
	all.Wait()

	after := pool.Stat()
	if n := after.AcquiredConns(); n != 0 {
		t.Errorf("%d connections are still acquired", n)
	}
	if n := after.NewConnsCount() - before.NewConnsCount(); n > 2 {
		t.Errorf("%d new connections", n)
	}
	if ran.Load()+cancelled.Load() != 1000 || cancelled.Load() == 0 {
		t.Errorf("%d ran, %d were cancelled, of 1000", ran.Load(), cancelled.Load())
	}
	settled := query[int](t, pool, "SELECT count(*) FROM "+table+" WHERE status = 'succeeded'")
	held := query[int](t, pool, "SELECT count(*) FROM "+table+" WHERE status = 'processing' AND token IS NOT NULL")
	if settled != int(ran.Load()) || held != 0 {
		t.Errorf("%d closures ran; %d outcomes are recorded, and %d claims left", ran.Load(), settled, held)
	}
}

// warm makes the pool open n connections.
func warm(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	for range n {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
	}
}
