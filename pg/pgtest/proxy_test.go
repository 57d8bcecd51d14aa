package pgtest

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
)

// openProxy returns a proxy, a pool that leads through it, of one connection, and a pool beside it. Both live in a
// schema that holds the table numbers.
func openProxy(t *testing.T, mode pgx.QueryExecMode) (proxy *Proxy, through, beside *pgxpool.Pool) {
	t.Helper()
	config := Config(t)
	beside = connect(t, config)
	mustExec(t, beside, "create table numbers (n int)")
	config.MaxConns = 1
	config.ConnConfig.DefaultQueryExecMode = mode
	proxy = NewProxy(t, config)
	return proxy, connect(t, proxy.Config()), beside
}

func TestProxyCountsRoundTrips(t *testing.T) {
	t.Parallel()
	batch := func() *pgx.Batch {
		b := new(pgx.Batch)
		for n := range 3 {
			b.Queue("insert into numbers values ($1)", n)
		}
		return b
	}
	for name, test := range map[string]struct {
		mode pgx.QueryExecMode
		want map[string]int
	}{
		"prepared statements": {pgx.QueryExecModeCacheStatement, map[string]int{"first": 2, "second": 1, "batch": 1, "copy": 2, "tx": 3}},
		"simple protocol":     {pgx.QueryExecModeSimpleProtocol, map[string]int{"first": 1, "second": 1, "batch": 1, "copy": 2, "tx": 3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, pool, beside := openProxy(t, test.mode)
			ctx := t.Context()
			got := make(map[string]int)
			count := func(name string, f func() error) {
				t.Helper()
				before := proxy.RoundTrips()
				if err := f(); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				got[name] = proxy.RoundTrips() - before
			}
			insert := func() error {
				_, err := pool.Exec(ctx, "insert into numbers values ($1)", 1)
				return err
			}
			count("first", insert)
			count("second", insert)
			count("batch", func() error { return pool.SendBatch(ctx, batch()).Close() })
			count("copy", func() error {
				rows := pgx.CopyFromSlice(20_000, func(i int) ([]any, error) { return []any{i}, nil })
				_, err := pool.CopyFrom(ctx, pgx.Identifier{"numbers"}, []string{"n"}, rows)
				return err
			})
			count("tx", func() error {
				return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					_, err := tx.Exec(ctx, "insert into numbers values ($1)", 1)
					return err
				})
			})
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("round trips (-want +got):\n%s", diff)
			}
			if got, want := query[int](t, beside, "select count(*) from numbers"), 2+3+20_000+1; got != want {
				t.Errorf("%d rows, want %d", got, want)
			}
		})
	}
}

func TestProxyDropsAReply(t *testing.T) {
	t.Parallel()
	insert := func(n int) func(context.Context, *pgxpool.Pool) error {
		return func(ctx context.Context, pool *pgxpool.Pool) error {
			_, err := pool.Exec(ctx, "insert into numbers values ($1)", n)
			return err
		}
	}
	containing := func(s string) func(*Proxy) func([]byte) bool {
		return func(*Proxy) func([]byte) bool {
			return func(request []byte) bool { return bytes.Contains(request, []byte(s)) }
		}
	}
	for name, test := range map[string]struct {
		mode  pgx.QueryExecMode
		match func(*Proxy) func(request []byte) bool
		do    func(context.Context, *pgxpool.Pool) error
		lost  bool // the request itself
	}{
		"matched by its SQL": {
			pgx.QueryExecModeExec, containing("insert into"), insert(7), false,
		},
		"matched by its SQL in the simple protocol": {
			pgx.QueryExecModeSimpleProtocol, containing("insert into"), insert(7), false,
		},
		"matched by a parameter of a prepared statement": {
			pgx.QueryExecModeCacheStatement, containing("\x00\x00\x00\x07"), insert(7), false,
		},
		"matched by its number": {
			pgx.QueryExecModeCacheStatement,
			func(*Proxy) func([]byte) bool {
				n := 0
				return func([]byte) bool { n++; return n == 2 } // after the one that prepares
			},
			insert(7), false,
		},
		"of a commit": {
			pgx.QueryExecModeExec, containing("commit"),
			func(ctx context.Context, pool *pgxpool.Pool) error {
				return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					_, err := tx.Exec(ctx, "insert into numbers values (7)")
					return err
				})
			},
			false,
		},
		"of many megabytes": {
			pgx.QueryExecModeExec, containing("repeat"),
			func(ctx context.Context, pool *pgxpool.Pool) error {
				_, err := pool.Exec(ctx, "insert into numbers values (7) returning repeat('x', 20000000)")
				return err
			},
			false,
		},
		"not, as its request is lost": {
			pgx.QueryExecModeExec,
			func(p *Proxy) func([]byte) bool {
				return func(request []byte) bool {
					if bytes.Contains(request, []byte("insert into")) {
						p.Cut()
					}
					return false
				}
			},
			insert(7), true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, through, beside := openProxy(t, test.mode)
			dropped := proxy.DropReply(test.match(proxy))
			if err := test.do(t.Context(), through); err == nil {
				t.Error("the client got a reply")
			}
			want := 0
			if !test.lost {
				<-dropped
				want = 1
			}
			if got := query[int](t, beside, "select count(*) from numbers where n = 7"); got != want {
				t.Errorf("the server has executed the request %d times, want %d", got, want)
			}
			if test.lost {
				return
			}
			if err := insert(7)(t.Context(), through); err != nil {
				t.Errorf("the next request, on a new connection: %v", err)
			}
		})
	}
}

