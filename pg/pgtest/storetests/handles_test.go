package storetests_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
)

// withHandle calls f with each kind of handle that a store may work over. The pool is another one.
func withHandle(t *testing.T, modes []pgx.QueryExecMode, f func(t *testing.T, db pg.DB, bound idem.Binding, pool *pgxpool.Pool)) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			config := migrated(t)
			pool := connect(t, config, execMode(mode))
			handle := func(name string, bound idem.Binding, open func(t *testing.T) pg.DB) {
				t.Run(name, func(t *testing.T) {
					f(t, open(t), bound, pool)
				})
			}
			begin := func(t *testing.T, db pg.DB) pgx.Tx {
				tx, err := db.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
				return tx
			}
			conn := func(t *testing.T) *pgx.Conn {
				c := config.Copy().ConnConfig
				c.DefaultQueryExecMode = mode
				conn, err := pgx.ConnectConfig(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = conn.Close(context.Background()) })
				return conn
			}
			handle("Pool", idem.BoundToNothing, func(*testing.T) pg.DB { return pool })
			handle("Conn", idem.BoundToConn, func(t *testing.T) pg.DB { return conn(t) })
			handle("pool's Conn", idem.BoundToConn, func(t *testing.T) pg.DB {
				c, err := pool.Acquire(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(c.Release)
				return c
			})
			handle("pool's Tx", idem.BoundToTx, func(t *testing.T) pg.DB { return begin(t, pool) })
			handle("Tx", idem.BoundToTx, func(t *testing.T) pg.DB { return begin(t, conn(t)) })
			handle("nested Tx", idem.BoundToTx, func(t *testing.T) pg.DB { return begin(t, begin(t, pool)) })
		})
	}
}

func TestEveryHandleDoesEverything(t *testing.T) {
	t.Parallel()
	withHandle(t, execModes, func(t *testing.T, db pg.DB, bound idem.Binding, _ *pgxpool.Pool) {
		ctx := watchdog(t)
		store := pg.New(db)
		if got := store.Bound(); got != bound {
			t.Errorf("Bound() = %v, want %v", got, bound)
		}
		if err := pg.Migrate(ctx, db); err != nil {
			t.Error(err)
		}
		key := t.Name()
		wholeLife(t, store, key)
		rec, found, err := store.Lookup(ctx, k("%s", key))
		if err != nil || !found || rec.State != idem.Succeeded {
			t.Errorf("look-up: %+v, %v, %v", rec, found, err)
		}
		// The fences, one by one.
		wrong := idem.ID{1}
		_, err = store.Complete(ctx, idem.CompleteRequest{Key: k("%s", key), Token: wrong, State: idem.Failed, Retention: 1})
		wantErr(t, err, idem.ErrLeaseLost)
		wantErr(t, store.Release(ctx, idem.ReleaseRequest{Key: k("%s", key), Token: wrong, Retention: 1}), idem.ErrLeaseLost)
		wantErr(t, store.Renew(ctx, idem.RenewRequest{Key: k("%s", key), Token: wrong, Lease: 1, Retention: 1}), idem.ErrLeaseLost)
		if _, found, err := store.Lookup(ctx, k("absent")); found || err != nil {
			t.Errorf("look-up of an absent key: %v, %v", found, err)
		}
		mustExec(t, db, "UPDATE "+table+" SET expires_at = inserted_at, purge_after = inserted_at")
		if res, err := store.Purge(ctx, idem.PurgeRequest{Limit: 10}); err != nil || res.Deleted < 1 || res.Overdue <= 0 {
			t.Errorf("purge: %+v, %v", res, err)
		}
	})
}

func TestRenewalOverEveryHandle(t *testing.T) {
	t.Parallel()
	withHandle(t, execModes[:1], func(t *testing.T, db pg.DB, bound idem.Binding, pool *pgxpool.Pool) {
		key, lease := k("%s", t.Name()), 1500*time.Millisecond
		if bound == idem.BoundToNothing {
			lease = 6 * time.Second // a renewal that comes late must not come too late
		}
		var renewed bool
		_, err := idem.Do(watchdog(t), pg.New(db), key, "p", func(ctx context.Context) (int, idem.Status, error) {
			const isRenewed = "updated_at > inserted_at FROM " + table + " WHERE idempotency_key = $1"
			if bound == idem.BoundToNothing {
				eventually(t, db, isRenewed, key.Key)
			} else { // until long past the time of the first renewal
				mustExec(t, pool, "SELECT pg_sleep(0.7)")
			}
			renewed = query[bool](t, db, "SELECT "+isRenewed, key.Key)
			return 1, 200, nil
		}, idem.WithLease(lease))
		wantErr(t, err, nil)
		if want := bound == idem.BoundToNothing; renewed != want {
			t.Errorf("renewed: %v, want %v", renewed, want)
		}
	})
}

func TestWaitingOverEveryHandle(t *testing.T) {
	t.Parallel()
	withHandle(t, execModes[:1], func(t *testing.T, db pg.DB, bound idem.Binding, _ *pgxpool.Pool) {
		var n runs
		_, err := n.do(watchdog(t), pg.New(db), k("%s", t.Name()), "p", idem.WithWait(time.Second))
		if bound == idem.BoundToTx {
			wantErr(t, err, idem.ErrInvalidOption)
			n.want(t, 0)
			return
		}
		wantErr(t, err, nil)
		n.want(t, 1)
	})
}

// A connection that broke while the closure ran will not come back: Do says so at once, not when the lease is over.
func TestLostConnIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	config := migrated(t)
	pool := connect(t, config)
	conn, err := pgx.ConnectConfig(t.Context(), config.Copy().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := idem.Do(ctx, pg.New(conn), k("lost"), "p", func(context.Context) (int, idem.Status, error) {
			mustExec(t, pool, "SELECT pg_terminate_backend($1)", conn.PgConn().PID())
			return 1, 200, nil
		}, idem.WithLease(20*time.Second))
		done <- err
	}()
	select {
	case err := <-done:
		if !errors.Is(err, idem.ErrNotRecorded) {
			t.Errorf("error %v, want %v", err, idem.ErrNotRecorded)
		}
	case <-ctx.Done():
		t.Error("Do keeps asking a connection that is closed")
		<-done
	}
}
