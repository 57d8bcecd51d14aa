package idemsqlite_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemsqlite"
)

// TestMain is also the main function of the processes that tests start: see
// child_test.go.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(runChild(role))
	}
	os.Exit(m.Run())
}

// size is how often a case is tried: as often as it is written down when large
// cases are asked for (make cases), else as often as is quick.
func size(quick, large int) int {
	if os.Getenv("IDEM_TEST_LARGE") != "" {
		return large
	}
	return quick
}

func file(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "idem.db")
}

func open(t testing.TB, path string, opts ...idemsqlite.Option) *idemsqlite.Store {
	t.Helper()
	s, err := idemsqlite.Open(path, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// plain opens the file with plain SQL: one connection, so that a transaction
// is simply begun.
func plain(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path+"?_busy_timeout=30000")
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { db.Close() })
	return db
}

func sqlExec(t testing.TB, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func value[T any](t testing.TB, db *sql.DB, query string, args ...any) (v T) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

// intact fails the test if SQLite finds a fault in the file.
func intact(t testing.TB, db *sql.DB) {
	t.Helper()
	if got := value[string](t, db, `PRAGMA integrity_check`); got != "ok" {
		t.Errorf("integrity_check: %s", got)
	}
}

var key = idem.Key{User: "user-1", Scope: "orders.create", Key: "key-1"}

func numbered(n string) idem.Key {
	k := key
	k.Key = n
	return k
}

// until asks again and again until the answer is yes.
func until(t testing.TB, what string, yes func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !yes(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
		<-time.After(time.Millisecond)
	}
}

func itoa(i int) string { return strconv.Itoa(i) }

// fill makes the file larger than a few pages.
func fill(t testing.TB, store idem.Store) {
	t.Helper()
	for i := range 20 {
		if _, err := idem.Do(t.Context(), store, numbered("fill"+itoa(i)), "payload",
			func(context.Context) (string, idem.Status, error) { return strings.Repeat("x", 3000), 200, nil }); err != nil {
			t.Fatal(err)
		}
	}
}
