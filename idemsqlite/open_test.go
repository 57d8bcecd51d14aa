package idemsqlite_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemsqlite"
)

func TestAFileThatCannotServeIsRefusedClearly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage")
	if err := os.WriteFile(garbage, []byte(strings.Repeat("this is no database\n", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	newer := filepath.Join(dir, "newer")
	open(t, newer)
	sqlExec(t, plain(t, newer), `INSERT INTO idempotency_requests_migrations VALUES (999, 0)`)

	for _, c := range []struct {
		name, path string
		is         error
		says       string
	}{
		{"an in-memory database", ":memory:", idemsqlite.ErrPath, "memstore"},
		{"an empty path", "", idemsqlite.ErrPath, "memstore"},
		{"a URI", "file:idem.db?mode=memory", idemsqlite.ErrPath, "not a URI"},
		{"a path with a NUL", "a\x00b", idemsqlite.ErrPath, ""},
		{"a directory", dir, idemsqlite.ErrPath, dir},
		{"a missing directory", filepath.Join(dir, "missing", "idem.db"), fs.ErrNotExist, "missing"},
		{"a file that is not a database", garbage, nil, "not a database"},
		{"the schema of a later release", newer, idemsqlite.ErrNewerSchema, "999"},
	} {
		_, err := idemsqlite.Open(c.path)
		switch {
		case err == nil:
			t.Errorf("%s: no error", c.name)
		case c.is != nil && !errors.Is(err, c.is), !strings.Contains(err.Error(), c.says):
			t.Errorf("%s: got %v, want %v that says %q", c.name, err, c.is, c.says)
		}
	}
	if got, err := os.ReadFile(garbage); err != nil || !strings.HasPrefix(string(got), "this is no database") || len(got) != 20_000 {
		t.Error("a file that is not a database was changed")
	}
}

func TestAReadOnlyFileIsRefused(t *testing.T) {
	t.Parallel()
	path := file(t)
	if err := open(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	s, err := idemsqlite.OpenReadOnly(path)
	if err == nil {
		s.Close()
		t.Fatal("no error")
	}
	if !strings.Contains(err.Error(), "readonly") {
		t.Errorf("got %v, want an error about a readonly database", err)
	}
}

// A directory without the right to create files in it: even root has none here.
func TestADirectoryThatCannotBeWrittenIsRefused(t *testing.T) {
	t.Parallel()
	s, err := idemsqlite.Open(os.DevNull + "/idem.db")
	if err == nil {
		s.Close()
		t.Error("no error")
	}
}

func TestAnyFileNameWorks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a?mode=memory", "50%25", "a#b", "a b", "größe&_synchronous=OFF", "';--", "%00"} {
		path := filepath.Join(dir, name)
		if _, err := once(t.Context(), open(t, path), "k"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			t.Errorf("%s: no file of that name: %v", name, err)
		}
	}
}

func TestSettingsOfTheFile(t *testing.T) {
	t.Parallel()
	path := file(t)
	open(t, path)
	db := plain(t, path)
	got := map[string]string{}
	for _, setting := range []string{"journal_mode", "auto_vacuum", "user_version", "application_id"} {
		got[setting] = value[string](t, db, "PRAGMA "+setting)
	}
	want := map[string]string{"journal_mode": "wal", "auto_vacuum": "2", "user_version": "0", "application_id": "0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
}

func TestManyMayCreateTheFileAtOnce(t *testing.T) {
	t.Parallel()
	for range 5 {
		path := file(t)
		children := make([]*child, 4)
		for i := range children {
			children[i] = start(t, "serve", path)
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				s, err := idemsqlite.Open(path)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := once(t.Context(), s, "k", idem.WithWait(time.Minute)); err != nil {
					t.Error(err)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		results := map[string]bool{}
		for _, c := range children {
			results[c.ask(t, "wait k2")] = true
			c.end(t)
		}
		wg.Wait()
		if len(results) != 1 {
			t.Errorf("results: %v, want one", results)
		}
	}
}

// A program's own tables in the file stay as they are.
func TestAFileOfAnotherProgramCanBeShared(t *testing.T) {
	t.Parallel()
	path := file(t)
	db := plain(t, path)
	sqlExec(t, db, `CREATE TABLE orders (id INTEGER PRIMARY KEY)`)
	sqlExec(t, db, `INSERT INTO orders VALUES (7)`)
	sqlExec(t, db, `PRAGMA user_version = 42`)
	store := open(t, path)
	if _, err := once(t.Context(), store, "k"); err != nil {
		t.Fatal(err)
	}
	if id, version := value[int](t, db, `SELECT id FROM orders`), value[int](t, db, `PRAGMA user_version`); id != 7 || version != 42 {
		t.Errorf("order %d, user_version %d", id, version)
	}
}
