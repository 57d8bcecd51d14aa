package idemsqlite

import (
	"context"
	"errors"
	"strconv"
)

// LimitPages makes the disk full once the file has more pages than there are
// now and n; a negative n makes room again.
func (s *Store) LimitPages(n int64) error {
	s.writer.turn <- struct{}{}
	defer func() { <-s.writer.turn }()
	c := s.writer.conn
	now, err := c.number(`SELECT page_count FROM pragma_page_count`)
	if err != nil {
		return err
	}
	if n < 0 {
		n = 1 << 30
	}
	_, err = c.number(`PRAGMA max_page_count = ` + strconv.FormatInt(now+n, 10))
	return err
}

// Waiting is how many changes wait for their turn, one that waits for the lock
// of the file included.
func (s *Store) Waiting() int {
	s.writer.mu.Lock()
	defer s.writer.mu.Unlock()
	return len(s.writer.waiting)
}

// OpenReadOnly opens a file as if its permissions allowed no more.
func OpenReadOnly(path string) (*Store, error) {
	s, err := open(path, config{synchronous: "FULL", mode: "ro"})
	return s, classify(err)
}

// Spoil takes part in a transaction, which it rolls back, and fails once
// meanwhile returns.
func (s *Store) Spoil(ctx context.Context, meanwhile func()) error {
	return s.change(ctx, func(c *conn) error {
		if err := c.script(`ROLLBACK`); err != nil {
			return err
		}
		meanwhile()
		return errSpoilt
	})
}

var errSpoilt = errors.New("spoilt")

// ReadAlone reads as if it needed the file for itself.
func (s *Store) ReadAlone(ctx context.Context, tried func()) error {
	return classify(s.reader.do(ctx, func(c *conn) error {
		err := c.script(`BEGIN IMMEDIATE; ROLLBACK`)
		tried()
		return err
	}))
}
