package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/memstore"
	"github.com/idem-go/idem/storetest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(testing.TB) idem.Store { return memstore.New() })
}

func key(n int) idem.Key {
	return idem.Key{User: idem.NoUser, Scope: "test", Key: fmt.Sprint(n)}
}

func ok(context.Context) (string, idem.Status, error) { return "ok", 0, nil }

func mustNotRun(t *testing.T) func(context.Context) (string, idem.Status, error) {
	return func(context.Context) (string, idem.Status, error) {
		t.Error("the closure ran")
		return "", 0, nil
	}
}

// wait lets time pass in a synctest bubble.
func wait(d time.Duration) { <-time.After(d) }

func TestAFullStoreRefusesNewKeysAndReplaysOldOnes(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.MaxRecords(2))
	for n := range 2 {
		if _, err := idem.Do(t.Context(), store, key(n), nil, ok); err != nil {
			t.Fatal(err)
		}
	}
	_, err := idem.Do(t.Context(), store, key(2), nil, mustNotRun(t))
	if !errors.Is(err, idem.ErrUnavailable) || !errors.Is(err, memstore.ErrFull) {
		t.Errorf("got error %v, want ErrUnavailable and ErrFull", err)
	}
	res, err := idem.Do(t.Context(), store, key(0), nil, mustNotRun(t))
	if err != nil || !res.Replayed {
		t.Errorf("got %+v, %v, want a replay", res, err)
	}
}

func TestExpiredRecordsGiveWayInAFullStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.MaxRecords(2))
		for n := range 10 {
			if _, err := idem.Do(t.Context(), store, key(n), nil, ok, idem.WithRetention(time.Hour)); err != nil {
				t.Fatalf("key %d: %v", n, err)
			}
			wait(30 * time.Minute)
		}
	})
}

func TestNoBound(t *testing.T) {
	t.Parallel()
	for _, bound := range []int{0, -1} {
		store := memstore.New(memstore.MaxRecords(bound))
		for n := range 1000 {
			if _, err := idem.Do(t.Context(), store, key(n), nil, ok); err != nil {
				t.Fatalf("bound %d, key %d: %v", bound, n, err)
			}
		}
	}
}

func TestB111ExpiredRecordsAreDeleted(t *testing.T) {
	t.Parallel()
	const keys = 3000
	// fill completes most keys and abandons the others.
	fill := func(t *testing.T, store idem.Store, first int) {
		for n := range keys {
			fn := ok
			if n%10 == 0 {
				fn = func(context.Context) (string, idem.Status, error) { return "", 0, idem.Unknown(nil) }
			}
			_, err := idem.Do(t.Context(), store, key(first+n), nil, fn,
				idem.WithLease(time.Second), idem.WithRetention(time.Second))
			if err != nil && !errors.Is(err, idem.ErrOutcomeUnknown) {
				t.Fatal(err)
			}
		}
	}
	t.Run("by RunPurge", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New()
			fill(t, store, 0)
			var deleted atomic.Int64
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_ = idem.RunPurge(ctx, store, time.Second, idem.WithObserver(func(_ context.Context, e idem.Event) {
				deleted.Add(int64(e.Purge.Deleted))
			}))
			if n := deleted.Load(); n != keys {
				t.Errorf("%d of %d records were deleted", n, keys)
			}
		})
	})
	t.Run("by new ones", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New()
			fill(t, store, 0)
			wait(time.Minute)
			fill(t, store, keys)
			done, err := store.Purge(t.Context(), idem.PurgeRequest{Limit: 2 * keys})
			if err != nil || done.Deleted != 0 {
				t.Errorf("%d expired records were still there, error %v", done.Deleted, err)
			}
		})
	})
}

// A purge finds what has expired, whatever the order in which records came and
// changed, and nothing else.
func TestRecordsExpireInTheirOwnOrder(t *testing.T) {
	t.Parallel()
	const keys = 500
	synctest.Test(t, func(t *testing.T) {
		store, began := memstore.New(), time.Now()
		claimOf := func(n int) idem.ClaimRequest {
			return idem.ClaimRequest{Key: key(n), Token: idem.ID{1}, Retention: time.Hour + time.Duration(n%7)*time.Second}
		}
		for _, n := range rand.Perm(keys) {
			if _, err := store.Claim(t.Context(), claimOf(n)); err != nil {
				t.Fatal(err)
			}
		}
		var ends []time.Duration
		for _, n := range rand.Perm(keys) {
			retention, claim, err := time.Duration(n+1)*time.Second, claimOf(n), error(nil)
			switch n % 5 {
			case 0:
				_, err = store.Complete(t.Context(), idem.CompleteRequest{
					Key: claim.Key, Token: claim.Token, State: idem.Succeeded, Retention: retention,
				})
			case 1:
				err = store.Release(t.Context(), idem.ReleaseRequest{Key: claim.Key, Token: claim.Token, Retention: retention})
			case 2:
				err = store.Renew(t.Context(), idem.RenewRequest{Key: claim.Key, Token: claim.Token, Retention: retention})
			case 3: // abandoned, and claimed again
				again := claim
				again.Replace = &idem.Record{State: idem.Processing, Token: claim.Token, Attempt: 1}
				again.Retention = retention
				_, err = store.Claim(t.Context(), again)
			case 4: // abandoned
				retention = claim.Retention
			}
			if err != nil {
				t.Fatal(err)
			}
			ends = append(ends, retention)
		}
		gone := 0
		for range 20 {
			wait(30 * time.Second)
			for _, limit := range []int{3, 2 * keys} {
				due := 0
				for _, end := range ends {
					if end <= time.Since(began) {
						due++
					}
				}
				res, err := store.Purge(t.Context(), idem.PurgeRequest{Limit: limit})
				if want := min(due-gone, limit); err != nil || res.Deleted != want {
					t.Fatalf("after %v: %d deleted, want %d, error %v", time.Since(began), res.Deleted, want, err)
				}
				gone += res.Deleted
			}
		}
		if want := keys - keys/5; gone != want {
			t.Errorf("%d records expired, want %d", gone, want)
		}
	})
}

