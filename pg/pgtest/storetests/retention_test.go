package storetests_test

import (
	"context"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
)

// A failure that was recorded after the lease had ended is kept for its whole retention.
func TestB105LateFailureOutlivesAPurge(t *testing.T) {
	t.Parallel()
	pool := open(t)
	store := pg.New(pool)
	ctx := watchdog(t)
	refused := publicError("no")
	retention := idem.WithRetention(time.Hour)
	_, err := idem.Do(ctx, store, k("late"), "p", func(context.Context) (int, idem.Status, error) {
		endLease(t, pool, k("late"))
		return 0, 422, refused
	}, retention)
	wantErr(t, err, refused)
	if res, err := store.Purge(ctx, idem.PurgeRequest{Limit: 10}); err != nil || res.Deleted != 0 {
		t.Errorf("purge: %+v, %v", res, err)
	}
	var n runs
	res, err := n.do(ctx, store, k("late"), "p", retention)
	if !res.Replayed || err == nil || res.Status != 422 {
		t.Errorf("%+v, %v, want the recorded failure", res, err)
	}
	if got := res.ExpiresAt.Sub(res.CompletedAt); got != time.Hour {
		t.Errorf("retention of %v from completion, want 1h", got)
	}
	n.want(t, 0)
}

// Short of its retention a record is replayed; past it the key is new. What callers are told agrees.
func TestB113BeforeAndAfterTheRetention(t *testing.T) {
	t.Parallel()
	pool := open(t)
	store := pg.New(pool)
	var n runs
	first := n.mustDo(t, store, k("x"), "p", idem.WithRetention(14*24*time.Hour))
	move := func(to string) {
		mustExec(t, pool, `UPDATE `+table+` SET expires_at = expires_at - d, purge_after = purge_after - d,
			completed_at = completed_at - d, inserted_at = inserted_at - d
			FROM (SELECT expires_at - clock_timestamp() - $1::interval AS d FROM `+table+`) AS until`, to)
	}
	move("1s")
	res := n.mustDo(t, store, k("x"), "p")
	if !res.Replayed || res.ExecutionID != first.ExecutionID {
		t.Errorf("a second before: %+v", res)
	}
	if left := query[float64](t, pool, "SELECT extract(epoch FROM $1 - clock_timestamp())", res.ExpiresAt); left > 1 {
		t.Errorf("the result says that it has %v s left", left)
	}
	move("-1s")
	if res = n.mustDo(t, store, k("x"), "other"); res.Replayed || res.ExecutionID == first.ExecutionID {
		t.Errorf("a second after: %+v", res)
	}
	n.want(t, 2)
}

// A key that is derived from an entity is a retry protection, not a uniqueness rule.
func TestB130KeyOfAnEntity(t *testing.T) {
	t.Parallel()
	pool := open(t)
	store := pg.New(pool)
	var n runs
	key := k("customer-42")
	n.mustDo(t, store, key, "P1")
	if res := n.mustDo(t, store, key, "P1"); !res.Replayed {
		t.Error("the same call was not replayed")
	}
	_, err := n.do(watchdog(t), store, key, "P2")
	wantErr(t, err, idem.ErrPayloadMismatch)
	for _, purge := range []bool{false, true} {
		expire(t, pool)
		if purge {
			_, err := store.Purge(watchdog(t), idem.PurgeRequest{Limit: 10})
			wantErr(t, err, nil)
		}
		if res := n.mustDo(t, store, key, "P1"); res.Replayed {
			t.Errorf("replayed after the retention, purged: %v", purge)
		}
	}
	n.want(t, 3)
}

// Records of a short life, abandoned claims among them, are gone after the purge of the quick start.
func TestB111TheTableEmpties(t *testing.T) {
	t.Parallel()
	keys := 800
	if large {
		keys = 100_000
	}
	pool := open(t)
	store := pg.New(pool)
	ctx := watchdog(t)
	race(8, func(caller int) {
		for i := range keys / 8 {
			key, short := k("%d/%d", caller, i), idem.Options(idem.WithRetention(time.Second), idem.WithLease(100*time.Millisecond))
			_, err := idem.Do(ctx, store, key, "p", func(context.Context) (int, idem.Status, error) {
				if i%10 == 0 { // a tenth of them is abandoned
					return 0, 0, idem.Unknown(nil)
				}
				return i, 201, nil
			}, short)
			if (err != nil) != (i%10 == 0) {
				t.Errorf("%s: %v", key.Key, err)
			}
		}
	})
	if got := count(t, pool); got != keys {
		t.Errorf("%d rows before the purge, want %d", got, keys)
	}
	mustExec(t, pool, "SELECT pg_sleep_until(max(expires_at)) FROM "+table)
	purging, stop := context.WithCancel(ctx)
	defer stop()
	deleted := 0
	_ = idem.RunPurge(purging, store, time.Hour, idem.WithObserver(func(_ context.Context, e idem.Event) {
		if deleted += e.Purge.Deleted; e.Kind == idem.EventPurged && e.Purge.Overdue <= 0 {
			t.Errorf("the backlog is not told: %+v", e)
		}
		if e.Err != nil || deleted == keys {
			stop()
		}
	}))
	if deleted != keys || count(t, pool) != 0 {
		t.Errorf("%d records were purged, %d are left", deleted, count(t, pool))
	}
}
