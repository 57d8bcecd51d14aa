package storetests_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
	"github.com/idem-go/idem/pg/pgtest"
)

// Round trips on the wire, on a connection that has prepared its statements.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	ctx := watchdog(t)
	config := migrated(t)
	proxy := pgtest.NewProxy(t, config)
	store := pg.New(connect(t, proxy.Config(), maxConns(1)))
	beside := connect(t, config)
	var n runs
	passing := func(context.Context) (int64, idem.Status, error) { return 0, 503, errors.New("try later") }

	steps := []struct {
		name string
		want int
		do   func(key idem.Key)
	}{
		{"first run", 2, func(key idem.Key) { n.mustDo(t, store, key, "p") }},
		{"replay", 1, func(key idem.Key) { n.mustDo(t, store, key, "p") }},
		{"mismatch", 1, func(key idem.Key) {
			_, err := n.do(ctx, store, key, "other")
			wantErr(t, err, idem.ErrPayloadMismatch)
		}},
		{"look-up", 1, func(key idem.Key) {
			replay, err := idem.Peek(ctx, store, key, "p")
			if wantErr(t, err, nil); !replay {
				t.Error("Peek says that Do would not replay")
			}
		}},
		{"interrupted run: no release", 1, func(key idem.Key) { crash(t, store, with(key, "held"), "p") }},
		{"in progress", 1, func(key idem.Key) {
			_, err := n.do(ctx, store, with(key, "held"), "p")
			wantErr(t, err, idem.ErrInProgress)
		}},
		{"reclaim", 3, func(key idem.Key) { // claim, take over, complete
			endLease(t, beside, with(key, "held"))
			n.mustDo(t, store, with(key, "held"), "p")
		}},
		{"released run", 2, func(key idem.Key) {
			_, err := idem.Do(ctx, store, with(key, "retry"), "p", passing)
			if err == nil || errors.Is(err, idem.ErrUnavailable) {
				t.Errorf("error %v, want the closure's", err)
			}
		}},
		{"retry after the release", 3, func(key idem.Key) { n.mustDo(t, store, with(key, "retry"), "p") }},
		{"purge", 1, func(idem.Key) {
			expire(t, beside)
			res, err := store.Purge(ctx, idem.PurgeRequest{Limit: 1000})
			if err != nil || res.Deleted != 3 {
				t.Errorf("purged %+v, %v, want 3 records", res, err)
			}
		}},
	}
	want, got := map[string]int{}, map[string]int{}
	for _, warm := range []bool{true, false} { // the first round prepares
		for _, step := range steps {
			before := proxy.RoundTrips()
			step.do(k("warm %v", warm))
			if !warm {
				want[step.name], got[step.name] = step.want, proxy.RoundTrips()-before
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("round trips (-want +got):\n%s", diff)
	}
}

func with(key idem.Key, suffix string) idem.Key {
	key.Key += suffix
	return key
}
