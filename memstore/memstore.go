// Package memstore is an [idem.Store] in memory, for tests, examples and
// programs of one process. It forgets everything when the process ends, and two
// processes that use it know nothing of each other.
package memstore

import (
	"bytes"
	"container/heap"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/idem-go/idem"
)

// DefaultMaxRecords is the number of records that a [Store] keeps at most
// unless [MaxRecords] says otherwise.
const DefaultMaxRecords = 100_000

// ErrFull is returned for a new key when all records that the store may keep
// are alive. Forgetting one of them would allow its work to be done twice.
var ErrFull = errors.New("memstore: full")

// Store is an [idem.Store] in memory. Use [New]. It is safe for concurrent use.
type Store struct {
	max int

	mu      sync.Mutex
	records map[idem.Key]*record
	expiry  expiry // of all records
}

var _ idem.Store = (*Store)(nil)

// record is an idem.Record whose times are instants.
type record struct {
	idem.Record
	key      idem.Key
	leaseEnd time.Time
	place    int // in expiry
}

// expiry is a heap of records: the one that expires first is at the top.
type expiry []*record

func (e expiry) Len() int           { return len(e) }
func (e expiry) Less(i, j int) bool { return e[i].ExpiresAt.Before(e[j].ExpiresAt) }

func (e expiry) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].place, e[j].place = i, j
}

func (e *expiry) Push(r any) {
	r.(*record).place = len(*e)
	*e = append(*e, r.(*record))
}

func (e *expiry) Pop() any {
	last := len(*e) - 1
	r := (*e)[last]
	(*e)[last] = nil
	*e = (*e)[:last]
	return r
}

// An Option changes how [New] makes a store.
type Option func(*Store)

// MaxRecords bounds the number of records. Expired ones give way to new ones;
// if there are none, new keys are refused with [ErrFull]. Zero and less mean no
// bound. Default: [DefaultMaxRecords].
func MaxRecords(n int) Option { return func(s *Store) { s.max = n } }

// New returns an empty store. It starts nothing: expired records are forgotten
// as new ones come, and by [Store.Purge].
func New(opts ...Option) *Store {
	s := &Store{max: DefaultMaxRecords, records: map[idem.Key]*record{}}
	for _, o := range opts {
		o(s)
	}
	return s
}

// view returns the record as it is seen at the given time.
func (r *record) view(now time.Time) idem.Record {
	v := r.Record
	v.Response = clone(v.Response)
	v.ExpiresIn = v.ExpiresAt.Sub(now)
	if v.State == idem.Processing {
		v.LeaseLeft = r.leaseEnd.Sub(now)
	}
	return v
}

// clone returns a response that shares no memory with r.
func clone(r idem.Response) idem.Response {
	r.Body = bytes.Clone(r.Body)
	if r.Error != nil {
		e := *r.Error
		r.Error = &e
	}
	return r
}

// of reports whether token made the record. A released one has no token.
func (r *record) of(token idem.ID) bool {
	return r != nil && r.Token == token && token != idem.ID{}
}

// Claim implements [idem.Store].
func (s *Store) Claim(ctx context.Context, req idem.ClaimRequest) (idem.Record, error) {
	if err := ctx.Err(); err != nil {
		return idem.Record{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	r := s.records[req.Key]
	attempt := 1
	switch {
	case req.Replace == nil && r != nil:
		return r.view(now), nil
	case req.Replace == nil:
		if !s.room(now) {
			return idem.Record{}, idem.Permanent(ErrFull)
		}
		r = &record{key: req.Key}
		s.records[req.Key] = r
		defer heap.Push(&s.expiry, r)
	case r == nil:
		return idem.Record{}, nil
	default:
		seen, is := req.Replace, r.view(now)
		same := is.State == seen.State && is.Token == seen.Token && is.Attempt == seen.Attempt
		free := is.Expired() || is.State == idem.Processing && is.LeaseLeft <= 0
		if !same || !free {
			return is, nil
		}
		attempt = r.Attempt + 1
		defer heap.Fix(&s.expiry, r.place)
	}
	r.leaseEnd = now.Add(req.Lease)
	r.Record = idem.Record{
		State: idem.Processing, Hash: req.Hash, Token: req.Token, ExecutionID: req.ExecutionID,
		Attempt: attempt, Reclaimed: req.Reclaimed, ExpiresAt: r.leaseEnd.Add(req.Retention),
	}
	return r.view(now), nil
}

// few records may stay although they have expired.
const few = 128

// room makes room for one more record if it can. To forget two for each new one
// keeps expired ones from piling up.
func (s *Store) room(now time.Time) bool {
	if n := len(s.records); n >= few || s.max > 0 && n >= s.max {
		s.purge(now, 2)
	}
	return s.max <= 0 || len(s.records) < s.max
}

// Complete implements [idem.Store].
func (s *Store) Complete(ctx context.Context, req idem.CompleteRequest) (time.Time, error) {
	if err := ctx.Err(); err != nil {
		return time.Time{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[req.Key]
	switch {
	case !r.of(req.Token):
		return time.Time{}, idem.ErrLeaseLost
	case r.State != idem.Processing: // the same completion, sent again
		return r.CompletedAt, nil
	}
	r.State, r.Response, r.CompletedAt = req.State, clone(req.Response), time.Now()
	r.ExpiresAt = r.CompletedAt.Add(req.Retention)
	heap.Fix(&s.expiry, r.place)
	return r.CompletedAt, nil
}

// Release implements [idem.Store].
func (s *Store) Release(ctx context.Context, req idem.ReleaseRequest) error {
	return s.update(ctx, req.Key, req.Token, func(r *record, now time.Time) {
		r.Token, r.leaseEnd, r.ExpiresAt = idem.ID{}, now, now.Add(req.Retention)
	})
}

// Renew implements [idem.Store].
func (s *Store) Renew(ctx context.Context, req idem.RenewRequest) error {
	return s.update(ctx, req.Key, req.Token, func(r *record, now time.Time) {
		r.leaseEnd = now.Add(req.Lease)
		r.ExpiresAt = r.leaseEnd.Add(req.Retention)
	})
}

func (s *Store) update(ctx context.Context, key idem.Key, token idem.ID, change func(*record, time.Time)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[key]
	if !r.of(token) || r.State != idem.Processing {
		return idem.ErrLeaseLost
	}
	change(r, time.Now())
	heap.Fix(&s.expiry, r.place)
	return nil
}

// Lookup implements [idem.Store].
func (s *Store) Lookup(ctx context.Context, key idem.Key) (idem.Record, bool, error) {
	if err := ctx.Err(); err != nil {
		return idem.Record{}, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[key]
	if r == nil {
		return idem.Record{}, false, nil
	}
	return r.view(time.Now()), true, nil
}

// Purge implements [idem.Store].
func (s *Store) Purge(ctx context.Context, req idem.PurgeRequest) (idem.PurgeResult, error) {
	if err := ctx.Err(); err != nil {
		return idem.PurgeResult{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.purge(time.Now(), req.Limit), nil
}

// purge forgets expired records, those first that have been so for longest.
func (s *Store) purge(now time.Time, limit int) (res idem.PurgeResult) {
	for res.Deleted < limit && len(s.expiry) > 0 {
		overdue := now.Sub(s.expiry[0].ExpiresAt)
		if overdue < 0 {
			break
		}
		delete(s.records, heap.Pop(&s.expiry).(*record).key)
		res.Deleted++
		res.Overdue = max(res.Overdue, overdue)
	}
	return res
}
