package storetests_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
)

// Many keys, each raced for by callers of two pools, while purges run all the time: one run for each key.
func TestRacesOfTwoPools(t *testing.T) {
	t.Parallel()
	ctx := watchdog(t)
	config := migrated(t)
	stores := [2]idem.Store{
		pg.New(connect(t, config, maxConns(6))),
		pg.New(connect(t, config, maxConns(6), execMode(pgx.QueryExecModeExec))),
	}
	const keys, callers = 300, 8
	var ran [keys]atomic.Int64
	purging, stop := context.WithCancel(ctx)
	purged := make(chan struct{})
	go func() {
		defer close(purged)
		_ = idem.RunPurge(purging, stores[0], time.Millisecond)
	}()
	race(callers, func(caller int) {
		for _, key := range rand.Perm(keys)[:keys*2/3] {
			// Near the others' order, so that callers meet.
			key = (key/16*16 + caller) % keys
			res, err := idem.Do(ctx, stores[caller%2], k("%d", key), key, func(context.Context) (int64, idem.Status, error) {
				return ran[key].Add(1), 201, nil
			})
			if errors.Is(err, idem.ErrInProgress) {
				continue
			}
			if err != nil || res.Value != 1 {
				t.Errorf("key %d: %+v, %v", key, res, err)
			}
		}
		for key := range keys { // and all of them in one order
			_, err := idem.Do(ctx, stores[caller%2], k("%d", key), key, func(context.Context) (int64, idem.Status, error) {
				return ran[key].Add(1), 201, nil
			})
			if err != nil && !errors.Is(err, idem.ErrInProgress) {
				t.Errorf("key %d: %v", key, err)
			}
		}
	})
	stop()
	<-purged
	for key := range keys {
		if n := ran[key].Load(); n != 1 {
			t.Errorf("key %d: the closure ran %d times", key, n)
		}
	}
}

// Crashed owners' claims, raced for: one takes over each time, with the next attempt.
func TestReclaimRaces(t *testing.T) {
	t.Parallel()
	pool := open(t, maxConns(8))
	store := pg.New(pool)
	ctx := watchdog(t)
	for round := 1; round <= 10; round++ {
		var ran atomic.Int64
		race(8, func(int) {
			_, err := idem.Do(ctx, store, k("x"), "p", func(ctx context.Context) (int, idem.Status, error) {
				ran.Add(1)
				if got := idem.Attempt(ctx); got != round {
					t.Errorf("round %d: attempt %d", round, got)
				}
				return 0, 0, idem.Unknown(nil)
			})
			if !errors.Is(err, idem.ErrInProgress) && !errors.Is(err, idem.ErrOutcomeUnknown) {
				t.Errorf("round %d: %v", round, err)
			}
		})
		if n := ran.Load(); n != 1 {
			t.Errorf("round %d: the closure ran %d times", round, n)
		}
		endLease(t, pool, k("x"))
	}
}
