package txtests_test

import (
	"context"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
)

// doWithBegin is Do whose closure pays in a transaction of pg.Begin. The steps are called before it begins, and after it
// has paid.
func doWithBegin(ctx context.Context, s *pg.Store, key idem.Key, begin, paid func(), opts ...idem.Option) (idem.Result[string], error) {
	return idem.Do(ctx, s, key, "p", func(ctx context.Context) (string, idem.Status, error) {
		if begin != nil {
			begin()
		}
		tx, err := pg.Begin(ctx, s)
		if err != nil {
			return "", 0, err
		}
		if err := pay(ctx, tx, key); err != nil {
			return "", 0, err
		}
		if paid != nil {
			paid()
		}
		return "paid", 201, nil
	}, opts...)
}

func TestBeginIsNotDisturbedByADuplicate(t *testing.T) {
	t.Parallel()
	ctx := watchdog(t)
	pool := open(t)
	s := pg.New(pool)
	key := k("duplicate")
	var rolledBack <-chan struct{}
	res, err := doWithBegin(ctx, s, key, func() {
		// A DoTx with the key is between its begin, which locks the key to look at its record, and its rollback.
		duplicate, err := s.BeginTx(ctx, idem.BeginRequest{Key: key, Idle: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		rolledBack = beside(func() {
			_, _ = pool.Exec(ctx, "SELECT pg_sleep(0.1)")
			duplicate.Rollback(ctx)
		})
	}, nil)
	<-rolledBack
	if err != nil || res.Value != "paid" {
		t.Errorf("the owner, whose lease is alive, got %+v, %v", res, err)
	}
	wantEffects(t, pool, key, 1)
}

func TestBeginOfALateOwnerIsRefusedAndDoesNotDisturbItsRival(t *testing.T) {
	t.Parallel()
	ctx := watchdog(t)
	pool := open(t)
	s := pg.New(pool)
	key := k("late")
	late := make(chan error, 1)
	_, err := idem.Do(ctx, s, key, "p", func(ctx context.Context) (string, idem.Status, error) {
		endLease(t, pool, key)
		res, err := doWithBegin(watchdog(t), s, key, func() {
			tx, err := pg.Begin(ctx, s) // the late owner
			if err == nil {
				err = pay(ctx, tx, key)
			}
			late <- err
		}, nil)
		if err != nil || res.Value != "paid" {
			t.Errorf("the rival, whose claim it is, got %+v, %v", res, err)
		}
		return "late", 201, nil
	})
	wantErr(t, <-late, idem.ErrLeaseLost)
	wantErr(t, err, idem.ErrLeaseLost)
	wantEffects(t, pool, key, 1)
}

func TestBeginIsIdleForAsLongAsTheLease(t *testing.T) {
	t.Parallel()
	ctx := watchdog(t)
	s := pg.New(open(t))
	for lease, want := range map[time.Duration]string{2 * time.Second: "2s", time.Hour: "1h"} {
		_, err := idem.Do(ctx, s, k("idle %v", lease), "p", func(ctx context.Context) (string, idem.Status, error) {
			tx, err := pg.Begin(ctx, s)
			if err != nil {
				return "", 0, err
			}
			if got := query[string](t, tx, "SHOW idle_in_transaction_session_timeout"); got != want {
				t.Errorf("with a lease of %v the transaction may be idle for %s, want %s", lease, got, want)
			}
			return "", 0, nil
		}, idem.WithLease(lease))
		wantErr(t, err, nil)
	}
}

// beside runs f beside the test. The channel is closed when it has returned.
func beside(f func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return done
}
