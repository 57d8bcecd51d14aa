package idemsqlite

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/idem-go/idem"
)

// Store is an [idem.Store] in an SQLite file. Use [Open]. It is safe for
// concurrent use, beside any number of other stores on the file.
type Store struct {
	path   string
	file   os.FileInfo // of the file that is open
	db     *sql.DB     // connections that read, and the writer's
	lookup *sql.Stmt
	writer *writer

	closing  sync.Once
	closeErr error
}

var _ idem.Store = (*Store)(nil)

// Claim implements [idem.Store]. It looks first, so that a replay neither
// writes nor locks anything.
func (s *Store) Claim(ctx context.Context, req idem.ClaimRequest) (idem.Record, error) {
	seen := req.Replace
	if seen == nil {
		rec, found, err := s.Lookup(ctx, req.Key)
		if err != nil || found {
			return rec, err
		}
	}
	args := []any{
		req.Key.User, req.Key.Scope, req.Key.Key, req.Hash.Sum, req.Hash.Version, blob(req.Token),
		blob(req.ExecutionID), req.Reclaimed, micros(req.Lease), micros(req.Retention),
	}
	if seen != nil {
		args = append(args, string(seen.State), blob(seen.Token), seen.Attempt)
	}
	var rec idem.Record
	err := s.change(ctx, func(do stmts) (err error) {
		claim := do.claim
		if seen != nil {
			claim = do.takeOver
		}
		rec, err = scan(claim.QueryRow(args...))
		if errors.Is(err, sql.ErrNoRows) { // a rival was first
			rec, _, err = find(do.lookup, req.Key)
		}
		return err
	})
	if err != nil {
		return idem.Record{}, err
	}
	return rec, nil
}

// Complete implements [idem.Store].
func (s *Store) Complete(ctx context.Context, req idem.CompleteRequest) (time.Time, error) {
	args := append([]any{
		req.Key.User, req.Key.Scope, req.Key.Key, blob(req.Token), string(req.State), micros(req.Retention),
	}, responseArgs(req.Response)...)
	var completed time.Time
	err := s.change(ctx, func(do stmts) error {
		var us int64
		var sooner bool
		err := do.complete.QueryRow(args...).Scan(&us, &sooner)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			completed, err = completedBefore(do, req)
			return err
		case err != nil:
			return err
		case sooner:
			if _, err := do.purgeSooner.Exec(args[:3]...); err != nil {
				return err
			}
		}
		completed = at(us)
		return nil
	})
	return ifHeld(completed, err)
}

// completedBefore returns when the same completion, sent earlier, was made; the
// zero time if none was.
func completedBefore(do stmts, req idem.CompleteRequest) (time.Time, error) {
	rec, _, err := find(do.lookup, req.Key)
	if err != nil || rec.Token != req.Token || rec.State == idem.Processing {
		return time.Time{}, err
	}
	return rec.CompletedAt, nil
}

// ifHeld is the answer to a completion: the zero time is none's.
func ifHeld(completed time.Time, err error) (time.Time, error) {
	switch {
	case err != nil:
		return time.Time{}, err
	case completed.IsZero():
		return time.Time{}, idem.ErrLeaseLost
	}
	return completed, nil
}

// Release implements [idem.Store].
func (s *Store) Release(ctx context.Context, req idem.ReleaseRequest) error {
	return s.update(ctx, func(do stmts) (sql.Result, error) {
		return do.release.Exec(req.Key.User, req.Key.Scope, req.Key.Key, blob(req.Token), micros(req.Retention))
	})
}

// Renew implements [idem.Store].
func (s *Store) Renew(ctx context.Context, req idem.RenewRequest) error {
	return s.update(ctx, func(do stmts) (sql.Result, error) {
		return do.renew.Exec(req.Key.User, req.Key.Scope, req.Key.Key, blob(req.Token),
			micros(req.Lease), micros(req.Retention))
	})
}

// update carries out a statement that the claim's token fences.
func (s *Store) update(ctx context.Context, exec func(stmts) (sql.Result, error)) error {
	var changed int64
	err := s.change(ctx, func(do stmts) error {
		res, err := exec(do)
		if err == nil {
			changed, err = res.RowsAffected()
		}
		return err
	})
	if err == nil && changed == 0 {
		return idem.ErrLeaseLost
	}
	return err
}

// Lookup implements [idem.Store].
func (s *Store) Lookup(ctx context.Context, key idem.Key) (idem.Record, bool, error) {
	rec, err := scan(s.lookup.QueryRowContext(ctx, key.User, key.Scope, key.Key))
	switch {
	case err == nil:
		return rec, true, nil
	case errors.Is(err, sql.ErrNoRows):
		return idem.Record{}, false, nil
	}
	return idem.Record{}, false, s.failed(err)
}

// find is Lookup in a transaction that writes.
func find(lookup *sql.Stmt, key idem.Key) (idem.Record, bool, error) {
	rec, err := scan(lookup.QueryRow(key.User, key.Scope, key.Key))
	if errors.Is(err, sql.ErrNoRows) {
		return idem.Record{}, false, nil
	}
	return rec, err == nil, err
}

// change carries out what run does as one atomic step.
func (s *Store) change(ctx context.Context, run func(stmts) error) error {
	return s.failed(s.writer.do(ctx, run))
}

// failed is the error of a request.
func (s *Store) failed(err error) error {
	select {
	case <-s.writer.closed:
		if err != nil {
			return idem.Permanent(ErrClosed)
		}
	default:
	}
	return classify(err)
}
