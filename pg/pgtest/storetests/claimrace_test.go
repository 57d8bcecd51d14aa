package storetests_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
)

// A rival makes a claim lose between its look and its insert: it holds the key's row uncommitted until the claim waits.
type rival struct {
	t      *testing.T
	pool   *pgxpool.Pool // of the rival
	name   string        // application_name of the caller's connections
	key    idem.Key
	commit sync.WaitGroup
}

func (r *rival) getInTheWay() {
	ctx := r.t.Context()
	tx, err := r.pool.Begin(ctx)
	if err != nil {
		r.t.Error(err)
		return
	}
	var n runs
	if _, err := n.do(ctx, pg.New(tx), r.key, "another rival's"); err != nil {
		r.t.Errorf("rival: %v", err)
	}
	r.commit.Go(func() {
		eventually(r.t, r.pool, "count(*) > 0 FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'", r.name)
		if err := tx.Commit(ctx); err != nil {
			r.t.Error(err)
		}
	})
}

// leave waits until the rival has committed, and deletes its row as a purge would.
func (r *rival) leave() {
	r.commit.Wait()
	mustExec(r.t, r.pool, "DELETE FROM "+table)
}

// raced is a store on which before is called before each of its claims, numbered from 1.
func raced(t *testing.T, key idem.Key, before func(r *rival, n int)) idem.Store {
	t.Helper()
	config := migrated(t)
	config.MinConns, config.MaxConns = 0, 10
	r := &rival{t: t, pool: connect(t, config), name: t.Name()[:min(63, len(t.Name()))], key: key}
	t.Cleanup(r.commit.Wait)
	caller := connect(t, config, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["application_name"] = r.name })
	claims := 0
	return pg.New(&hookedDB{caller, func(sql string, _ []any) {
		if strings.Contains(sql, "INSERT INTO") {
			claims++; t.Logf("claim %d", claims)
			before(r, claims)
		}
	}})
}

// A's insert loses; the row it lost to is purged; B completes the same key; A's claim loses again.
func TestB37LoserReadsTheRowThatWon(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		payload any // B's
		want    error
	}{
		"B with the same payload":    {"p", nil},
		"B with another payload":     {"other", idem.ErrPayloadMismatch},
		"B, with A losing once more": {"p", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var a, b runs
			b.Store(41)
			store := raced(t, k("b37"), func(r *rival, n int) {
				again := strings.HasSuffix(name, "once more")
				switch {
				case n == 1, n == 2 && again:
					if n > 1 {
						r.leave()
					}
					r.getInTheWay()
				case n == 2, n == 3:
					r.leave()
					if _, err := b.do(r.t.Context(), pg.New(r.pool), k("b37"), test.payload); err != nil {
						t.Error(err)
					}
				}
			})
			res, err := a.do(watchdog(t), store, k("b37"), "p")
			wantErr(t, err, test.want)
			if test.want == nil && (!res.Replayed || res.Value != 42) {
				t.Errorf("A got %+v, want B's result", res)
			}
			a.want(t, 0)
		})
	}
}

// A claim that loses to a row that is gone the next moment, over and over, is given up, and runs nothing.
func TestB37ClaimIsBounded(t *testing.T) {
	t.Parallel()
	tries := 0
	store := raced(t, k("b37"), func(r *rival, n int) {
		if n > 1 {
			r.leave()
		}
		tries = n
		r.getInTheWay()
	})
	var n runs
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err := n.do(ctx, store, k("b37"), "p")
	wantErr(t, err, idem.ErrUnavailable)
	n.want(t, 0)
	if tries > 20 {
		t.Errorf("%d claims were sent", tries)
	}
}

// A take-over waits for the row's lock. What it finds behind it decides: a lease that was renewed is not taken.
func TestB53TakeOverBehindALock(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change string
		want   error
		ran    int64
	}{
		"nothing changed":        {"attempt = attempt", nil, 1},
		"the lease was renewed":  {"lease_expires_at = clock_timestamp() + interval '1min'", idem.ErrInProgress, 0},
		"it was completed":       {"status = 'succeeded', completed_at = now(), response_status = 200, response_codec = NULL", idem.ErrResultNotKept, 0},
		"another took it over":   {"token = gen_random_uuid(), attempt = attempt + 1, lease_expires_at = clock_timestamp() + interval '1min'", idem.ErrInProgress, 0},
		"... with other payload": {"token = gen_random_uuid(), attempt = attempt + 1, lease_expires_at = clock_timestamp() + interval '1min', request_hash = 'x'", idem.ErrPayloadMismatch, 0},
		"it was released":        {"token = NULL", nil, 1},
		"it was purged":          {"", nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := watchdog(t)
			config := migrated(t)
			pool := connect(t, config)
			name := t.Name()[:min(63, len(t.Name()))]
			caller := connect(t, config, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["application_name"] = name })
			crash(t, pg.New(pool), k("stale"), "p")
			endLease(t, pool, k("stale"))

			var n runs
			done := make(chan error, 1)
			err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				if test.change == "" {
					mustExec(t, tx, "DELETE FROM "+table)
				} else {
					mustExec(t, tx, "UPDATE "+table+" SET "+test.change)
				}
				go func() {
					_, err := n.do(ctx, pg.New(caller), k("stale"), "p")
					done <- err
				}()
				eventually(t, pool, "count(*) > 0 FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'", name)
				return nil
			})
			wantErr(t, err, nil)
			if err := <-done; !errors.Is(err, test.want) {
				t.Errorf("error %v, want %v", err, test.want)
			}
			n.want(t, test.ran)
		})
	}
}
