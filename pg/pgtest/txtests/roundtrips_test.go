package txtests_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
	"github.com/idem-go/idem/pg/pgtest"
)

// A trip is something whose round trips are counted on the wire, on a connection that has prepared its statements.
type trip struct {
	name string
	want int
	do   func(key idem.Key)
}

func TestRoundTrips(t *testing.T) {
	t.Parallel()
	for _, mode := range execModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			config := migrated(t)
			proxy := pgtest.NewProxy(t, config)
			beside := connect(t, config)
			pool := connect(t, proxy.Config(), maxConns(1), execMode(mode))
			describes := 0 // pgx then describes each statement of a batch, and a statement outside of one, in a round trip of its own
			if mode == pgx.QueryExecModeDescribeExec {
				describes = 1
			}
			want, got := map[string]int{}, map[string]int{}
			for _, warm := range []bool{true, false} { // the first round prepares
				for _, step := range trips(t, pool, beside, describes) {
					before := proxy.RoundTrips()
					step.do(k("warm %v %s", warm, step.name))
					if !warm {
						want[step.name], got[step.name] = step.want, proxy.RoundTrips()-before
					}
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("round trips (-want +got):\n%s", diff)
			}
		})
	}
}

func trips(t *testing.T, pool, beside *pgxpool.Pool, describes int) []trip {
	ctx, s := watchdog(t), pg.New(pool)
	call := func(status idem.Status, fail error, want error, payload string) func(idem.Key) {
		return func(key idem.Key) {
			_, err := pg.DoTx(ctx, s, key, payload, ends(key, status, fail))
			wantErr(t, err, want)
		}
	}
	first := call(201, nil, nil, "p")
	settle := func(f func(idem.Key)) func(idem.Key) {
		return func(key idem.Key) {
			new(runs).mustDoTx(t, pg.New(beside), key, "p")
			f(key)
		}
	}
	d := describes
	return []trip{
		{"bare: begin, insert, commit", 3 + d, func(key idem.Key) {
			wantErr(t, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return pay(ctx, tx, key) }), nil)
		}},
		{"DoTx with one insert", 3 + 3*d, first},
		{"DoTx without a statement", 2 + 2*d, func(key idem.Key) {
			_, err := pg.DoTx(ctx, s, key, "p", func(context.Context, pgx.Tx) (int64, idem.Status, error) { return 0, 0, nil })
			wantErr(t, err, nil)
		}},
		{"replay", 2 + d, settle(first)},
		{"mismatch", 2 + d, settle(call(201, nil, idem.ErrPayloadMismatch, "another"))},
		{"in progress", 2 + d, func(key idem.Key) {
			crash(t, pg.New(beside), key, "p")
			call(201, nil, idem.ErrInProgress, "p")(key)
		}},
		{"release", 3 + 2*d, call(503, errNoneLeft, errNoneLeft, "p")},
		{"kept failure", 4 + 3*d, call(409, errNoneLeft, errNoneLeft, "p")},
		{"reclaim", 3 + 3*d, func(key idem.Key) {
			crash(t, pg.New(beside), key, "p")
			endLease(t, beside, key)
			first(key)
		}},
		{"Do with a transaction of pg.Begin and one insert", 4 + 4*d, func(key idem.Key) {
			_, err := doWithBegin(ctx, s, key, nil, nil)
			wantErr(t, err, nil)
		}},
		{"Do with an insert of its own", 3 + 3*d, func(key idem.Key) {
			_, err := idem.Do(ctx, s, key, "p", func(ctx context.Context) (int64, idem.Status, error) {
				return 0, 201, pay(ctx, pool, key)
			})
			wantErr(t, err, nil)
		}},
		{"DoTx in a caller's own transaction: savepoint, insert, release", 5 + 3*d, func(key idem.Key) {
			wantErr(t, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				_, err := pg.DoTx(ctx, pg.New(tx), key, "p", ends(key, 201, nil))
				return err
			}), nil)
		}},
	}
}
