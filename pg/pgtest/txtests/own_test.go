package txtests_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
	"github.com/idem-go/idem/pg/pgtest"
)

var errNoneLeft = errors.New("none left")

// ends returns a closure that pays and ends like that.
func ends(key idem.Key, status idem.Status, err error) func(context.Context, pgx.Tx) (int64, idem.Status, error) {
	return func(ctx context.Context, tx pgx.Tx) (int64, idem.Status, error) {
		if err := pay(ctx, tx, key); err != nil {
			return 0, 0, err
		}
		return 0, status, err
	}
}

// A step is a call in a caller's own transaction, at a key that is prepared before the transaction begins.
type step struct {
	name    string
	prepare func(t *testing.T, s *pg.Store, db querier, key idem.Key)
	call    func(ctx context.Context, s *pg.Store, key idem.Key) error
	check   func(err error) bool
	effects int // committed with the caller's transaction
}

func tx(fn func(idem.Key) func(context.Context, pgx.Tx) (int64, idem.Status, error), payload string, opts ...idem.Option) func(context.Context, *pg.Store, idem.Key) error {
	return func(ctx context.Context, s *pg.Store, key idem.Key) error {
		_, err := pg.DoTx(ctx, s, key, payload, fn(key), opts...)
		return err
	}
}

func is(want error) func(error) bool { return func(err error) bool { return errors.Is(err, want) } }

func hasState(state string) func(error) bool {
	return func(err error) bool { return sqlState(err) == state }
}

func settled(t *testing.T, s *pg.Store, db querier, key idem.Key) {
	new(runs).mustDoTx(t, s, key, "p")
	mustExec(t, db, "DELETE FROM payments WHERE key = $1", key.Key)
}

func paysWith(status idem.Status, err error) func(idem.Key) func(context.Context, pgx.Tx) (int64, idem.Status, error) {
	return func(key idem.Key) func(context.Context, pgx.Tx) (int64, idem.Status, error) {
		return ends(key, status, err)
	}
}

var steps = []step{
	{name: "a success", call: tx(paysWith(201, nil), "p"), check: is(nil), effects: 1},
	{name: "in progress", prepare: func(t *testing.T, s *pg.Store, _ querier, key idem.Key) { crash(t, s, key, "p") },
		call: tx(paysWith(201, nil), "p"), check: is(idem.ErrInProgress)},
	{name: "a mismatch", prepare: settled, call: tx(paysWith(201, nil), "another"), check: is(idem.ErrPayloadMismatch)},
	{name: "a replay", prepare: settled, call: tx(paysWith(201, nil), "p"), check: is(nil)},
	{name: "a reclaim", prepare: func(t *testing.T, s *pg.Store, db querier, key idem.Key) {
		crash(t, s, key, "p")
		endLease(t, db, key)
	}, call: tx(paysWith(201, nil), "p"), check: is(nil), effects: 1},
	{name: "a kept failure", call: tx(paysWith(409, errNoneLeft), "p"), check: is(errNoneLeft)},
	{name: "a release", call: tx(paysWith(503, errNoneLeft), "p"), check: is(errNoneLeft)},
	{name: "an unknown outcome", call: tx(paysWith(0, idem.Unknown(nil)), "p"), check: is(idem.ErrOutcomeUnknown)},
	{name: "a panic", call: func(ctx context.Context, s *pg.Store, key idem.Key) (err error) {
		defer func() { err, _ = recover().(error) }()
		_, _ = pg.DoTx(ctx, s, key, "p", func(ctx context.Context, tx pgx.Tx) (int64, idem.Status, error) {
			if err := pay(ctx, tx, key); err != nil {
				return 0, 0, err
			}
			panic(errNoneLeft)
		})
		return nil
	}, check: is(errNoneLeft)},
	{name: "a statement that failed", call: tx(func(key idem.Key) func(context.Context, pgx.Tx) (int64, idem.Status, error) {
		return func(ctx context.Context, tx pgx.Tx) (int64, idem.Status, error) {
			_ = pay(ctx, tx, key)
			_, err := tx.Exec(ctx, "SELECT 1/0")
			return 0, 0, err
		}
	}, "p"), check: hasState("22012")},
	{name: "a failed statement that was swallowed", call: tx(swallows, "p"), check: hasState("25P02")},
	{name: "a failed statement, and a failure to keep", call: tx(func(key idem.Key) func(context.Context, pgx.Tx) (int64, idem.Status, error) {
		return func(ctx context.Context, tx pgx.Tx) (int64, idem.Status, error) {
			_, _, _ = swallows(key)(ctx, tx)
			return 0, 409, errNoneLeft
		}
	}, "p"), check: is(errNoneLeft)},
	{name: "a call within a broken closure", call: tx(func(key idem.Key) func(context.Context, pgx.Tx) (int64, idem.Status, error) {
		return func(ctx context.Context, tx pgx.Tx) (int64, idem.Status, error) {
			_, _, _ = swallows(key)(ctx, tx)
			inner := k("inner of %s", key.Key)
			_, _ = pg.DoTx(ctx, pg.New(tx), inner, "p", ends(inner, 201, nil))
			return 0, 201, nil
		}
	}, "p"), check: func(err error) bool { return err != nil }},
	{name: "Do", call: func(ctx context.Context, s *pg.Store, key idem.Key) error {
		_, err := idem.Do(ctx, s, key, "p", func(context.Context) (string, idem.Status, error) { return "", 409, nil })
		return err
	}, check: is(nil)},
	{name: "waiting", call: tx(paysWith(201, nil), "p", idem.WithWait(1)), check: is(idem.ErrInvalidOption)},
}

