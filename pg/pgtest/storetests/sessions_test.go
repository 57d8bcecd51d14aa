package storetests_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
)

// Settings that a role or a database may have. None may change what the store does, in any exec mode; but pgx reads text
// results only in the default formats, so in other ones the modes that ask for text fail closed.
func TestSessionSettings(t *testing.T) {
	t.Parallel()
	config := migrated(t)
	for _, set := range [][2]string{
		{"datestyle", "SQL, DMY"},
		{"datestyle", "German"},
		{"datestyle", "Postgres, MDY"},
		{"intervalstyle", "sql_standard"},
		{"intervalstyle", "iso_8601"},
		{"bytea_output", "escape"},
		{"timezone", "Asia/Tokyo"},
		{"timezone", "America/St_Johns"},
		{"plan_cache_mode", "force_generic_plan"},
		{"default_transaction_isolation", "serializable"},
		{"default_transaction_isolation", "repeatable read"},
		{"synchronous_commit", "off"},
		{"enable_indexscan", "off"},
	} {
		t.Run(set[0]+"="+set[1], func(t *testing.T) {
			t.Parallel()
			modes := execModes
			if !formats[set[0]] {
				modes = []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeSimpleProtocol}
			}
			for _, mode := range modes {
				pool := connect(t, config, maxConns(1), execMode(mode), func(c *pgxpool.Config) {
					c.ConnConfig.RuntimeParams[set[0]] = set[1]
				})
				text := mode == pgx.QueryExecModeExec || mode == pgx.QueryExecModeSimpleProtocol
				if text && (set[0] == "datestyle" || set[0] == "bytea_output") {
					failsClosed(t, pg.New(pool), k("%v in %v", set, mode))
				} else {
					wholeLife(t, pg.New(pool), fmt.Sprintf("%v in %v", set, mode))
				}
				pool.Close()
			}
		})
	}
}

// formats are the settings that change how values are written.
var formats = map[string]bool{"datestyle": true, "intervalstyle": true, "bytea_output": true, "timezone": true}

// failsClosed makes two calls: what cannot be read is an error, and the closure runs at most once.
func failsClosed(t *testing.T, store idem.Store, key idem.Key) {
	t.Helper()
	var n runs
	for range 2 {
		_, err := n.do(watchdog(t), store, key, "p")
		if err != nil && !errors.Is(err, idem.ErrCorruptRecord) {
			t.Errorf("error %v, want %v", err, idem.ErrCorruptRecord)
		}
	}
	if n.Load() > 1 {
		t.Errorf("the closure ran %d times", n.Load())
	}
}

// wholeLife takes a key through its life and checks each answer.
func wholeLife(t *testing.T, store idem.Store, key string) {
	t.Helper()
	ctx := watchdog(t)
	var n int
	run := func(context.Context) ([]byte, idem.Status, error) { n++; return everyByte(), 201, nil }
	raw := idem.WithCodec(rawBytes{})
	crashed := func(context.Context) ([]byte, idem.Status, error) { return nil, 0, idem.Unknown(nil) }

	type step struct {
		Name     string
		Replayed bool
		Attempt  int
		Err      bool
		Value    []byte
	}
	var got []step
	do := func(name string, fn func(context.Context) ([]byte, idem.Status, error), want error, opts ...idem.Option) {
		res, err := idem.Do(ctx, store, k("%s", key), "p", fn, append(opts, raw)...)
		if wantErr(t, err, want); (err != nil) != (want != nil) {
			t.Errorf("%s, %s: error %v, want %v", key, name, err, want)
		}
		got = append(got, step{name, res.Replayed, res.Attempt, err != nil, res.Value})
	}
	do("crash", crashed, idem.ErrOutcomeUnknown, idem.WithLease(1))
	do("crash again", crashed, idem.ErrOutcomeUnknown)
	do("in progress", run, idem.ErrInProgress)
	mustEnd(t, store, k("%s", key))
	do("run", run, nil)
	do("replay", run, nil)
	want := []step{
		{"crash", false, 1, true, nil}, {"crash again", false, 2, true, nil}, {"in progress", false, 0, true, nil},
		{"run", false, 3, false, everyByte()}, {"replay", true, 3, false, everyByte()},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", key, diff)
	}
}

// mustEnd releases the claim that a key has.
func mustEnd(t *testing.T, store idem.Store, key idem.Key) {
	t.Helper()
	rec, found, err := store.Lookup(watchdog(t), key)
	if err != nil || !found {
		t.Fatalf("look-up: found %v, %v", found, err)
	}
	err = store.Release(watchdog(t), idem.ReleaseRequest{Key: key, Token: rec.Token, Retention: idem.DefaultRetention})
	wantErr(t, err, nil)
}
