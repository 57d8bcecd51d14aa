package idemsqlite

import (
	"context"
	"database/sql/driver"
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
	writer *writer
	reader *readers

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
	sql, args := statements.claim, []driver.Value{
		req.Key.User, req.Key.Scope, req.Key.Key, req.Hash.Sum, int64(req.Hash.Version), blob(req.Token),
		blob(req.ExecutionID), req.Reclaimed, micros(req.Lease), micros(req.Retention),
	}
	if seen != nil {
		sql, args = statements.takeOver, append(args, string(seen.State), blob(seen.Token), int64(seen.Attempt))
	}
	var rec idem.Record
	err := s.change(ctx, func(c *conn) (err error) {
		now, err := c.number(sql, args...)
		if errors.Is(err, errNoRow) { // a rival was first
			rec, _, err = c.lookup(req.Key)
			return err
		}
		rec = claimed(req, now)
		return err
	})
	if err != nil {
		return idem.Record{}, err
	}
	return rec, nil
}

// claimed is the record of a claim that was made at the given time.
func claimed(req idem.ClaimRequest, now int64) idem.Record {
	lease := micros(req.Lease)
	life := lease + micros(req.Retention)
	rec := idem.Record{
		State: idem.Processing, Hash: req.Hash, Token: req.Token, ExecutionID: req.ExecutionID,
		Attempt: 1, Reclaimed: req.Reclaimed,
		LeaseLeft: duration(lease), ExpiresAt: at(now + life), ExpiresIn: duration(life),
	}
	if req.Replace != nil {
		rec.Attempt = req.Replace.Attempt + 1
	}
	return rec
}

// Complete implements [idem.Store].
func (s *Store) Complete(ctx context.Context, req idem.CompleteRequest) (time.Time, error) {
	args := append([]driver.Value{
		req.Key.User, req.Key.Scope, req.Key.Key, blob(req.Token), string(req.State), micros(req.Retention),
	}, responseArgs(req.Response)...)
	var completed time.Time
	err := s.change(ctx, func(c *conn) (err error) {
		completed, err = c.complete(req, args)
		return err
	})
	switch {
	case err != nil:
		return time.Time{}, err
	case completed.IsZero():
		return time.Time{}, idem.ErrLeaseLost
	}
	return completed, nil
}

// complete returns when the claim was completed, by this request or an earlier
// one like it; the zero time if its token does not hold the key.
func (c *conn) complete(req idem.CompleteRequest, args []driver.Value) (completed time.Time, err error) {
	var sooner bool
	err = c.one(func(row row) error {
		r := reader{row: row}
		completed = at(r.must("completed_at"))
		sooner = r.must("sooner") != 0
		return r.err
	}, statements.complete, args...)
	switch {
	case errors.Is(err, errNoRow):
		rec, _, err := c.lookup(req.Key)
		if err != nil || rec.Token != req.Token || rec.State == idem.Processing {
			return time.Time{}, err
		}
		return rec.CompletedAt, nil
	case err == nil && sooner:
		_, err = c.exec(statements.purgeSooner, args[:3]...)
	}
	return completed, err
}

// Release implements [idem.Store].
func (s *Store) Release(ctx context.Context, req idem.ReleaseRequest) error {
	return s.update(ctx, statements.release,
		req.Key.User, req.Key.Scope, req.Key.Key, blob(req.Token), micros(req.Retention))
}

// Renew implements [idem.Store].
func (s *Store) Renew(ctx context.Context, req idem.RenewRequest) error {
	return s.update(ctx, statements.renew,
		req.Key.User, req.Key.Scope, req.Key.Key, blob(req.Token), micros(req.Lease), micros(req.Retention))
}

// update carries out a statement that the claim's token fences.
func (s *Store) update(ctx context.Context, sql string, args ...driver.Value) error {
	var changed int64
	err := s.change(ctx, func(c *conn) (err error) {
		changed, err = c.exec(sql, args...)
		return err
	})
	if err == nil && changed == 0 {
		return idem.ErrLeaseLost
	}
	return err
}

// Lookup implements [idem.Store].
func (s *Store) Lookup(ctx context.Context, key idem.Key) (rec idem.Record, found bool, err error) {
	err = s.reader.do(ctx, func(c *conn) error {
		rec, found, err = c.lookup(key)
		return err
	})
	return rec, found, classify(err)
}

func (c *conn) lookup(key idem.Key) (idem.Record, bool, error) {
	rec, err := c.record(statements.lookup, key.User, key.Scope, key.Key)
	if errors.Is(err, errNoRow) {
		return idem.Record{}, false, nil
	}
	return rec, err == nil, err
}

func (c *conn) record(sql string, args ...driver.Value) (rec idem.Record, err error) {
	err = c.one(func(r row) error {
		rec, err = read(r)
		return err
	}, sql, args...)
	return rec, err
}

// change carries out what run does as one atomic step.
func (s *Store) change(ctx context.Context, run func(*conn) error) error {
	return classify(s.writer.do(ctx, run))
}
