package txtests_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
)

// What a closure may do to its transaction, on a pool: the error must be the right one, and nothing must be kept.
func TestAClosureInTrouble(t *testing.T) {
	t.Parallel()
	ctx := watchdog(t)
	pool := open(t, maxConns(2))
	s := pg.New(pool)
	mustExec(t, pool, `CREATE TABLE parents (id text PRIMARY KEY)`)
	mustExec(t, pool, `CREATE TABLE children (parent text REFERENCES parents DEFERRABLE INITIALLY DEFERRED)`)
	type fn = func(context.Context, pgx.Tx) (int64, idem.Status, error)
	for name, c := range map[string]struct {
		fn   func(idem.Key) fn
		told func(error) bool
		kept bool
	}{
		"a failed statement that is swallowed": {swallows, hasState("25P02"), false},
		"a failed statement and a failure to keep": {func(key idem.Key) fn {
			return func(ctx context.Context, tx pgx.Tx) (int64, idem.Status, error) {
				_, _, _ = swallows(key)(ctx, tx)
				return 0, 409, errNoneLeft
			}
		}, is(errNoneLeft), true},
		"a deferred constraint that the COMMIT finds violated": {func(key idem.Key) fn {
			return func(ctx context.Context, tx pgx.Tx) (int64, idem.Status, error) {
				_, err := tx.Exec(ctx, `INSERT INTO children VALUES ('nobody')`)
				return 0, 201, errors.Join(err, pay(ctx, tx, key))
			}
		}, hasState("23503"), false},
		"a query that its context ends": {func(key idem.Key) fn {
			return func(ctx context.Context, tx pgx.Tx) (int64, idem.Status, error) {
				if err := pay(ctx, tx, key); err != nil {
					return 0, 0, err
				}
				ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
				defer cancel()
				_, err := tx.Exec(ctx, "SELECT pg_sleep(60)")
				return 0, 201, err
			}
		}, is(context.DeadlineExceeded), false},
		"a session that is ended": {func(key idem.Key) fn {
			return func(ctx context.Context, tx pgx.Tx) (int64, idem.Status, error) {
				_ = pay(ctx, tx, key)
				_, _ = tx.Exec(ctx, "SELECT pg_terminate_backend(pg_backend_pid())")
				return 0, 201, nil
			}
		}, is(idem.ErrUnavailable), false},
		"a savepoint of its own that is undone": {func(key idem.Key) fn {
			return func(ctx context.Context, tx pgx.Tx) (int64, idem.Status, error) {
				nested, err := tx.Begin(ctx)
				if err == nil {
					err = errors.Join(pay(ctx, nested, key), nested.Rollback(ctx))
				}
				return 0, 409, errors.Join(err, errNoneLeft)
			}
		}, is(errNoneLeft), true},
	} {
		key := k("%s", name)
		_, err := pg.DoTx(ctx, s, key, "p", c.fn(key))
		if !c.told(err) {
			t.Errorf("%s: got error %v", name, err)
		}
		if n := effects(t, pool, key); n != 0 {
			t.Errorf("%s: %d effects", name, n)
		}
		// The server may still be about to notice that the session is at its end.
		res, err := new(runs).doTx(ctx, s, key, "p", idem.WithWait(10*time.Second))
		if res.Replayed != c.kept || !c.kept && err != nil {
			t.Errorf("%s: the next call gets %+v, %v", name, res, err)
		}
		wantReleased(t, pool)
	}
}

// The server ends the session of a closure that is idle for longer than the lease.
func TestAClosureThatIsIdleForLongerThanTheLease(t *testing.T) {
	t.Parallel()
	ctx := watchdog(t)
	pool := open(t, maxConns(3))
	s := pg.New(pool)
	key := k("idle")
	_, err := pg.DoTx(ctx, s, key, "p", func(ctx context.Context, tx pgx.Tx) (int64, idem.Status, error) {
		if err := pay(ctx, tx, key); err != nil {
			return 0, 0, err
		}
		pid := tx.Conn().PgConn().PID()
		eventually(t, pool, `NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)`, pid)
		new(runs).mustDoTx(t, s, key, "p") // the key is free
		return 0, 201, nil
	}, idem.WithLease(100*time.Millisecond))
	// Its own commit cannot be carried out any more; the record there is the other caller's.
	wantErr(t, err, idem.ErrUnavailable)
	wantEffects(t, pool, key, 1)

	// A closure that works is not idle, however long that takes.
	busy := k("busy")
	_, err = pg.DoTx(ctx, s, busy, "p", func(ctx context.Context, tx pgx.Tx) (int64, idem.Status, error) {
		_, err := tx.Exec(ctx, "SELECT pg_sleep(2.2)")
		return 0, 201, errors.Join(err, pay(ctx, tx, busy))
	}, idem.WithLease(2*time.Second))
	wantErr(t, err, nil)
	wantEffects(t, pool, busy, 1)
	if got := query[string](t, pool, "SHOW idle_in_transaction_session_timeout"); got != "0" {
		t.Errorf("the timeout is left in the session: %s", got)
	}
}

