package txtests_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
	"github.com/idem-go/idem/pg/pgtest"
)

// A breach is where a caller is cut off: at a point in its process or at a request on the wire, which gets lost, or is
// carried out while its answer gets lost.
type breach struct {
	name    string
	point   string
	request string // a text in it
	lost    bool
}

var breaches = []breach{
	{name: "the begin is lost", request: "pg_try_advisory_xact_lock(", lost: true},
	{name: "after the begin and the lock, unanswered", request: "pg_try_advisory_xact_lock("},
	{name: beforeInsert, point: beforeInsert},
	{name: "the closure's statement is lost", request: "INSERT INTO payments", lost: true},
	{name: "after the closure's statement, unanswered", request: "INSERT INTO payments"},
	{name: afterInsert, point: afterInsert},
	{name: "the finish and the COMMIT are lost", request: "COMMIT", lost: true},
	{name: "after the finish and the COMMIT, unanswered", request: "COMMIT"},
}

// watch makes the proxy call f when the request comes by, once, and lose it or its answer.
func (b breach) watch(proxy *pgtest.Proxy, f func()) {
	done := false
	proxy.DropReply(func(request []byte) bool {
		if done || !bytes.Contains(request, []byte(b.request)) {
			return false
		}
		done = true
		f()
		if b.lost {
			proxy.Cut()
		}
		return !b.lost
	})
}

func TestAKilledCallerLeavesAllOrNothing(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{kindDoTx, kindBegin} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			config := migrated(t)
			pool := connect(t, config)
			for i, b := range append(breaches, breach{name: afterCall, point: afterCall}) {
				t.Run(b.name, func(t *testing.T) {
					key := k("killed %d", i)
					kill(t, pgtest.NewProxy(t, config), kind, key, b)
					settledDown(t, pool)
					n := effects(t, pool, key)
					wantEffects(t, pool, key, n)
					if all := b.point == afterCall || b.request == "COMMIT" && !b.lost; n > 1 || all != (n == 1) {
						t.Errorf("%d effects", n)
					}
					comesAgain(t, pool, kind, key, n == 1)
				})
			}
		})
	}
}

// kill has a child make a call, and kills it at the breach.
func kill(t *testing.T, proxy *pgtest.Proxy, kind string, key idem.Key, b breach) {
	t.Helper()
	if b.request == "" {
		v := startVictim(t, proxy.Config(), kind, key, b.point)
		if said := <-v.said; said != "at "+b.point {
			t.Fatalf("the child says %s", said)
		}
		v.kill()
		return
	}
	var v *victim
	started := make(chan struct{})
	b.watch(proxy, func() { <-started; v.kill() })
	v = startVictim(t, proxy.Config(), kind, key, "")
	close(started)
	for said := range v.said {
		t.Errorf("the child says %s", said)
	}
}

func TestACutConnectionLeavesAllOrNothingAndTheCallerKnows(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{kindDoTx, kindBegin} {
		for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
			t.Run(kind+", "+mode.String(), func(t *testing.T) {
				t.Parallel()
				config := migrated(t)
				pool := connect(t, config)
				for i, b := range breaches {
					proxy := pgtest.NewProxy(t, config)
					through := connect(t, proxy.Config(), execMode(mode))
					key := k("cut %d", i)
					if b.request != "" {
						b.watch(proxy, func() {})
					}
					_, err := call(watchdog(t), pg.New(through), kind, key, func(point string) {
						if point == b.point {
							proxy.Cut()
						}
					})
					settledDown(t, pool)
					n := effects(t, pool, key)
					t.Logf("%s: %d effects, %v", b.name, n, err)
					wantEffects(t, pool, key, n)
					wantTruth(t, b.name, err, n)
					if kind == kindDoTx && errors.Is(err, idem.ErrOutcomeUnknown) {
						t.Errorf("%s: the outcome could be known: %v", b.name, err)
					}
					wantReleased(t, through)
					comesAgain(t, pool, kind, key, n == 1)
				}
			})
		}
	}
}

// wantTruth checks what a caller was told: a success means that the work is done, an error that it is not.
func wantTruth(t *testing.T, when string, err error, effects int) {
	t.Helper()
	switch {
	case errors.Is(err, idem.ErrOutcomeUnknown):
	case err == nil && effects != 1, err != nil && effects != 0:
		t.Errorf("%s: the caller was told %v, but there are %d effects", when, err, effects)
	}
}

// settledDown returns when no other session is at work any more: the server notices with some delay that a client is gone.
func settledDown(t *testing.T, db querier) {
	t.Helper()
	eventually(t, db, `NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = current_setting('application_name')
		AND pid <> pg_backend_pid() AND xact_start IS NOT NULL)`)
}

// comesAgain checks that the key is not stuck: the next call replays, or does the work.
func comesAgain(t *testing.T, pool *pgxpool.Pool, kind string, key idem.Key, replayed bool) {
	t.Helper()
	if !replayed && kind == kindBegin { // its claim was committed before
		mustExec(t, pool, "UPDATE "+table+" SET lease_expires_at = clock_timestamp() WHERE idempotency_key = $1", key.Key)
	}
	res, err := call(watchdog(t), pg.New(pool), kind, key, func(string) {})
	if err != nil || res.Value != "paid" || res.Replayed != replayed {
		t.Errorf("the next call gets %+v, %v", res, err)
	}
	wantEffects(t, pool, key, 1)
}
