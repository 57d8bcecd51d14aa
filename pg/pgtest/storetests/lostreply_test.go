package storetests_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
	"github.com/idem-go/idem/pg/pgtest"
)

// Each statement of a call is executed, and its answer gets lost. The call goes on as if it had come.
func TestB41LostReplies(t *testing.T) {
	t.Parallel()
	config := migrated(t)
	beside := connect(t, config)
	passing := errors.New("try later")
	kept := func(*runs) error { return nil }
	for name, test := range map[string]struct {
		lose    string // the reply to the statement with this text
		stale   bool   // the key has a claim whose lease is over
		fn      func(*runs) error
		status  idem.Status
		attempt int
		replays bool // the next call does
	}{
		"claim":     {"INSERT INTO", false, kept, 201, 1, true},
		"take-over": {"attempt = attempt + 1", true, kept, 201, 2, true},
		"look":      {"INSERT INTO", true, kept, 201, 2, true},
		"complete":  {"SET status = $5", false, kept, 201, 1, true},
		"release":   {"SET token = NULL", false, func(*runs) error { return passing }, 0, 1, false},
	} {
		for _, mode := range execModes[3:] { // the ones that send the text with each execution
			t.Run(name+" in "+mode.String(), func(t *testing.T) {
				t.Parallel()
				lose := test.lose
				if mode == pgx.QueryExecModeSimpleProtocol && lose == "SET status = $5" {
					lose = "SET status =  'succeeded' "
				}
				proxy := pgtest.NewProxy(t, config)
				pool := connect(t, proxy.Config(), execMode(mode))
				key := k("%s %v", name, mode)
				if test.stale {
					crash(t, pg.New(beside), key, "p")
					endLease(t, beside, key)
				}
				lost := proxy.DropReply(func(request []byte) bool {
					return bytes.Contains(request, []byte(lose))
				})
				var n runs
				res, err := idem.Do(watchdog(t), pg.New(pool), key, "p", func(ctx context.Context) (int64, idem.Status, error) {
					n.Add(1)
					return 7, test.status, test.fn(&n)
				})
				wantErr(t, err, test.fn(&n))
				if res.Value != 7 || res.Replayed || res.Attempt != test.attempt {
					t.Errorf("the call got %+v", res)
				}
				select {
				case <-lost:
				default:
					t.Error("no reply was lost")
				}
				n.want(t, 1)
				again := n.mustDo(t, pg.New(pool), key, "p")
				if again.Replayed != test.replays {
					t.Errorf("the next call got %+v", again)
				}
			})
		}
	}
}

// proxied returns a proxy, a pool that leads through it, and a pool beside it, on one schema.
func proxied(t *testing.T, change ...func(*pgxpool.Config)) (proxy *pgtest.Proxy, through, beside *pgxpool.Pool) {
	t.Helper()
	config := migrated(t)
	proxy = pgtest.NewProxy(t, config)
	return proxy, connect(t, proxy.Config(), change...), connect(t, config)
}

// A renewal whose answer gets lost proves nothing: it is sent again, and the run is not disturbed.
func TestB41LostRenewal(t *testing.T) {
	t.Parallel()
	proxy, pool, beside := proxied(t, execMode(pgx.QueryExecModeExec))
	lost := proxy.DropReply(func(request []byte) bool { return bytes.Contains(request, []byte("SET lease_expires_at")) })
	var n runs
	res, err := idem.Do(watchdog(t), pg.New(pool), k("b41"), "p", func(ctx context.Context) (int64, idem.Status, error) {
		<-lost
		eventually(t, beside, "count(*) = 1 FROM "+table+" WHERE updated_at > inserted_at + interval '3s'")
		return n.Add(1), 201, ctx.Err()
	}, idem.WithLease(6*time.Second))
	if err != nil || res.Replayed || res.CompletedAt.IsZero() {
		t.Errorf("%+v, %v", res, err)
	}
}
