package idemsqlite

import (
	"context"
	"time"

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
		err = s.change(ctx, func(do stmts) (err error) {
			done, err = purge(do, limit)
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
		err = s.change(ctx, vacuum)
	}
	return res, err
}

func purge(do stmts, limit int) (res idem.PurgeResult, err error) {
	rows, err := do.purge.Query(limit)
	if err != nil {
		return idem.PurgeResult{}, err
	}
	defer rows.Close()
	for rows.Next() {
		var expired, now int64
		if err := rows.Scan(&expired, &now); err != nil {
			return idem.PurgeResult{}, err
		}
		res.Deleted++
		res.Overdue = max(res.Overdue, time.Duration(now-expired)*time.Microsecond)
	}
	return res, rows.Err()
}

// vacuum gives free pages back. It does nothing in a file that another program
// created without auto_vacuum.
func vacuum(do stmts) error {
	var free, all int64
	if err := do.pages.QueryRow().Scan(&free, &all); err != nil || free <= all/4 {
		return err
	}
	_, err := do.vacuum.Exec()
	return err
}
