package storetests_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
	"github.com/idem-go/idem/pg/pgtest"
)

// A queue makes callers of a store share a statement, and holds that up on the server. Statements go alone until two of
// a kind are under way: these wait for a lock on the table, and whoever comes meanwhile queues behind them. When they
// get through, those queued share a statement, which waits in turn: somebody had asked for the lock before it.
type queue struct {
	t       *testing.T
	store   *pg.Store
	looker  *pgxpool.Pool // for locks and for looking on
	callers sync.WaitGroup
}

const (
	ahead  = 2 // callers whose statements are under way
	queued = 30
	all    = ahead + queued
)

// newQueue returns a queue of a store with pools of its own. After the test no goroutine is left.
func newQueue(t *testing.T, config *pgxpool.Config) *queue {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	q := &queue{t: t}
	sessions := func(c *pgxpool.Config) {
		c.MaxConns = 8
		c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // nothing is prepared before, which would wait, too
		c.ConnConfig.RuntimeParams["application_name"] = q.name()
	}
	q.store, q.looker = pg.New(connect(t, config, sessions)), connect(t, config, sessions)
	return q
}

// name tells the sessions of this test from others. The server takes 63 bytes of it.
func (q *queue) name() string { return q.t.Name()[max(0, len(q.t.Name())-60):] }

// batch calls f for as many callers as are ahead and queued, and returns when those queued wait for their statement.
func (q *queue) batch(f func(caller int)) (release func()) {
	q.t.Helper()
	unlock := q.lock(0)
	for i := range ahead {
		q.callers.Go(func() { f(i) })
	}
	q.waiting("query NOT LIKE '%unnest%'", ahead)
	for i := range queued {
		q.callers.Go(func() { f(ahead + i) })
	}
	release = q.lock(ahead)
	unlock()
	q.waiting("query LIKE '%unnest%'", 1)
	return release
}

// lock locks the table against changes, or, if others that wait are to get through before, asks for that.
func (q *queue) lock(before int) (unlock func()) {
	q.t.Helper()
	tx, err := q.looker.Begin(q.t.Context())
	if err != nil {
		q.t.Fatal(err)
	}
	locked := make(chan error, 1)
	go func() {
		_, err := tx.Exec(q.t.Context(), "LOCK TABLE "+table+" IN SHARE MODE")
		locked <- err
	}()
	if before > 0 {
		q.waiting("query NOT LIKE '%unnest%'", before+1)
	} else if err := <-locked; err != nil {
		q.t.Fatal(err)
	}
	return func() {
		if before > 0 {
			<-locked
		}
		_ = tx.Rollback(context.Background())
	}
}

func (q *queue) waiting(which string, n int) {
	q.t.Helper()
	eventually(q.t, q.looker, `count(*) >= $1 FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = $2 AND wait_event_type = 'Lock' AND `+which, n, q.name())
}

