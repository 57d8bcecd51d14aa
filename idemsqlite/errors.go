package idemsqlite

import (
	"context"
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/idem-go/idem"
)

var (
	// ErrPath is returned by [Open] for a path that does not name a file:
	// an in-memory database, which would forget everything and which no other
	// process could see (use package memstore), or a URI.
	ErrPath = errors.New("idemsqlite: the path must be that of a file")

	// ErrNewerSchema is returned by [Open] when a later release has changed the
	// file's schema. This one must not touch it.
	ErrNewerSchema = errors.New("idemsqlite: the file has the schema of a later release")

	// ErrNoWAL is returned by [Open] when the file cannot have a write-ahead
	// log, as on file systems without shared memory.
	ErrNoWAL = errors.New("idemsqlite: the file cannot have a write-ahead log")

	// ErrReplaced is the cause of an error of the store when the file that it
	// has open is no longer the one at its path: it was deleted, renamed or
	// replaced. Others may use the new one, so going on could do work twice.
	ErrReplaced = errors.New("idemsqlite: the file was deleted or replaced while in use")

	// ErrClosed is the cause of an error of a store that was closed.
	ErrClosed = errors.New("idemsqlite: closed")
)

// classify marks the errors that repetition does not mend.
func classify(err error) error {
	var sqliteErr *sqlite.Error
	var field *fieldError
	switch {
	case errors.As(err, &field):
		return errors.Join(idem.ErrCorruptRecord, err)
	case errors.Is(err, ErrReplaced), errors.Is(err, ErrClosed):
		return idem.Permanent(err)
	case errors.As(err, &sqliteErr) && !passing(sqliteErr.Code()):
		return idem.Permanent(err)
	}
	return err
}

// passing reports whether the cause of a result code may be gone the next time.
// A full disk may be: a completion is repeated for as long as its lease lasts.
func passing(code int) bool {
	switch code & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_SCHEMA,
		sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_ABORT,
		sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_CANTOPEN:
		return true
	}
	return false
}

// busy reports whether another connection stands in the way.
func busy(err error) bool {
	var sqliteErr *sqlite.Error
	return errors.As(err, &sqliteErr) && sqliteErr.Code()&0xff == sqlite3.SQLITE_BUSY
}

// gaveUp is the error of a request whose ctx ended while the file was locked.
func gaveUp(ctx context.Context) error {
	return fmt.Errorf("idemsqlite: %w: others had the file locked", ctx.Err())
}
