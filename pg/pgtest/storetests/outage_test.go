package storetests_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
	"github.com/idem-go/idem/pg/pgtest"
)

// One server of the test's own goes down before a claim, between claim and completion, and comes back.
func TestB62ServerDown(t *testing.T) {
	t.Parallel()
	ctx := watchdog(t)
	server := pgtest.Start(t)
	pool, err := pgxpool.New(ctx, server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := pg.Migrate(ctx, pool); err != nil {
		t.Fatal(err)
	}
	store := pg.New(pool)
	var n runs
	n.mustDo(t, store, k("before"), "p")

	// Between claim and completion, and it stays down until the lease is over.
	short := idem.WithLease(time.Second)
	res, err := idem.Do(ctx, store, k("between"), "p", func(context.Context) (int64, idem.Status, error) {
		server.Kill()
		return n.Add(1), 201, nil
	}, short)
	wantErr(t, err, idem.ErrNotRecorded)
	if res.Value != 2 || res.Status != 201 {
		t.Errorf("the value is lost: %+v", res)
	}
	// Before the claim.
	_, err = n.do(ctx, store, k("down"), "p")
	wantErr(t, err, idem.ErrUnavailable)
	_, err = n.do(ctx, store, k("before"), "p")
	wantErr(t, err, idem.ErrUnavailable)
	n.want(t, 2)

	server.Restart()
	n.mustDo(t, store, k("down"), "p")
	if res := n.mustDo(t, store, k("before"), "p"); !res.Replayed {
		t.Error("a recorded outcome did not survive the crash")
	}
	mustExec(t, pool, "SELECT pg_sleep_until(max(lease_expires_at)) FROM "+table+" WHERE idempotency_key = 'between'")
	if res := n.mustDo(t, store, k("between"), "p"); res.Replayed || res.Attempt != 2 {
		t.Errorf("after the lease: %+v", res)
	}

	// Down for a moment while the closure runs: saving is tried again within the lease.
	res, err = idem.Do(ctx, store, k("moment"), "p", func(context.Context) (int64, idem.Status, error) {
		server.Kill()
		go server.Restart()
		return n.Add(1), 201, nil
	})
	if err != nil || res.CompletedAt.IsZero() {
		t.Errorf("%+v, %v", res, err)
	}
	if res := n.mustDo(t, store, k("moment"), "p"); !res.Replayed {
		t.Error("the outcome was not recorded")
	}
}

// The session ends, or its prepared statements do, before any request of a call. Nobody notices.
func TestSessionsThatEnd(t *testing.T) {
	t.Parallel()
	types := map[bool]string{false: "smallint", true: "integer"}
	for name, end := range map[string]func(t *testing.T, pool, admin *pgxpool.Pool, n int){
		"terminated": func(t *testing.T, pool, admin *pgxpool.Pool, _ int) {
			mustExec(t, admin, "SELECT pg_terminate_backend($1, 5000)", query[int](t, pool, "SELECT pg_backend_pid()"))
		},
		"statements deallocated": func(t *testing.T, pool, _ *pgxpool.Pool, _ int) { mustExec(t, pool, "DEALLOCATE ALL") },
		"reset":                  func(t *testing.T, pool, _ *pgxpool.Pool, _ int) { mustExec(t, pool, "RESET ALL") },
		"a column's type changed": func(t *testing.T, _, admin *pgxpool.Pool, n int) {
			mustExec(t, admin, "ALTER TABLE "+table+" ALTER response_status TYPE "+types[n%2 == 0])
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := migrated(t)
			admin := connect(t, config)
			for _, mode := range execModes {
				if mode == pgx.QueryExecModeCacheDescribe && name == "a column's type changed" {
					continue // pgx documents that it cannot notice
				}
				pool := connect(t, config, maxConns(1), execMode(mode))
				store, key := pg.New(pool), k("%v", mode)
				var n runs
				warmUp(t, store, key)
				end(t, pool, admin, 0)
				_, err := idem.Do(watchdog(t), store, key, "p", func(context.Context) (int64, idem.Status, error) {
					end(t, pool, admin, 1)
					return n.Add(1), 201, nil
				})
				if err != nil {
					t.Errorf("%v, first run: %v", mode, err)
				}
				end(t, pool, admin, 2)
				if res, err := n.do(watchdog(t), store, key, "p"); err != nil || !res.Replayed {
					t.Errorf("%v, replay: %+v, %v", mode, res, err)
				}
				n.want(t, 1)
			}
		})
	}
}

// warmUp prepares the statements of a whole call on the pool's connection.
func warmUp(t *testing.T, store idem.Store, key idem.Key) {
	t.Helper()
	var n runs
	for range 2 {
		n.mustDo(t, store, with(key, " warm-up"), "p")
	}
}

// The server shuts down, or is told to cancel, while the claim is at work: it is sent again, before the closure runs.
func TestClaimInterruptedOnTheServer(t *testing.T) {
	t.Parallel()
	for name, interrupt := range map[string]string{
		"57P01 terminated": "pg_terminate_backend(pid)",
		"57014 cancelled":  "pg_cancel_backend(pid)",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := migrated(t)
			admin := connect(t, config)
			name, change := named(t)
			store := pg.New(connect(t, config, change))
			tx, err := admin.Begin(t.Context()) // the claim waits for it
			if err != nil {
				t.Fatal(err)
			}
			mustExec(t, tx, "LOCK TABLE "+table+" IN ACCESS EXCLUSIVE MODE")
			var n runs
			done := make(chan error, 1)
			go func() {
				_, err := n.do(watchdog(t), store, k("x"), "p")
				done <- err
			}()
			eventually(t, admin, waitsForLock, name)
			mustExec(t, admin, "SELECT "+interrupt+" FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'", name)
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantErr(t, <-done, nil)
			n.want(t, 1)
		})
	}
}

// A server that does not answer is given up when the store's time limit is over, not later.
func TestStalledServer(t *testing.T) {
	t.Parallel()
	proxy, pool, beside := proxied(t, execMode(pgx.QueryExecModeExec))
	store := pg.New(pool)
	var n runs
	n.mustDo(t, store, k("warm-up"), "p")
	release := proxy.Stall()
	began := time.Now()
	_, err := n.do(watchdog(t), store, k("stalled"), "p", idem.WithStoreTimeout(300*time.Millisecond))
	wantErr(t, err, idem.ErrUnavailable)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("Do took %v", took)
	}
	release()
	n.want(t, 1)
	// The claim was made all the same. It is nobody's, and ends with its lease.
	eventually(t, beside, "count(*) = 1 FROM "+table+" WHERE idempotency_key = 'stalled'")
	_, err = n.do(watchdog(t), store, k("stalled"), "p")
	wantErr(t, err, idem.ErrInProgress)
	endLease(t, beside, k("stalled"))
	n.mustDo(t, store, k("stalled"), "p")
}
