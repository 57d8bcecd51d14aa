package idemsqlite

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/idem-go/idem"
)

// An Option changes how [Open] opens a file.
type Option func(*config)

type config struct {
	synchronous string
	mode        string // SQLite's: rwc, rw, ro
}

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
	cfg := config{synchronous: "FULL", mode: "rwc"}
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
	s, err := open(path, cfg)
	if err != nil {
		return nil, classify(fmt.Errorf("idemsqlite: open %s: %w", path, err))
	}
	return s, nil
}

func checkPath(path string) error {
	switch {
	case path == "", path == ":memory:":
		return fmt.Errorf("%w, not of an in-memory database (use package memstore)", ErrPath)
	case strings.HasPrefix(path, "file:"):
		return fmt.Errorf("%w, not a URI", ErrPath)
	case strings.Contains(path, "\x00"):
		return ErrPath
	}
	return nil
}

// dsn is the name by which SQLite opens a file, with what each connection needs.
func dsn(path string, cfg config) string {
	v := url.Values{
		"mode":          {cfg.mode},
		"_busy_timeout": {"0"}, // see writer
		"_synchronous":  {cfg.synchronous},
		"_dqs":          {"0"},
		"_pragma":       {"journal_size_limit(16777216)"}, // the log shrinks again after a burst
		"_error_rc":     {"1"},                            // messages that belong to their error
	}
	if path = filepath.ToSlash(path); !strings.HasPrefix(path, "/") {
		path = "/" + path // C:/…
	}
	u := url.URL{Scheme: "file", Path: path, RawQuery: v.Encode()}
	return u.String()
}

func open(path string, cfg config) (_ *Store, err error) {
	// SQLite would only say that it cannot open the file.
	if _, err := os.Stat(filepath.Dir(path)); err != nil {
		return nil, idem.Permanent(err)
	}
	if file, err := os.Stat(path); err == nil && !file.Mode().IsRegular() {
		return nil, idem.Permanent(ErrPath)
	}
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	var c *conn
	err = persist(ctx, nil, func() error {
		c, err = connect(dsn(path, cfg))
		return err
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = c.close()
		}
	}()
	if err := setUp(ctx, c); err != nil {
		return nil, err
	}
	file, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if cfg.mode == "rwc" {
		cfg.mode = "rw" // a file that is gone must not come back empty
	}
	s := &Store{path: path, file: file}
	s.reader = newReaders(max(4, runtime.GOMAXPROCS(0)), func() (*conn, error) {
		if err := s.unreplaced(); err != nil {
			return nil, err
		}
		return connect(dsn(path, cfg))
	})
	s.writer = &writer{conn: c, fit: s.unreplaced, turn: make(chan struct{}, 1), closed: make(chan struct{})}
	return s, nil
}

// setUp brings the file into the state that the store needs.
func setUp(ctx context.Context, c *conn) error {
	err := persist(ctx, nil, func() error {
		pages, err := c.number(`PRAGMA page_count`)
		if err == nil && pages == 0 { // only a new file takes it, and it is a write
			err = c.script(`PRAGMA auto_vacuum = INCREMENTAL`)
		}
		return err
	})
	if err != nil {
		return err
	}
	var mode string
	err = persist(ctx, nil, func() error {
		return c.one(func(row row) error {
			r := reader{row: row}
			mode, _ = r.text("journal_mode")
			return r.err
		}, `PRAGMA journal_mode = WAL`)
	})
	switch {
	case err != nil:
		return err
	case mode != "wal":
		return idem.Permanent(ErrNoWAL)
	}
	return migrate(ctx, c)
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
		s.closeErr = errors.Join(s.reader.close(), s.writer.close())
	})
	return s.closeErr
}
