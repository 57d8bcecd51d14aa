package storetests_test

import (
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
	caller string        // application_name of the caller's connections
	commit sync.WaitGroup
}

func (r *rival) getInTheWay(key idem.Key) {
	ctx := r.t.Context()
	tx, err := r.pool.Begin(ctx)
	if err != nil {
		r.t.Error(err)
		return
	}
	if _, err := tx.Exec(ctx, `INSERT INTO `+table+` (user_id, scope, idempotency_key, request_hash, hash_version, status,
			token, execution_id, attempt, reclaimed, lease_expires_at, expires_at, purge_after, inserted_at, updated_at)
		VALUES ($1, $2, $3, '', 1, 'processing', gen_random_uuid(), gen_random_uuid(), 1, false,
			now() + interval '1min', now() + interval '1h', now() + interval '1h', now(), now())`,
		key.User, key.Scope, key.Key); err != nil {
		r.t.Errorf("rival: %v", err)
	}
	r.commit.Go(func() {
		eventually(r.t, r.pool, waitsForLock, r.caller)
		if err := tx.Commit(ctx); err != nil {
			r.t.Error(err)
		}
	})
}

const waitsForLock = "count(*) > 0 FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'"

// leave waits until the rival has committed, and deletes its row as a purge would.
func (r *rival) leave() {
	r.commit.Wait()
	mustExec(r.t, r.pool, "DELETE FROM "+table)
}

// named makes the connections of a pool known by the test's name, which it returns.
func named(t *testing.T) (name string, change func(*pgxpool.Config)) {
	name = t.Name()[:min(63, len(t.Name()))]
	return name, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["application_name"] = name }
}

// raced is a store that calls claim before each of its claims and look before each of its look-ups.
func raced(t *testing.T, claim, look func(r *rival)) idem.Store {
	t.Helper()
	config := migrated(t)
	name, change := named(t)
	r := &rival{t: t, pool: connect(t, config), caller: name}
	t.Cleanup(r.commit.Wait)
	return pg.New(&hookedDB{connect(t, config, change), func(sql string, _ []any) {
		switch {
		case strings.Contains(sql, "INSERT INTO"):
			claim(r)
		case strings.HasPrefix(strings.TrimSpace(sql), "SELECT"):
			look(r)
		}
	}})
}

// A's insert loses; the row it lost to is purged; B completes the same key before A reads what it lost to.
func TestB37LoserReadsTheRowThatWon(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		payload any // B's
		want    error
	}{
		"B with the same payload": {"p", nil},
		"B with another payload":  {"other", idem.ErrPayloadMismatch},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var a, b runs
			b.Store(41)
			store := raced(t, func(r *rival) { r.getInTheWay(k("b37")) }, func(r *rival) {
				r.leave()
				if _, err := b.do(r.t.Context(), pg.New(r.pool), k("b37"), test.payload); err != nil {
					t.Error(err)
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

// A claim that loses, over and over, to a row that is gone when it looks, is given up, and runs nothing.
func TestB37ClaimIsBounded(t *testing.T) {
	t.Parallel()
	tries := 0
	store := raced(t, func(r *rival) {
		tries++
		r.getInTheWay(k("b37"))
	}, func(r *rival) { r.leave() })
	var n runs
	_, err := n.do(watchdog(t), store, k("b37"), "p", idem.WithWait(100*time.Millisecond))
	if !errors.Is(err, idem.ErrInProgress) && !errors.Is(err, idem.ErrUnavailable) {
		t.Errorf("error %v, want one that can be retried", err)
	}
	n.want(t, 0)
	if tries > 20 {
		t.Errorf("%d claims were sent", tries)
	}
}

// A take-over waits for the row's lock. What it finds behind it decides: a lease that was renewed is not taken.
func TestB53TakeOverBehindALock(t *testing.T) {
	t.Parallel()
	config := migrated(t)
	pool := connect(t, config, maxConns(20))
	for name, test := range map[string]struct {
		change string
		want   error
		ran    int64
	}{
		"nothing changed":            {"attempt = attempt", nil, 1},
		"the lease was renewed":      {"lease_expires_at = clock_timestamp() + interval '1min'", idem.ErrInProgress, 0},
		"it was completed":           {"status = 'succeeded', completed_at = now(), response_status = 200, response_codec = NULL", idem.ErrResultNotKept, 0},
		"another took it over":       {"token = gen_random_uuid(), attempt = attempt + 1, lease_expires_at = clock_timestamp() + interval '1min'", idem.ErrInProgress, 0},
		"... with other payload":     {"token = gen_random_uuid(), attempt = attempt + 1, lease_expires_at = clock_timestamp() + interval '1min', request_hash = 'x'", idem.ErrPayloadMismatch, 0},
		"it was released":            {"token = NULL", nil, 1},
		"... and the clock set back": {"token = NULL, lease_expires_at = clock_timestamp() + interval '1min'", nil, 1},
		"it was purged":              {"", nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := watchdog(t)
			key := k("%s", name)
			name, change := named(t)
			caller := connect(t, config, change)
			crash(t, pg.New(pool), key, "p")
			endLease(t, pool, key)

			var n runs
			done := make(chan error, 1)
			err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				if test.change == "" {
					mustExec(t, tx, "DELETE FROM "+table+" WHERE idempotency_key = $1", key.Key)
				} else {
					mustExec(t, tx, "UPDATE "+table+" SET "+test.change+" WHERE idempotency_key = $1", key.Key)
				}
				go func() {
					_, err := n.do(ctx, pg.New(caller), key, "p")
					done <- err
				}()
				eventually(t, pool, waitsForLock, name)
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
