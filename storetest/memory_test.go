package storetest

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem"
)

// memory is an honest store whose steps can be replaced by flawed ones.
type memory struct {
	mu      sync.Mutex
	entries map[any]*entry
	claims  int

	clock     func() time.Time
	identity  func(idem.Key) any
	insert    func()                                               // just before a claim is written
	replace   func(old, claim *entry)                              // a claim is about to replace a record
	conflict  func(*entry)                                         // a claim met a record
	free      func(e *entry, seen idem.Record, now time.Time) bool // may a claim replace it?
	holds     func(e *entry, token idem.ID, now time.Time) bool    // is it the token's?
	expiry    func(e *entry, completed time.Time, retention time.Duration) time.Time
	purgeable func(e *entry, now time.Time) bool
	clone     func(idem.Response) idem.Response
	scanAll   bool // when purging, look behind a record that is not expired
	forgets   bool // expired records are gone, as in a store that has its own expiry
}

type entry struct {
	idem.Record
	number            int // of the claim
	claimed, leaseEnd time.Time
}

func newMemory() *memory {
	return &memory{
		entries:  map[any]*entry{},
		clock:    time.Now,
		identity: func(k idem.Key) any { return k },
		insert:   func() {},
		replace:  func(_, _ *entry) {},
		conflict: func(*entry) {},
		free: func(e *entry, seen idem.Record, now time.Time) bool {
			return e.State == seen.State && e.Token == seen.Token && e.Attempt == seen.Attempt && e.over(now)
		},
		holds: func(e *entry, token idem.ID, _ time.Time) bool { return e.Token == token && token != idem.ID{} },
		expiry: func(_ *entry, completed time.Time, retention time.Duration) time.Time {
			return completed.Add(retention)
		},
		purgeable: func(e *entry, now time.Time) bool { return !now.Before(e.ExpiresAt) },
		clone: func(r idem.Response) idem.Response {
			r.Body = bytes.Clone(r.Body)
			if r.Error != nil {
				r.Error = &idem.ErrorValue{Code: r.Error.Code, Message: r.Error.Message}
			}
			return r
		},
		scanAll: true,
	}
}

// over reports whether the entry's time has passed.
func (e *entry) over(now time.Time) bool {
	return !now.Before(e.ExpiresAt) || e.State == idem.Processing && !now.Before(e.leaseEnd)
}

// at returns the key's entry, nil if there is none.
func (m *memory) at(key idem.Key, now time.Time) *entry {
	id := m.identity(key)
	if e := m.entries[id]; e != nil && m.forgets && !now.Before(e.ExpiresAt) {
		delete(m.entries, id)
	}
	return m.entries[id]
}

func (m *memory) view(e *entry, now time.Time) idem.Record {
	rec := e.Record
	rec.ExpiresIn = rec.ExpiresAt.Sub(now)
	rec.Response = m.clone(rec.Response)
	if rec.State == idem.Processing {
		rec.LeaseLeft = e.leaseEnd.Sub(now)
	}
	return rec
}

func (m *memory) lock(ctx context.Context) (time.Time, error) {
	m.mu.Lock()
	return m.clock(), ctx.Err()
}

func (m *memory) Claim(ctx context.Context, req idem.ClaimRequest) (idem.Record, error) {
	now, err := m.lock(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return idem.Record{}, err
	}
	end := now.Add(req.Lease)
	claim := &entry{claimed: now, leaseEnd: end, Record: idem.Record{
		State: idem.Processing, Hash: req.Hash, Token: req.Token, ExecutionID: req.ExecutionID,
		Attempt: 1, Reclaimed: req.Reclaimed, ExpiresAt: end.Add(req.Retention),
	}}
	switch e := m.at(req.Key, now); {
	case e == nil && req.Replace != nil:
		return idem.Record{}, nil
	case e == nil:
	case req.Replace == nil || !m.free(e, *req.Replace, now):
		m.conflict(e)
		return m.view(e, now), nil
	default:
		claim.Attempt = e.Attempt + 1
		m.replace(e, claim)
	}
	m.insert()
	m.claims++
	claim.number = m.claims
	m.entries[m.identity(req.Key)] = claim
	return m.view(claim, now), nil
}

func (m *memory) Complete(ctx context.Context, req idem.CompleteRequest) (time.Time, error) {
	now, err := m.lock(ctx)
	defer m.mu.Unlock()
	e := m.at(req.Key, now)
	switch {
	case err != nil:
		return time.Time{}, err
	case e == nil || !m.holds(e, req.Token, now):
		return time.Time{}, idem.ErrLeaseLost
	case e.State == idem.Processing:
		e.State, e.Response, e.CompletedAt = req.State, m.clone(req.Response), now
		e.ExpiresAt = m.expiry(e, now, req.Retention)
	}
	return e.CompletedAt, nil
}

func (m *memory) Release(ctx context.Context, req idem.ReleaseRequest) error {
	return m.update(ctx, req.Key, req.Token, func(e *entry, now time.Time) {
		e.Token, e.leaseEnd, e.ExpiresAt = idem.ID{}, now, now.Add(req.Retention)
	})
}

func (m *memory) Renew(ctx context.Context, req idem.RenewRequest) error {
	return m.update(ctx, req.Key, req.Token, func(e *entry, now time.Time) {
		e.leaseEnd = now.Add(req.Lease)
		e.ExpiresAt = e.leaseEnd.Add(req.Retention)
	})
}

func (m *memory) update(ctx context.Context, key idem.Key, token idem.ID, change func(*entry, time.Time)) error {
	now, err := m.lock(ctx)
	defer m.mu.Unlock()
	e := m.at(key, now)
	switch {
	case err != nil:
		return err
	case e == nil || e.State != idem.Processing || !m.holds(e, token, now):
		return idem.ErrLeaseLost
	}
	change(e, now)
	return nil
}

func (m *memory) Lookup(ctx context.Context, key idem.Key) (idem.Record, bool, error) {
	now, err := m.lock(ctx)
	defer m.mu.Unlock()
	e := m.at(key, now)
	if err != nil || e == nil {
		return idem.Record{}, false, err
	}
	return m.view(e, now), true, nil
}

func (m *memory) Purge(ctx context.Context, req idem.PurgeRequest) (done idem.PurgeResult, err error) {
	now, err := m.lock(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return done, err
	}
	byAge := slices.SortedFunc(maps.Keys(m.entries), func(a, b any) int {
		return cmp.Compare(m.entries[a].number, m.entries[b].number)
	})
	for _, id := range byAge {
		e := m.entries[id]
		switch {
		case done.Deleted == req.Limit:
			return done, nil
		case m.purgeable(e, now):
			delete(m.entries, id)
			done.Deleted++
			done.Overdue = max(done.Overdue, now.Sub(e.ExpiresAt))
		case !m.scanAll:
			return done, nil
		}
	}
	return done, nil
}
