package idemcache_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemcache"
	"github.com/idem-go/idem/memstore"
	"github.com/idem-go/idem/storetest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	t.Run("one process", func(t *testing.T) {
		storetest.Run(t, func(t testing.TB) idem.Store { return cached(t, memstore.New()) })
	})
	t.Run("two processes", func(t *testing.T) {
		storetest.Run(t, func(t testing.TB) idem.Store {
			store := memstore.New()
			return storetest.Spread(cached(t, store), cached(t, store))
		})
	})
}

func TestB25EveryProcessReplaysWhatIsDone(t *testing.T) {
	t.Parallel()
	shared := &counted{Store: memstore.New()}
	first, second := cached(t, shared), cached(t, shared)
	for _, store := range []idem.Store{first, second} { // what they see in progress must not stay with them
		_, err := idem.Do(t.Context(), first, key, "payload", func(ctx context.Context) (string, idem.Status, error) {
			_, err := idem.Do(ctx, store, key, "payload", returns("twice"))
			if !errors.Is(err, idem.ErrInProgress) {
				t.Errorf("got error %v, want ErrInProgress", err)
			}
			return "", 0, errors.New("released")
		})
		if err == nil {
			t.Fatal("no error")
		}
	}
	run(t, first, key)
	asked := shared.asked.Load()
	for _, store := range []idem.Store{first, second, first, second, first} {
		replays(t, store, key)
	}
	if n := shared.asked.Load() - asked; n != 2 {
		t.Errorf("the store was asked %d times for 5 replays, want once by each process", n)
	}
}

func TestB53MismatchThroughTheCache(t *testing.T) {
	t.Parallel()
	shared := &counted{Store: memstore.New()}
	store := cached(t, shared)
	run(t, store, key)
	for range 3 {
		replays(t, store, key)
		res, err := idem.Do(t.Context(), store, key, "another payload", returns("twice"))
		if !errors.Is(err, idem.ErrPayloadMismatch) || res != (idem.Result[string]{}) {
			t.Errorf("got %+v, %v, want ErrPayloadMismatch and nothing else", res, err)
		}
	}
	if n := shared.asked.Load(); n != 2 {
		t.Errorf("the store was asked %d times, want 2: the rest is to go through the cache", n)
	}
}

func TestB58ReplaysDoNotProlongARecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := cached(t, memstore.New())
		run(t, store, key, idem.WithRetention(10*time.Second))
		expires := replays(t, store, key).ExpiresAt
		for range 9 {
			wait(time.Second)
			if res := replays(t, store, key); !res.ExpiresAt.Equal(expires) {
				t.Fatalf("expires at %v, want %v", res.ExpiresAt, expires)
			}
		}
		wait(time.Second)
		run(t, store, key)
	})
}

func TestB89AFailureKeepsItsCodeAndMissesAreAsked(t *testing.T) {
	t.Parallel()
	errOutOfStock := errors.New("out of stock")
	known := idem.WithErrors(map[string]error{"out_of_stock": errOutOfStock})
	store := cached(t, memstore.New())
	for i := range 4 {
		if i == 3 {
			store.Forget(func(idem.Key) bool { return true })
		}
		res, err := idem.Do(t.Context(), store, key, "payload", func(context.Context) (string, idem.Status, error) {
			return "none", 409, errOutOfStock
		}, known)
		if !errors.Is(err, errOutOfStock) || res.Status != 409 || res.Value != "none" || res.Replayed != (i > 0) {
			t.Errorf("call %d: got %+v, %v", i, res, err)
		}
	}
}

// The store says what is left when it answers, which may take a while to arrive.
func TestAnAnswerOnTheWayDoesNotGainTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := &counted{Store: memstore.New()}
		store := cached(t, slow{shared, 40 * time.Minute})
		req := settled(t, shared, time.Hour)
		first := claim(t, store, req)
		if first.ExpiresIn != time.Hour {
			t.Fatalf("%v are left, want an hour", first.ExpiresIn)
		}
		wait(19 * time.Minute)
		asked := shared.asked.Load()
		want := first
		want.ExpiresIn = time.Minute
		if diff := cmp.Diff(want, claim(t, store, req)); diff != "" || shared.asked.Load() != asked {
			t.Errorf("the store was asked %d times, the record (-want +got):\n%s", shared.asked.Load()-asked, diff)
		}
		wait(time.Minute)
		if rec := claim(t, store, req); !rec.Expired() || shared.asked.Load() == asked {
			t.Errorf("an expired record was served from memory: %+v", rec)
		}
	})
}

func TestWhatIsHandedOutIsNotWhatIsKept(t *testing.T) {
	t.Parallel()
	store := cached(t, memstore.New())
	req := settled(t, store, time.Hour)
	for range 3 {
		r := claim(t, store, req).Response
		if string(r.Body) != `"original"` || r.Error.Code != "original" {
			t.Fatalf("the record is now %q, %q", r.Body, r.Error.Code)
		}
		copy(r.Body, "scribble")
		r.Error.Code = "scribble"
	}
}