// swallows is a closure that breaks its transaction and says nothing.
func swallows(key idem.Key) func(context.Context, pgx.Tx) (int64, idem.Status, error) {
	return func(ctx context.Context, tx pgx.Tx) (int64, idem.Status, error) {
		_ = pay(ctx, tx, key)
		_, _ = tx.Exec(ctx, "SELECT 1/0")
		return 0, 201, nil
	}
}

func TestACallersTransactionStaysUsable(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			pool := open(t)
			for _, step := range steps {
				inTx(t, pool, level, step)
			}
		})
	}
}

func inTx(t *testing.T, pool *pgxpool.Pool, level pgx.TxIsoLevel, step step) {
	ctx := watchdog(t)
	key := k("%s", step.name)
	if step.prepare != nil {
		step.prepare(t, pg.New(pool), pool, key)
	}
	own, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = own.Rollback(context.WithoutCancel(ctx)) }()
	before := k("before %s", step.name)
	if err := pay(ctx, own, before); err != nil {
		t.Fatal(err)
	}
	if err := step.call(ctx, pg.New(own), key); !step.check(err) {
		t.Errorf("%s: got error %v", step.name, err)
	}
	if _, err := own.Exec(ctx, "SELECT 1"); err != nil {
		t.Errorf("%s: SELECT 1: %v", step.name, err)
	}
	if got := query[string](t, own, "SHOW transaction_isolation"); got != string(level) {
		t.Errorf("%s: the isolation is %s", step.name, got)
	}
	if err := own.Commit(ctx); err != nil {
		t.Errorf("%s: COMMIT: %v", step.name, err)
	}
	if got := effects(t, pool, before); got != 1 {
		t.Errorf("%s: %d effects of the caller's own", step.name, got)
	}
	if got := effects(t, pool, key); got != step.effects {
		t.Errorf("%s: %d effects, want %d", step.name, got, step.effects)
	}
}

func TestTwoCallsOneAfterTheOtherInOneTransaction(t *testing.T) {
	t.Parallel()
	ctx := watchdog(t)
	pool := open(t)
	var n runs
	key := k("twice")
	own, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s := pg.New(own)
	for i, replayed := range []bool{false, true} {
		if res := n.mustDoTx(t, s, key, "p"); res.Replayed != replayed || res.Value != 1 {
			t.Errorf("call %d: %+v", i, res)
		}
	}
	_, err = n.doTx(ctx, s, key, "another")
	wantErr(t, err, idem.ErrPayloadMismatch)
	_, err = n.doTx(ctx, pg.New(pool), key, "p")
	wantErr(t, err, idem.ErrInProgress)
	wantErr(t, own.Commit(ctx), nil)
	wantEffects(t, pool, key, 1)
	n.want(t, 1)
}

func TestALockIsReleasedWithTheSavepoint(t *testing.T) {
	t.Parallel()
	ctx := watchdog(t)
	pool := open(t)
	own, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, status := range []idem.Status{503, 429} {
		key := k("status %d", status)
		_, err = pg.DoTx(ctx, pg.New(own), key, "p", ends(key, status, nil))
		wantErr(t, err, nil)
		new(runs).mustDoTx(t, pg.New(pool), key, "p") // while the caller's transaction is open
	}
	if got := query[int](t, own, heldLocks+" AND pid = pg_backend_pid()"); got != 0 {
		t.Errorf("the caller's transaction holds %d locks", got)
	}
	wantErr(t, own.Rollback(ctx), nil)
}

func TestACallersRollbackTakesTheRecordWithIt(t *testing.T) {
	t.Parallel()
	ctx := watchdog(t)
	pool := open(t)
	key := k("rolled back")
	var n runs
	own, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	n.mustDoTx(t, pg.New(own), key, "p")
	wantErr(t, own.Rollback(ctx), nil)
	wantEffects(t, pool, key, 0)
	n.mustDoTx(t, pg.New(pool), key, "p")
	wantEffects(t, pool, key, 1)
}

// At REPEATABLE READ the caller's snapshot is older than the rival's commit.
func TestARivalUnseenByTheCallersSnapshot(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			ctx := watchdog(t)
			pool := open(t)
			key := k("unseen")
			own, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
			if err != nil {
				t.Fatal(err)
			}
			query[int](t, own, "SELECT count(*) FROM payments") // fixes the snapshot
			new(runs).mustDoTx(t, pg.New(pool), key, "p")
			_, err = new(runs).doTx(ctx, pg.New(own), key, "p")
			if sqlState(err) != "40001" {
				t.Errorf("got error %v, want SQLSTATE 40001", err)
			}
			_, err = own.Exec(ctx, "SELECT 1")
			wantErr(t, err, nil)
			wantErr(t, own.Commit(ctx), nil)
			wantEffects(t, pool, key, 1)
		})
	}
}

// Without its connection the caller cannot commit: everything is rolled back, and the call says so.
func TestACallersTransactionThatLosesItsConnection(t *testing.T) {
	t.Parallel()
	ctx := watchdog(t)
	config := migrated(t)
	pool := connect(t, config)
	proxy := pgtest.NewProxy(t, config)
	key := k("lost")
	own, err := connect(t, proxy.Config()).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_, err = pg.DoTx(ctx, pg.New(own), key, "p", func(ctx context.Context, tx pgx.Tx) (int64, idem.Status, error) {
		err := pay(ctx, tx, key)
		proxy.Cut()
		return 0, 201, err
	})
	if err == nil || errors.Is(err, idem.ErrOutcomeUnknown) {
		t.Errorf("got error %v", err)
	}
	if own.Commit(ctx) == nil {
		t.Error("the caller can commit")
	}
	settledDown(t, pool)
	wantEffects(t, pool, key, 0)
}