func TestProxyHoldsReplies(t *testing.T) {
	t.Parallel()
	proxy, through, beside := openProxy(t, pgx.QueryExecModeSimpleProtocol)
	mustExec(t, through, "insert into numbers values (1)")
	release := proxy.Stall()
	before := proxy.RoundTrips()
	done := make(chan error, 1)
	go func() {
		_, err := through.Exec(t.Context(), "insert into numbers values (2)")
		done <- err
	}()
	eventually(t, "the server has answered", func() bool { return proxy.RoundTrips() == before+1 })
	if got := query[int](t, beside, "select count(*) from numbers"); got != 2 {
		t.Errorf("%d rows, want 2: the request is to reach the server", got)
	}
	select {
	case err := <-done:
		t.Errorf("the client got a reply: %v", err)
	default:
	}
	release()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestProxyStopsWhileItHoldsReplies(t *testing.T) {
	t.Parallel()
	done := make(chan error, 1)
	t.Run("", func(t *testing.T) {
		config := Config(t)
		proxy := NewProxy(t, config)
		proxy.Stall()
		go func() {
			_, err := pgx.ConnectConfig(context.Background(), proxy.Config().ConnConfig)
			done <- err
		}()
		eventually(t, "the client connects", func() bool {
			proxy.mu.Lock()
			defer proxy.mu.Unlock()
			return len(proxy.links) == 1
		})
	})
	if err := <-done; err == nil {
		t.Error("the client has connected")
	}
}

func TestProxyCutsConnections(t *testing.T) {
	t.Parallel()
	proxy, pool, _ := openProxy(t, pgx.QueryExecModeSimpleProtocol)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	mustExec(t, conn, "insert into numbers values (1)")
	proxy.Cut()
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("the connection is still there")
	}
	conn.Release()
	mustExec(t, pool, "insert into numbers values (2)")
}

func TestProxyForwardsCancelRequests(t *testing.T) {
	t.Parallel()
	proxy := NewProxy(t, Config(t))
	config := proxy.Config()
	config.ConnConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: time.Minute}
	}
	conn, err := pgx.ConnectConfig(t.Context(), config.ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(ctx, "select pg_sleep(60)")
		done <- err
	}()
	beside := Open(t)
	pid := conn.PgConn().PID()
	eventually(t, "the query runs", func() bool {
		return query[bool](t, beside, "select wait_event is not distinct from 'PgSleep' from pg_stat_activity where pid = $1", pid)
	})
	cancel()
	err = <-done
	if pgErr := new(pgconn.PgError); !errors.As(err, &pgErr) || pgErr.Code != "57014" { // query_canceled
		t.Errorf("error %v, want the server's: canceling statement", err)
	}
}