func TestB113AKeyIsProtectedForItsRetention(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		first, err := idem.Do(t.Context(), store, key(1), nil, ok)
		if err != nil {
			t.Fatal(err)
		}
		if kept := first.ExpiresAt.Sub(first.CompletedAt); kept != idem.DefaultRetention {
			t.Errorf("the result says that it is kept for %v, want %v", kept, idem.DefaultRetention)
		}
		wait(idem.DefaultRetention - time.Second)
		res, err := idem.Do(t.Context(), store, key(1), nil, mustNotRun(t))
		if err != nil || !res.Replayed {
			t.Errorf("a second before the end: got %+v, %v, want a replay", res, err)
		}
		wait(2 * time.Second)
		res, err = idem.Do(t.Context(), store, key(1), nil, ok)
		if err != nil || res.Replayed {
			t.Errorf("a second after the end: got %+v, %v, want a new run", res, err)
		}
	})
}

func TestB58DuplicatesDoNotProlongARecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		for second := range 11 {
			res, err := idem.Do(t.Context(), store, key(1), nil, ok, idem.WithRetention(10*time.Second))
			if fresh := second == 0 || second == 10; err != nil || res.Replayed == fresh {
				t.Errorf("second %d: got %+v, %v", second, res, err)
			}
			wait(time.Second)
		}
	})
}

func TestB13LeasesOfAllLengths(t *testing.T) {
	t.Parallel()
	for _, lease := range []time.Duration{1, 500 * time.Millisecond, 2 * time.Second, 100 * 365 * 24 * time.Hour} {
		t.Run(lease.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				claim := idem.ClaimRequest{Key: key(1), Token: idem.ID{1}, Lease: lease, Retention: time.Hour}
				if _, err := store.Claim(t.Context(), claim); err != nil {
					t.Fatal(err)
				}
				wait(lease - lease/4)
				rec, _, _ := store.Lookup(t.Context(), key(1))
				if rec.LeaseLeft != lease/4 && lease > 1 {
					t.Errorf("%v are left after three quarters of %v", rec.LeaseLeft, lease)
				}
				wait(lease / 4)
				rec, _, _ = store.Lookup(t.Context(), key(1))
				if rec.LeaseLeft != 0 {
					t.Errorf("%v are left of %v at its end", rec.LeaseLeft, lease)
				}
			})
		})
	}
}

func TestB29NothingHangsWithAKeyThatIsHeld(t *testing.T) {
	t.Parallel()
	watchdog := time.AfterFunc(30*time.Second, func() { panic("callers hang") })
	defer watchdog.Stop()
	store := memstore.New()
	var (
		callers sync.WaitGroup
		runs    atomic.Int64
	)
	for range 5000 {
		callers.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, err := idem.Do(ctx, store, key(1), nil, func(ctx context.Context) (string, idem.Status, error) {
				runs.Add(1)
				<-ctx.Done()
				return "", 0, ctx.Err()
			}, idem.WithWait(time.Hour))
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got error %v", err)
			}
		})
	}
	callers.Wait()
	if n := runs.Load(); n != 1 {
		t.Errorf("%d closures ran", n)
	}
}

func TestB29NothingHangsAfterAPanic(t *testing.T) {
	t.Parallel()
	watchdog := time.AfterFunc(30*time.Second, func() { panic("callers hang") })
	defer watchdog.Stop()
	store := memstore.New()
	const keys = 50
	var (
		callers sync.WaitGroup
		panics  atomic.Int64
	)
	for range 2000 {
		callers.Go(func() {
			defer func() {
				if recover() != nil {
					panics.Add(1)
				}
			}()
			_, err := idem.Do(t.Context(), store, key(rand.IntN(keys)), nil,
				func(context.Context) (string, idem.Status, error) { panic("the closure's own") })
			if !errors.Is(err, idem.ErrInProgress) {
				t.Errorf("got error %v", err)
			}
		})
	}
	callers.Wait()
	if n := panics.Load(); n == 0 || n > keys {
		t.Errorf("%d closures panicked for %d keys", n, keys)
	}
}
