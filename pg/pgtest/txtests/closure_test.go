package txtests_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
)

// What a closure keeps of its transaction must not work after the end: the connection may be somebody else's by then.
func TestNothingOfATransactionWorksAfterItsEnd(t *testing.T) {
	t.Parallel()
	ctx := watchdog(t)
	pool := open(t, maxConns(1))
	s := pg.New(pool)
	key := k("kept")
	var tx, nested pgx.Tx
	var large pgx.LargeObjects
	_, err := pg.DoTx(ctx, s, key, "p", func(ctx context.Context, own pgx.Tx) (_ string, _ idem.Status, err error) {
		tx, large = own, own.LargeObjects()
		nested, err = own.Begin(ctx)
		return "", 201, err
	})
	wantErr(t, err, nil)
	other := k("kept by another")
	_, err = pg.DoTx(ctx, s, other, "p", func(ctx context.Context, _ pgx.Tx) (string, idem.Status, error) {
		for name, use := range map[string]func() error{
			"the transaction":          func() error { return pay(ctx, tx, key) },
			"a query in it":            func() error { return tx.QueryRow(ctx, "SELECT 1").Scan(nil) },
			"a batch in it":            func() error { b := &pgx.Batch{}; b.Queue("SELECT 1"); return tx.SendBatch(ctx, b).Close() },
			"its commit":               func() error { return tx.Commit(ctx) },
			"its rollback":             func() error { return tx.Rollback(ctx) },
			"a new one in it":          func() error { _, err := tx.Begin(ctx); return err },
			"its large objects":        func() error { _, err := large.Create(ctx, 0); return err },
			"one nested in it":         func() error { return pay(ctx, nested, key) },
			"the commit of the nested": func() error { return nested.Commit(ctx) },
			"a store over it": func() error {
				_, err := pg.DoTx(ctx, pg.New(tx), key, "p", func(context.Context, pgx.Tx) (string, idem.Status, error) { return "", 0, nil })
				return err
			},
		} {
			func() {
				defer func() {
					if p := recover(); p != nil {
						t.Errorf("%s panics after the end: %v", name, p)
					}
				}()
				if use() == nil {
					t.Errorf("%s works after the end", name)
				}
			}()
		}
		return "", 201, nil
	})
	wantErr(t, err, nil)
	if n := effects(t, pool, key); n != 0 {
		t.Errorf("%d effects after the end", n)
	}
}

// A function of the caller's that panics while the call is between the closure and its end.
func TestAPanicOfTheCallersFunctionsDoesNotKeepTheKey(t *testing.T) {
	t.Parallel()
	pool := open(t, maxConns(2))
	s := pg.New(pool)
	var n runs
	at := func(kind idem.EventKind) idem.Option {
		return idem.WithObserver(func(_ context.Context, e idem.Event) {
			if e.Kind == kind {
				panic("oops")
			}
		})
	}
	for name, opt := range map[string]idem.Option{
		"the disposition":           idem.WithDisposition(func(idem.Outcome) idem.Disposition { panic("oops") }),
		"the observer at a reclaim": at(idem.EventReclaimed),
		"the observer at the end":   at(idem.EventExecuted),
	} {
		key := k("%s", name)
		crash(t, s, key, "p")
		endLease(t, pool, key)
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s does not panic", name)
				}
			}()
			_, _ = pg.DoTx(watchdog(t), s, key, "p", func(context.Context, pgx.Tx) (int64, idem.Status, error) {
				return 0, 201, nil
			}, opt)
		}()
		if !wantReleased(t, pool) {
			t.Fatalf("%s panics", name)
		}
		if got := query[int](t, pool, heldLocks); got != 0 {
			t.Errorf("%s panics: %d keys are locked", name, got)
		}
		if _, err := n.doTx(watchdog(t), s, key, "p"); err != nil {
			t.Errorf("%s panics: the next call gets %v", name, err)
		}
	}
}

func TestTheSameKeyIsRefusedWithinItself(t *testing.T) {
	t.Parallel()
	ctx := watchdog(t)
	for name, before := range map[string]func(*testing.T, *pg.Store, querier, idem.Key){
		"new": func(*testing.T, *pg.Store, querier, idem.Key) {},
		"stale": func(t *testing.T, s *pg.Store, db querier, key idem.Key) {
			crash(t, s, key, "p")
			endLease(t, db, key)
		},
		"expired": func(t *testing.T, s *pg.Store, db querier, key idem.Key) {
			new(runs).mustDoTx(t, s, key, "p")
			mustExec(t, db, "DELETE FROM payments")
			expire(t, db, key)
		},
	} {
		t.Run(fmt.Sprintf("a key that is %s", name), func(t *testing.T) {
			pool := open(t)
			s := pg.New(pool)
			key := k("nested")
			before(t, s, pool, key)
			_, err := pg.DoTx(ctx, s, key, "p", func(ctx context.Context, tx pgx.Tx) (string, idem.Status, error) {
				for where, inner := range map[string]*pg.Store{"in its transaction": pg.New(tx), "beside it": s} {
					_, err := pg.DoTx(ctx, inner, key, "p", func(context.Context, pgx.Tx) (string, idem.Status, error) {
						t.Errorf("%s: the same key ran within itself", where)
						return "", 0, nil
					})
					wantErr(t, err, idem.ErrInProgress)
				}
				return "", 201, pay(ctx, tx, key)
			})
			wantErr(t, err, nil)
			wantEffects(t, pool, key, 1)
		})
	}
}

// A closure that ends its transaction by an SQL statement has left the call: nothing must be recorded of it.
func TestAClosureThatEndsItsTransactionBySQLIsAnError(t *testing.T) {
	t.Parallel()
	pool := open(t)
	s := pg.New(pool)
	for _, sql := range []string{"ROLLBACK", "COMMIT", "ROLLBACK AND CHAIN"} {
		key := k("%s", sql)
		_, err := pg.DoTx(watchdog(t), s, key, "p", func(ctx context.Context, tx pgx.Tx) (string, idem.Status, error) {
			if err := pay(ctx, tx, key); err != nil {
				return "", 0, err
			}
			_, err := tx.Exec(ctx, sql)
			return "", 201, err
		})
		if err == nil {
			t.Errorf("after %s in the closure DoTx succeeds with %d effects", sql, effects(t, pool, key))
		}
	}
}

// A closure that leaves rows open keeps the connection busy.
func TestAClosureThatLeavesRowsOpenKeepsNothing(t *testing.T) {
	t.Parallel()
	ctx := watchdog(t)
	pool := open(t)
	leaves := func(key idem.Key, rows *pgx.Rows) func(ctx context.Context, tx pgx.Tx) (string, idem.Status, error) {
		return func(ctx context.Context, tx pgx.Tx) (_ string, _ idem.Status, err error) {
			if err := pay(ctx, tx, key); err != nil {
				return "", 0, err
			}
			*rows, err = tx.Query(ctx, "SELECT generate_series(1, 10000)")
			return "", 201, err
		}
	}
	var rows pgx.Rows
	key := k("rows")
	_, err := pg.DoTx(ctx, pg.New(pool), key, "p", leaves(key, &rows))
	if err == nil {
		t.Error("no error on a pool")
	}
	wantEffects(t, pool, key, 0)
	wantReleased(t, pool)

	key = k("rows in a transaction")
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_, err = pg.DoTx(ctx, pg.New(tx), key, "p", leaves(key, &rows))
	if err == nil {
		t.Error("no error in a transaction")
	}
	rows.Close()
	_ = tx.Commit(ctx)
	wantEffects(t, pool, key, 0)
}