// The isolation is the call's own, and nothing of it is left in the session.
func TestATransactionIsReadCommittedWhateverTheDefault(t *testing.T) {
	t.Parallel()
	pool := open(t, maxConns(1), setting("default_transaction_isolation", "serializable"))
	s := pg.New(pool)
	isolation := func(ctx context.Context, tx pgx.Tx) (string, idem.Status, error) {
		return query[string](t, tx, "SHOW transaction_isolation"), 0, nil
	}
	res, err := pg.DoTx(watchdog(t), s, k("DoTx"), "p", isolation)
	if err != nil || res.Value != "read committed" {
		t.Errorf("DoTx: %+v, %v", res, err)
	}
	begun, err := idem.Do(watchdog(t), s, k("Begin"), "p", func(ctx context.Context) (string, idem.Status, error) {
		tx, err := pg.Begin(ctx, s)
		if err != nil {
			return "", 0, err
		}
		return isolation(ctx, tx)
	})
	if err != nil || begun.Value != "read committed" {
		t.Errorf("Begin: %+v, %v", begun, err)
	}
	if got := query[string](t, pool, "SHOW transaction_isolation"); got != "serializable" {
		t.Errorf("the session is left at %s", got)
	}
}

// B43: callers that go away at any point leave no connection and no lock behind, nor do they churn the pool.
func TestB43NothingLeaksFromCallsOfEveryKind(t *testing.T) {
	t.Parallel()
	const calls, conns = 500, 4
	ctx := watchdog(t)
	pool := open(t, maxConns(conns))
	s := pg.New(pool)
	kinds := []func(context.Context, idem.Key){
		func(ctx context.Context, key idem.Key) { _, _ = pg.DoTx(ctx, s, key, "p", ends(key, 201, nil)) },
		func(ctx context.Context, key idem.Key) { _, _ = pg.DoTx(ctx, s, key, "another", ends(key, 201, nil)) },
		func(ctx context.Context, key idem.Key) { _, _ = pg.DoTx(ctx, s, key, "p", ends(key, 503, errNoneLeft)) },
		func(ctx context.Context, key idem.Key) { _, _ = pg.DoTx(ctx, s, key, "p", ends(key, 409, errNoneLeft)) },
		func(ctx context.Context, key idem.Key) { _, _ = pg.DoTx(ctx, s, key, "p", swallows(key)) },
		func(ctx context.Context, key idem.Key) { _, _ = doWithBegin(ctx, s, key, nil, nil) },
		func(ctx context.Context, key idem.Key) {
			_, _ = doWithBegin(ctx, s, key, nil, func() { panic("oops") })
		},
		func(ctx context.Context, key idem.Key) {
			ctx, cancel := context.WithCancel(ctx)
			_, _ = pg.DoTx(ctx, s, key, "p", func(ctx context.Context, tx pgx.Tx) (int64, idem.Status, error) {
				defer cancel() // the client hangs up after the last statement
				return 0, 201, pay(ctx, tx, key)
			})
		},
		func(ctx context.Context, key idem.Key) { // or at any time before
			ctx, cancel := context.WithCancel(ctx)
			_, _ = pg.DoTx(ctx, s, key, "p", func(ctx context.Context, tx pgx.Tx) (int64, idem.Status, error) {
				cancel()
				return 0, 201, pay(ctx, tx, key)
			})
		},
	}
	work := func(from, to int) {
		var all sync.WaitGroup
		for worker := range 2 * conns {
			all.Go(func() {
				for i := from + worker; i < to; i += 2 * conns {
					func() {
						defer func() { _ = recover() }()
						kinds[rand.IntN(len(kinds))](ctx, k("%d", i/3))
					}()
				}
			})
		}
		all.Wait()
	}
	work(0, 100)
	wantReleased(t, pool)
	before := pool.Stat().NewConnsCount()
	work(100, 100+calls)
	wantReleased(t, pool)
	if made := pool.Stat().NewConnsCount() - before; made > conns {
		t.Errorf("%d connections were made for %d calls", made, calls)
	}
	if n := query[int](t, pool, heldLocks); n != 0 {
		t.Errorf("%d locks are held", n)
	}
	wrong := query[int](t, pool, `SELECT count(*) FROM (SELECT key FROM payments GROUP BY key HAVING count(*) > 1) AS twice`)
	wrong += query[int](t, pool, `SELECT count(*) FROM payments FULL JOIN (SELECT * FROM `+table+` WHERE status = 'succeeded') AS done
		ON key = idempotency_key WHERE key IS NULL OR idempotency_key IS NULL`)
	if wrong != 0 {
		t.Errorf("%d keys have effects that differ from their records", wrong)
	}
}