func TestReplaysGoOnWhileTheStoreIsDown(t *testing.T) {
	t.Parallel()
	shared := &counted{Store: memstore.New()}
	store := cached(t, shared)
	run(t, store, key)
	replays(t, store, key)
	shared.down.Store(true)
	if _, err := idem.Peek(t.Context(), store, key, "payload"); !errors.Is(err, errDown) {
		t.Errorf("Peek: got error %v, want the store's", err)
	}
	replays(t, store, key)
	_, err := idem.Do(t.Context(), store, numbered(2), "payload", returns("run"))
	if !errors.Is(err, idem.ErrUnavailable) {
		t.Errorf("got error %v, want ErrUnavailable", err)
	}
}

func TestALookSetsRightWhatWasDeletedByHand(t *testing.T) {
	t.Parallel()
	shared := &replaceable{memstore.New()}
	store := cached(t, shared)
	run(t, store, key)
	replays(t, store, key)
	shared.Store = memstore.New()
	replays(t, store, key)
	if replay, err := idem.Peek(t.Context(), store, key, "payload"); replay || err != nil {
		t.Errorf("Peek: got %v, %v, want that Do would run", replay, err)
	}
	run(t, store, key)
}

type replaceable struct{ idem.Store }

func TestForget(t *testing.T) {
	t.Parallel()
	shared := &counted{Store: memstore.New()}
	store := cached(t, shared)
	others := key
	others.User = "bob"
	for _, k := range []idem.Key{key, others} {
		run(t, store, k)
		replays(t, store, k)
	}
	store.Forget(func(k idem.Key) bool { return k.User == "alice" })
	shared.down.Store(true)
	replays(t, store, others)
	if _, err := idem.Do(t.Context(), store, key, "payload", returns("run")); !errors.Is(err, idem.ErrUnavailable) {
		t.Errorf("got error %v, want ErrUnavailable: the record was to be forgotten", err)
	}
}

// An answer that left the store before the record was deleted must not bring it back.
func TestForgetReachesAnswersOnTheWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := &counted{Store: memstore.New()}
		store := cached(t, slow{shared, time.Minute})
		req := settled(t, shared, time.Hour)
		go func() {
			wait(time.Second)
			store.Forget(func(idem.Key) bool { return true })
		}()
		claim(t, store, req)
		asked := shared.asked.Load()
		if claim(t, store, req); shared.asked.Load() == asked {
			t.Error("the record is still there")
		}
	})
}

type bound struct {
	idem.Store
	to idem.Binding
}

func (b bound) Bound() idem.Binding { return b.to }

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		store idem.Store
		bytes int64
	}{
		"no store":                     {nil, 1},
		"no bytes":                     {memstore.New(), 0},
		"less than none":               {memstore.New(), -1},
		"a store over a connection":    {bound{memstore.New(), idem.BoundToConn}, 1},
		"a store within a transaction": {bound{memstore.New(), idem.BoundToTx}, 1},
	} {
		if s, err := idemcache.New(c.store, c.bytes); s != nil || !errors.Is(err, idem.ErrInvalidOption) {
			t.Errorf("%s: got %v, %v, want ErrInvalidOption", name, s, err)
		}
	}
	if _, err := idemcache.New(bound{memstore.New(), idem.BoundToNothing}, 1); err != nil {
		t.Errorf("a store over a pool: %v", err)
	}
}

// A bubble ends only when all of its goroutines have.
func TestNoGoroutineIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, err := idemcache.New(memstore.New(), 10_000)
		if err != nil {
			t.Fatal(err)
		}
		for n := range 100 { // with evictions
			run(t, store, numbered(n), idem.WithRetention(time.Minute))
			replays(t, store, numbered(n))
			wait(time.Second)
		}
	})
}

func TestConcurrentCallsOfTwoProcesses(t *testing.T) {
	t.Parallel()
	shared := memstore.New()
	small, err := idemcache.New(shared, 20_000) // evicts all the time
	if err != nil {
		t.Fatal(err)
	}
	stores := []*idemcache.Store{cached(t, shared), small}
	var runs [100]atomic.Int64
	var group sync.WaitGroup
	for i := range 16 {
		group.Go(func() {
			for range 500 {
				n := rand.IntN(len(runs))
				store := stores[rand.IntN(len(stores))]
				res, err := idem.Do(t.Context(), store, numbered(n), "payload", func(context.Context) (int, idem.Status, error) {
					runs[n].Add(1)
					return n, 200, nil
				}, idem.WithWait(time.Minute))
				if err != nil || res.Value != n {
					t.Errorf("got %+v, %v", res, err)
				}
				if i == 0 && n == 0 {
					store.Forget(func(k idem.Key) bool { return len(k.Key) == 1 })
				}
			}
		})
	}
	group.Wait()
	for n := range runs {
		if r := runs[n].Load(); r > 1 {
			t.Errorf("key %d ran %d times", n, r)
		}
	}
}