// The server is killed while a statement that callers share is under way on it.
func TestServerKilledInTheMiddleOfABatch(t *testing.T) {
	server := pgtest.Start(t)
	config, err := pgxpool.ParseConfig(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	if err := pg.Migrate(t.Context(), connect(t, config)); err != nil {
		t.Fatal(err)
	}
	t.Run("of claims", func(t *testing.T) {
		ctx, q := watchdog(t), newQueue(t, config)
		var ran [all]runs
		call := func(i int) error {
			res, err := idem.Do(ctx, q.store, k("claims %d", i), i, func(context.Context) (string, idem.Status, error) {
				return fmt.Sprint(i, " ", ran[i].Add(1)), 201, nil
			})
			if err == nil && res.Value != fmt.Sprint(i, " 1") {
				t.Errorf("caller %d got %q", i, res.Value)
			}
			return err
		}
		release := q.batch(func(i int) {
			if err := call(i); err != nil && !errors.Is(err, idem.ErrUnavailable) {
				t.Errorf("caller %d: %v", i, err)
			}
		})
		server.Kill()
		server.Restart()
		release()
		q.callers.Wait()
		for i := range ran {
			if err := call(i); err != nil {
				t.Errorf("caller %d, after the restart: %v", i, err)
			}
			ran[i].want(t, 1)
		}
	})
	t.Run("of completions", func(t *testing.T) {
		ctx, q := watchdog(t), newQueue(t, config)
		var (
			gates            [all]chan struct{}
			claimed, callers sync.WaitGroup
		)
		claimed.Add(all)
		for i := range gates {
			gates[i] = make(chan struct{})
			callers.Go(func() { // and it succeeds: saving is tried again
				res, err := idem.Do(ctx, q.store, k("completions %d", i), i, func(context.Context) (string, idem.Status, error) {
					claimed.Done()
					<-gates[i]
					return fmt.Sprint(i), 201, nil
				})
				if err != nil || res.Value != fmt.Sprint(i) {
					t.Errorf("caller %d got %+v, %v", i, res, err)
				}
			})
		}
		claimed.Wait()
		release := q.batch(func(i int) { close(gates[i]) })
		server.Kill()
		server.Restart()
		release()
		callers.Wait()
		for i := range gates {
			res, err := idem.Do(ctx, q.store, k("completions %d", i), i, func(context.Context) (string, idem.Status, error) {
				t.Errorf("the closure of caller %d runs again", i)
				return "", 0, nil
			})
			if err != nil || res.Value != fmt.Sprint(i) {
				t.Errorf("caller %d, after the restart: %+v, %v", i, res, err)
			}
		}
	})
}

// Of the callers that share a statement one asks for what the server refuses, one goes away, and two have the same key.
func TestBadRequestsAndCallersThatGoInABatch(t *testing.T) {
	const bad, gone, twin, other, late = 10, 11, 12, 13, 14
	for name, spoil := range map[string]string{"nobody asks for what is refused": "fine", "one does": "\xff"} {
		t.Run(name, func(t *testing.T) {
			ctx, q := watchdog(t), newQueue(t, migrated(t))
			var claims [all]idem.ClaimRequest
			var recs [all]idem.Record
			var times [all]time.Time
			var errs [all]error
			for i := range claims {
				claims[i] = idem.ClaimRequest{
					Key: k("%d", i), Hash: idem.Hash{Version: 1, Sum: "sum"}, Token: idem.ID{1, byte(i)}, ExecutionID: idem.ID{2, byte(i)},
					Lease: time.Hour, Retention: time.Hour,
				}
			}
			claims[bad].Hash.Sum, claims[twin].Key = spoil, claims[other].Key

			// share calls f for all of them, and one goes away while the statement is under way.
			share := func(f func(context.Context, int)) {
				leaving, leave := context.WithCancel(ctx)
				left := make(chan struct{})
				release := q.batch(func(i int) {
					if i != gone {
						f(ctx, i)
						return
					}
					f(leaving, i)
					close(left)
				})
				leave()
				<-left
				release()
				q.callers.Wait()
			}
			share(func(ctx context.Context, i int) { recs[i], errs[i] = q.store.Claim(ctx, claims[i]) })
			for i, rec := range recs {
				switch {
				case i == gone:
					wantErr(t, errs[i], context.Canceled)
				case i == bad && spoil != "fine":
					if sqlState(errs[i]) != "22021" {
						t.Errorf("a claim that is not UTF-8 got %+v, %v", rec, errs[i])
					}
				case errs[i] != nil || rec.Token != claims[i].Token && i != twin && i != other:
					t.Errorf("claim %d got %+v, %v", i, rec, errs[i])
				}
			}
			if token := recs[twin].Token; token != recs[other].Token || token != claims[twin].Token && token != claims[other].Token {
				t.Errorf("two claims of one key got %+v and %+v", recs[twin], recs[other])
			}
			eventually(t, q.looker, "NOT EXISTS (SELECT FROM "+table+" WHERE idempotency_key = $1 AND token IS NOT NULL)", k("%d", gone).Key)

			completion := func(i int) idem.CompleteRequest {
				req := idem.CompleteRequest{
					Key: claims[i].Key, Token: recs[i].Token, State: idem.Succeeded, Retention: time.Hour,
					Response: idem.Response{Status: 201, Codec: "json", CodecVersion: 1, Body: fmt.Append(nil, i)},
				}
				switch i {
				case bad:
					req.Response.Codec = spoil
				case late:
					req.Token = idem.ID{3}
				}
				return req
			}
			share(func(ctx context.Context, i int) { times[i], errs[i] = q.store.Complete(ctx, completion(i)) })
			for i, at := range times {
				if i == gone {
					wantErr(t, errs[i], context.Canceled)
					continue
				}
				rec, found, err := q.store.Lookup(ctx, claims[i].Key)
				if err != nil || !found && (i != bad || spoil == "fine") {
					t.Errorf("record %d: %v, %v", i, found, err)
				}
				switch {
				case i == bad && spoil != "fine":
					if errs[i] == nil {
						t.Errorf("the completion of a claim that was not made: %v", at)
					}
				case i == late:
					wantErr(t, errs[i], idem.ErrLeaseLost)
				case i == twin, i == other: // one of them completes, the other one is its repetition
				case errs[i] != nil || !at.Equal(rec.CompletedAt) || string(rec.Response.Body) != fmt.Sprint(i):
					t.Errorf("completion %d: %v, %v, record %+v", i, at, errs[i], rec)
				}
			}
		})
	}
}
