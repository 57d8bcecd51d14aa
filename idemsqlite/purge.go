package idemsqlite

import (
	"context"

	"github.com/idem-go/idem"
)

const (
	// purgeStep is how many records a transaction deletes: other callers get
	// their turn in between.
	purgeStep = 250
	// vacuumPages is how many free pages a purge gives back to the file system.
	vacuumPages = 1000
)

// Purge implements [idem.Store]. It deletes in short transactions, each
// committed on its own. Then it makes the file smaller by up to a thousand
// pages, if more than a quarter of it is free: what stays is for new records.
func (s *Store) Purge(ctx context.Context, req idem.PurgeRequest) (res idem.PurgeResult, err error) {
	for err == nil && res.Deleted < req.Limit {
		limit := min(req.Limit-res.Deleted, purgeStep)
		var done idem.PurgeResult
		err = s.change(ctx, func(c *conn) (err error) {
			done, err = c.purge(limit)
			return err
		})
		if err != nil {
			return res, err
		}
		res.Deleted += done.Deleted
		res.Overdue = max(res.Overdue, done.Overdue)
		if done.Deleted < limit {
			break
		}
	}
	if res.Deleted > 0 {
		err = s.change(ctx, (*conn).vacuum)
	}
	return res, err
}

func (c *conn) purge(limit int) (res idem.PurgeResult, err error) {
	err = c.query(func(row row) error {
		r := reader{row: row}
		expired, now := r.must("expires_at"), r.must("now")
		res.Deleted++
		res.Overdue = max(res.Overdue, duration(now-expired))
		return r.err
	}, statements.purge, int64(limit))
	return res, err
}

// vacuum gives free pages back. It does nothing in a file that another program
// created without auto_vacuum.
func (c *conn) vacuum() error {
	var free, all int64
	err := c.one(func(row row) error {
		r := reader{row: row}
		free, all = r.must("freelist_count"), r.must("page_count")
		return r.err
	}, statements.pages)
	if err != nil || free <= all/4 {
		return err
	}
	_, err = c.exec(statements.vacuum)
	return err
}
