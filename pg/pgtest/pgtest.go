// Package pgtest gives tests a real Postgres.
//
// [Open] returns a pool whose connections live in a schema of their own, so that tests run in parallel:
//
//	func TestStore(t *testing.T) {
//		t.Parallel()
//		pool := pgtest.Open(t)
//		…
//	}
//
// The server is found once per test process, at the first use, in this order:
//
//  1. The server that the environment variable IDEM_TEST_DATABASE_URL names. Its user must be allowed to create
//     schemas; those of a killed test process stay there.
//  2. Server binaries on this machine: initdb, pg_ctl and postgres on PATH, or the highest version in
//     /usr/lib/postgresql/*/bin. A server is started in a temporary directory, on a port of 127.0.0.1, with a random
//     password and without fsync. Not on Windows.
//  3. Docker, with the image that IDEM_TEST_POSTGRES_IMAGE names (postgres:17-alpine if unset).
//
// A test never skips for want of a server: it fails, and tells what was missing. Nor does a way that is there but
// broken give way to the next one.
//
// A server that was started here vanishes with the test process, even if that is killed. A container is removed by
// testcontainers' Ryuk or, where that is disabled, through the docker command.
package pgtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const urlVariable = "IDEM_TEST_DATABASE_URL"

// Open returns a pool connected as [Config] describes. It is closed when the test ends; a connection that was not
// released by then fails the test instead of blocking it.
func Open(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.NewWithConfig(context.Background(), Config(t))
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			pool.Close()
		}()
		select {
		case <-closed:
		case <-time.After(5 * time.Second):
			t.Errorf("pgtest: the test has not released %d of its connections", pool.Stat().AcquiredConns())
		}
	})
	return pool
}

// Config creates a schema and returns the configuration of a pool whose connections live in it: their search_path
// names it alone, from the first statement on. A test may change the configuration (exec mode, pool size, tracer)
// before it connects.
//
// The schema, with all that is in it, is dropped when the test ends, after the test's own cleanups: close the pool in
// one of them, or by defer. Locks that are still held in the schema then fail the test.
func Config(t testing.TB) *pgxpool.Config {
	t.Helper()
	server := Server(t)
	// The name is random, since other test processes may use the same server, and needs no quotes.
	schema := "pgtest_" + strings.ToLower(rand.Text())
	if err := execute(server.URL, "create schema "+schema); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		// Without the timeout, a transaction that the test left open would block the drop for ever.
		if err := execute(server.URL, "set lock_timeout = '3s'", "drop schema "+schema+" cascade"); err != nil {
			t.Errorf("pgtest: schema %s is left behind; does a connection of the test still hold locks? %v", schema, err)
		}
	})

	config, err := pgxpool.ParseConfig(server.URL)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	config.ConnConfig.RuntimeParams["search_path"] = schema
	return config
}

// A Source tells which server the tests run against.
type Source struct {
	URL     string // may hold a password
	Found   string // how it was found: IDEM_TEST_DATABASE_URL, server binaries in a directory, or a Docker image
	Version string // as the server reports it, for instance 17.2 (Debian 17.2-1)
}

// String returns how the server was found and its version, for logs.
func (s Source) String() string { return s.Found + ": PostgreSQL " + s.Version }

// Server returns the server of this test process, which it finds or starts at the first call. That call also logs it.
// Use [Start] for a server that a test may kill.
func Server(t testing.TB) Source {
	t.Helper()
	server, err := shared()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	logShared.Do(func() { t.Logf("pgtest: %v", server) })
	return server
}

var (
	shared    = sync.OnceValues(find)
	logShared sync.Once

	// sharedServer keeps the started server reachable: collected as garbage, its pipe would be closed, and the server
	// with it.
	sharedServer *localServer //nolint:unused // being there is its use
)

func find() (Source, error) {
	if url := os.Getenv(urlVariable); url != "" {
		return describe(url, urlVariable)
	}
	bin := binaries()
	if bin == "" {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // the image may have to be pulled
		defer cancel()
		server, err := startContainer(ctx, image(), nil)
		if err != nil {
			return Source{}, fmt.Errorf("no Postgres found: %s is not set, there are %s, and %w", urlVariable, noBinaries, err)
		}
		return describe(server.url(), "Docker image "+image())
	}
	server, err := startLocal(bin, randomPort, nil)
	if err != nil {
		return Source{}, err
	}
	sharedServer = server
	return describe(server.url(), "server binaries in "+bin)
}

// describe connects to the server for its version.
func describe(url, found string) (Source, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return Source{}, fmt.Errorf("%s: %w", found, err)
	}
	defer conn.Close(ctx)
	return Source{URL: url, Found: found, Version: conn.PgConn().ParameterStatus("server_version")}, nil
}

// execute runs statements on a connection of its own, apart from the pools under test.
func execute(url string, statements ...string) error {
	// Not the test's context: that is done by the time of its cleanups.
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
	}
	return nil
}
