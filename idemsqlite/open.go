package idemsqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"modernc.org/sqlite"

	"github.com/idem-go/idem"
)

// An Option changes how [Open] opens a file.
type Option func(*config)

type config struct{ synchronous string }

// WithNormalSync syncs the disk only now and then (synchronous = NORMAL) and
// not before each outcome is acknowledged. What was acknowledged then survives
// kill -9 of the process, but the last moments may be lost with the power or a
// crash of the system, and their work done twice. A lone caller gets several
// times as much done; many callers at once share a sync anyway. Default: off.
func WithNormalSync() Option { return func(c *config) { c.synchronous = "NORMAL" } }

// openTimeout bounds how long Open waits for other processes that are creating
// or migrating the file.
const openTimeout = 30 * time.Second

// Open opens the file at path, creates it if it is missing, and brings its
// schema up to this release's: a store in a file just works. Its directory must
// exist. Any number of processes may do so at once.
//
// Besides those of the file system and of SQLite it returns [ErrPath],
// [ErrNoWAL] or [ErrNewerSchema]; all but those that may pass, such as a full
// disk, are marked with [idem.Permanent].
//
// The store must be closed after use.
func Open(path string, opts ...Option) (*Store, error) {
	cfg := config{synchronous: "FULL"}
	for _, o := range opts {
		o(&cfg)
	}
	if err := checkPath(path); err != nil {
		return nil, idem.Permanent(err)
	}
	path, err := filepath.Abs(path) // the working directory may change
	if err != nil {
		return nil, idem.Permanent(err)
	}
	s, err := open(path, dsn(path, cfg, nil))
	if err != nil {
		return nil, classify(fmt.Errorf("idemsqlite: open %s: %w", path, err))
	}
	return s, nil
}

func checkPath(path string) error {
	switch {
	case path == "", strings.Contains(path, ":memory:"):
		return fmt.Errorf("%w, not of an in-memory database (use package memstore)", ErrPath)
	case strings.HasPrefix(path, "file:"):
		return fmt.Errorf("%w, not a URI", ErrPath)
	case strings.Contains(path, "\x00"):
		return ErrPath
	}
	return nil
}

// dsn is the name by which SQLite opens a file, with what each connection needs.
func dsn(path string, cfg config, extra url.Values) string {
	v := url.Values{
		"_busy_timeout": {fmt.Sprint(openTimeout.Milliseconds())}, // reading meets a lock only when a log is recovered
		"_synchronous":  {cfg.synchronous},
		"_auto_vacuum":  {"INCREMENTAL"}, // takes effect when the file is created
		"_dqs":          {"0"},
		"_error_rc":     {"1"}, // messages that belong to their error
	}
	for name, values := range extra {
		v[name] = values
	}
	if path = filepath.ToSlash(path); !strings.HasPrefix(path, "/") {
		path = "/" + path // C:/…
	}
	u := url.URL{Scheme: "file", Path: path, RawQuery: v.Encode()}
	return u.String()
}

// connector opens connections of a driver of this package's own, so that its
// function is nobody else's.
type connector struct{ dsn string }

var own = func() *sqlite.Driver {
	d := &sqlite.Driver{}
	d.MustRegisterScalarFunction("idem_now", 0, func(*sqlite.FunctionContext, []driver.Value) (driver.Value, error) {
		return time.Now().UnixMicro(), nil // SQLite's own clock is this one in milliseconds
	})
	return d
}()

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return own.Open(c.dsn)
}

func (c connector) Driver() driver.Driver { return own }

func open(path, dsn string) (_ *Store, err error) {
	// SQLite would only say that it cannot open the file.
	if _, err := os.Stat(filepath.Dir(path)); err != nil {
		return nil, idem.Permanent(err)
	}
	db := sql.OpenDB(connector{dsn})
	defer func() {
		if err != nil {
			_ = db.Close()
		}
	}()
	readers := max(4, runtime.GOMAXPROCS(0))
	db.SetMaxOpenConns(readers + 1)
	db.SetMaxIdleConns(readers + 1)

	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if err := setUp(ctx, conn); err != nil {
		return nil, err
	}
	s := &Store{path: path, db: db}
	if s.file, err = os.Stat(path); err != nil {
		return nil, err
	}
	s.writer = &writer{conn: conn, fit: s.unreplaced, turn: make(chan struct{}, 1), closed: make(chan struct{})}
	if err := s.writer.prepare(ctx); err != nil {
		return nil, err
	}
	s.lookup, err = db.PrepareContext(ctx, statements.lookup)
	return s, err
}

// setUp brings the file into the state that the store needs.
func setUp(ctx context.Context, conn *sql.Conn) error {
	var mode string
	err := persist(ctx, func() error {
		return conn.QueryRowContext(ctx, `PRAGMA journal_mode = WAL`).Scan(&mode)
	})
	switch {
	case err != nil:
		return err
	case mode != "wal":
		return idem.Permanent(ErrNoWAL)
	}
	if err := migrate(ctx, conn); err != nil {
		return err
	}
	// From now on the writer waits itself.
	_, err = conn.ExecContext(ctx, `PRAGMA busy_timeout = 0`)
	return err
}

// persist repeats what other processes stand in the way of. SQLite does not
// wait by itself where that could be a deadlock.
func persist(ctx context.Context, try func() error) error {
	for {
		err := try()
		if !busy(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return gaveUp(ctx, err)
		case <-time.After(maxPause):
		}
	}
}

// unreplaced returns an error unless the file that is open is the one that
// others would open. SQLite does not look, and would go on writing to a file
// without a name.
func (s *Store) unreplaced() error {
	now, err := os.Stat(s.path)
	switch {
	case errors.Is(err, os.ErrNotExist), err == nil && !os.SameFile(s.file, now):
		return ErrReplaced
	}
	return err
}

// Close closes the file, once what is being written is. Calls that wait for
// their turn, and later ones, return [ErrClosed]. The last store that closes a
// file moves its write-ahead log into it.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.closeErr = errors.Join(s.writer.close(), s.db.Close())
	})
	return s.closeErr
}
