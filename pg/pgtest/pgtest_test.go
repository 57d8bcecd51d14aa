package pgtest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// TestMain lets this program serve as the test process that a test kills.
func TestMain(m *testing.M) {
	switch os.Getenv("PGTEST_HELPER") {
	case "":
		os.Exit(m.Run())
	case "server":
		hold(shared())
	case "container":
		server, err := startContainer(context.Background(), image(), nil)
		if err != nil {
			hold(Source{}, err)
		}
		hold(Source{URL: server.url()}, nil)
	}
}

// hold tells where the server is, and waits to be killed.
func hold(server Source, err error) {
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println(server.URL)
	os.Stdin.Read(make([]byte, 1))
}

func TestOpen(t *testing.T) {
	t.Parallel()

	t.Run("every connection lives in the schema, whatever it resets", func(t *testing.T) {
		t.Parallel()
		pool := Open(t)
		mustExec(t, pool, "create table numbers (n int)")
		for n := range 3 {
			conn, err := pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Release() // at the end: each round gets another connection
			mustExec(t, conn, "reset all")
			mustExec(t, conn, "insert into numbers values (1)")
			if got := query[int](t, conn, "select count(*) from numbers"); got != n+1 {
				t.Errorf("%d rows, want %d", got, n+1)
			}
		}
	})

	t.Run("two pools do not see each other", func(t *testing.T) {
		t.Parallel()
		a, b := Open(t), Open(t)
		mustExec(t, a, "create table names (name text)")
		mustExec(t, b, "create table names (name text)")
		mustExec(t, a, "insert into names values ('a')")
		mustExec(t, b, "insert into names values ('b')")
		got := []string{query[string](t, a, "select name from names"), query[string](t, b, "select name from names")}
		if diff := cmp.Diff([]string{"a", "b"}, got); diff != "" {
			t.Errorf("names (-want +got):\n%s", diff)
		}
	})

	t.Run("the schema is gone after the test", func(t *testing.T) {
		t.Parallel()
		var schema string
		t.Run("", func(t *testing.T) {
			pool := Open(t)
			mustExec(t, pool, "create table numbers (n int)")
			schema = query[string](t, pool, "select current_schema()")
		})
		if query[bool](t, Open(t), "select exists (select from pg_namespace where nspname = $1)", schema) {
			t.Errorf("schema %s is still there", schema)
		}
	})

	t.Run("a connection that is not released fails the test", func(t *testing.T) {
		t.Parallel()
		r := &recorder{TB: t}
		conn, err := Open(r).Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
		r.cleanUp()
		if want := "has not released 1 of its connections"; !strings.Contains(r.errors, want) {
			t.Errorf("errors: %q, want %q", r.errors, want)
		}
	})
}

func TestConfig(t *testing.T) {
	t.Parallel()

	t.Run("can be changed before connecting", func(t *testing.T) {
		t.Parallel()
		config := Config(t)
		config.MaxConns = 1
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
		config.ConnConfig.RuntimeParams["statement_timeout"] = "1234"
		pool := connect(t, config)
		if got, want := query[string](t, pool, "show statement_timeout"), "1234ms"; got != want {
			t.Errorf("statement_timeout is %s, want %s", got, want)
		}
	})

	t.Run("a transaction left open fails the test instead of blocking it", func(t *testing.T) {
		t.Parallel()
		r := &recorder{TB: t}
		pool := connect(t, Config(r))
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(context.Background())
		mustExec(t, tx, "create table numbers (n int)")
		mustExec(t, pool, "create table letters (n int)")
		mustExec(t, tx, "lock table letters")
		r.cleanUp()
		if want := "lock timeout"; !strings.Contains(r.errors, want) {
			t.Errorf("errors: %q, want %q", r.errors, want)
		}
	})
}

func TestServerComesFromTheURL(t *testing.T) {
	t.Parallel()
	server := Start(t)
	stopped := Start(t)
	stopped.Kill()
	for name, test := range map[string]struct {
		url    string
		passes bool
		want   string
	}{
		"and is logged once":          {server.URL(), true, "pgtest: IDEM_TEST_DATABASE_URL: PostgreSQL "},
		"and is not replaced if down": {stopped.URL(), false, "pgtest: IDEM_TEST_DATABASE_URL: failed to connect"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tests := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOpen$/two_pools", "-test.v")
			tests.Env = append(os.Environ(), urlVariable+"="+test.url)
			output, err := tests.CombinedOutput()
			if (err == nil) != test.passes || bytes.Count(output, []byte(test.want)) != 1 {
				t.Errorf("tests ended with %v; want once %q in\n%s", err, test.want, output)
			}
		})
	}
}

// A recorder stands for a test that is expected to fail.
type recorder struct {
	testing.TB
	cleanups []func()
	errors   string
}

func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

func (r *recorder) Errorf(format string, args ...any) { r.errors += fmt.Sprintf(format, args...) }

func (r *recorder) cleanUp() {
	for len(r.cleanups) > 0 {
		last := len(r.cleanups) - 1
		r.cleanups[last]()
		r.cleanups = r.cleanups[:last]
	}
}

func connect(t *testing.T, config *pgxpool.Config) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func connectURL(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	return connect(t, config)
}

type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func mustExec(t *testing.T, db execer, sql string, args ...any) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

func query[T any](t *testing.T, db querier, sql string, args ...any) T {
	t.Helper()
	rows, _ := db.Query(t.Context(), sql, args...)
	value, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// eventually polls until done, for half a minute.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.After(30 * time.Second)
	for !done() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("not in time: %s", what)
		}
	}
}
