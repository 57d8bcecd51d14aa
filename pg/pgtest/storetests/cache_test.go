package storetests_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemcache"
	"github.com/idem-go/idem/pg"
	"github.com/idem-go/idem/pg/pgtest"
	"github.com/idem-go/idem/storetest"
)

func cached(t testing.TB, store idem.Store) *idemcache.Store {
	t.Helper()
	s, err := idemcache.New(store, 16<<20)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Two caches on one table, as in two processes.
func TestSuiteBehindCaches(t *testing.T) {
	t.Parallel()
	config := migrated(t)
	one := func() idem.Store { return cached(t, pg.New(connect(t, config, maxConns(8)))) }
	both := storetest.Spread(one(), one())
	storetest.Run(t, func(testing.TB) idem.Store { return both })
}

func TestB25RoundTripsOfTwoCaches(t *testing.T) {
	t.Parallel()
	ctx := watchdog(t)
	proxy := pgtest.NewProxy(t, migrated(t))
	store := pg.New(connect(t, proxy.Config(), maxConns(1)))
	first, second := cached(t, store), cached(t, store)
	var n runs
	n.mustDo(t, store, k("warm"), "p")
	if _, err := idem.Peek(ctx, store, k("warm"), "p"); err != nil {
		t.Fatal(err)
	}

	key := k("b25")
	want, got := []int{2, 1, 0, 1, 0, 0, 1}, []int{}
	for _, call := range []func(){
		func() { n.mustDo(t, first, key, "p") },
		func() { n.mustDo(t, first, key, "p") },
		func() { n.mustDo(t, first, key, "p") },
		func() { n.mustDo(t, second, key, "p") },
		func() { n.mustDo(t, second, key, "p") },
		func() {
			_, err := n.do(ctx, first, key, "other")
			wantErr(t, err, idem.ErrPayloadMismatch)
		},
		func() {
			replay, err := idem.Peek(ctx, first, key, "p")
			if wantErr(t, err, nil); !replay {
				t.Error("Peek says that Do would not replay")
			}
		},
	} {
		before := proxy.RoundTrips()
		call()
		got = append(got, proxy.RoundTrips()-before)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("round trips (-want +got):\n%s", diff)
	}
	n.want(t, 2)
}

// Calls that go through a cache, and those that must not, meet at the same keys.
func TestCacheBesideTransactions(t *testing.T) {
	t.Parallel()
	ctx := watchdog(t)
	store := pg.New(open(t))
	cache := cached(t, store)
	var n runs

	begin := k("begin")
	for range 3 {
		res, err := idem.Do(ctx, cache, begin, "p", func(ctx context.Context) (int64, idem.Status, error) {
			if _, err := pg.Begin(ctx, store); err != nil {
				return 0, 0, err
			}
			return n.closure(ctx)
		})
		if wantErr(t, err, nil); res.Value != 1 {
			t.Errorf("Do with Begin: %+v", res)
		}
	}

	tx := k("tx")
	for range 2 {
		res, err := pg.DoTx(ctx, store, tx, "p", func(ctx context.Context, _ pgx.Tx) (int64, idem.Status, error) {
			_, err := n.do(ctx, cache, tx, "p") // meets the running transaction
			wantErr(t, err, idem.ErrInProgress)
			return n.closure(ctx)
		})
		if wantErr(t, err, nil); res.Value != 2 {
			t.Errorf("DoTx: %+v", res)
		}
		for range 2 {
			if res := n.mustDo(t, cache, tx, "p"); res.Value != 2 {
				t.Errorf("Do after DoTx: %+v", res)
			}
		}
	}
	n.want(t, 2)
}

func TestCacheRefusesWhatIsBound(t *testing.T) {
	t.Parallel()
	withHandle(t, execModes[:1], func(t *testing.T, db pg.DB, bound idem.Binding, _ *pgxpool.Pool) {
		_, err := idemcache.New(pg.New(db), 1)
		if bound == idem.BoundToNothing {
			wantErr(t, err, nil)
		} else {
			wantErr(t, err, idem.ErrInvalidOption)
		}
	})
}
