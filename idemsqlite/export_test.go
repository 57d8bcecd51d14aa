package idemsqlite

import "strconv"

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
