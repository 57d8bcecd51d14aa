package idemcache

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/idem-go/idem"
)

// Store is an [idem.Store] that keeps settled records of another one in memory.
// Use [New]. It is safe for concurrent use, and needs no closing.
type Store struct {
	store   idem.Store
	max     int64
	records *otter.Cache[idem.Key, *record]

	mu     sync.RWMutex
	erased int // calls of Forget
}

var _ idem.Store = (*Store)(nil)

// record is a settled record and until when it may be served.
type record struct {
	idem.Record
	until time.Time
}

// New returns a store that answers replays from memory, and asks store for all
// else. It keeps the records that are asked for most, of at most maxBytes in
// all, keys and what it takes to keep them included. It starts nothing.
//
// It returns [idem.ErrInvalidOption] if store is nil or bound to a connection or
// a transaction (see [idem.Bound]), or if maxBytes is not positive.
func New(store idem.Store, maxBytes int64) (*Store, error) {
	bound, _ := store.(idem.Bound)
	switch {
	case store == nil:
		return nil, fmt.Errorf("%w: nil store", idem.ErrInvalidOption)
	case bound != nil && bound.Bound() != idem.BoundToNothing:
		return nil, fmt.Errorf("%w: what a connection or a transaction sees is not for others", idem.ErrInvalidOption)
	case maxBytes <= 0:
		return nil, fmt.Errorf("%w: a cache of %d bytes", idem.ErrInvalidOption, maxBytes)
	}
	records, err := otter.New(&otter.Options[idem.Key, *record]{
		MaximumWeight: uint64(maxBytes),
		Weigher:       func(key idem.Key, r *record) uint32 { return uint32(r.size(key)) },
		ExpiryCalculator: otter.ExpiryWritingFunc(func(e otter.Entry[idem.Key, *record]) time.Duration {
			return time.Until(e.Value.until)
		}),
		Executor: func(evict func()) { evict() }, // now, so that the bound holds
	})
	if err != nil {
		return nil, fmt.Errorf("idemcache: %w", err)
	}
	records.StopAllGoroutines() // expired records go as others come
	return &Store{store: store, max: maxBytes, records: records}, nil
}

// overhead is what a record takes besides its strings and bytes.
const overhead = 480

// size is what it takes to keep the record. Allocations are rounded up, by an
// eighth at most.
func (r *record) size(key idem.Key) int64 {
	n := overhead + len(key.User) + len(key.Scope) + len(key.Key) +
		len(r.Hash.Sum) + len(r.Response.Codec) + len(r.Response.Body)
	if e := r.Response.Error; e != nil {
		n += len(e.Code) + len(e.Message)
	}
	return int64(n + n/8)
}

// Claim implements [idem.Store]. Only a claim without req.Replace is answered
// from memory.
func (s *Store) Claim(ctx context.Context, req idem.ClaimRequest) (idem.Record, error) {
	if err := ctx.Err(); err != nil {
		return idem.Record{}, err
	}
	if req.Replace == nil {
		if rec, ok := s.recall(req.Key); ok {
			return rec, nil
		}
	}
	asked := s.ask()
	rec, err := s.store.Claim(ctx, req)
	if err == nil {
		s.learn(asked, req.Key, rec)
	}
	return rec, err
}

// Lookup implements [idem.Store]. It always asks the store.
func (s *Store) Lookup(ctx context.Context, key idem.Key) (idem.Record, bool, error) {
	asked := s.ask()
	rec, found, err := s.store.Lookup(ctx, key)
	if err == nil {
		s.learn(asked, key, rec)
	}
	return rec, found, err
}

// Complete implements [idem.Store].
func (s *Store) Complete(ctx context.Context, req idem.CompleteRequest) (time.Time, error) {
	s.records.Invalidate(req.Key)
	return s.store.Complete(ctx, req)
}

// Release implements [idem.Store].
func (s *Store) Release(ctx context.Context, req idem.ReleaseRequest) error {
	s.records.Invalidate(req.Key)
	return s.store.Release(ctx, req)
}

// Renew implements [idem.Store].
func (s *Store) Renew(ctx context.Context, req idem.RenewRequest) error {
	s.records.Invalidate(req.Key)
	return s.store.Renew(ctx, req)
}

// Purge implements [idem.Store]. What it deletes had expired here too.
func (s *Store) Purge(ctx context.Context, req idem.PurgeRequest) (idem.PurgeResult, error) {
	return s.store.Purge(ctx, req)
}

// Forget drops the records of this process whose keys match, for example those
// of a user whose data was erased: delete them from the store first. Keys come
// normalized, as stores see them. match must not use the store.
func (s *Store) Forget(match func(idem.Key) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erased++
	for key := range s.records.Keys() {
		if match(key) {
			s.records.Invalidate(key)
		}
	}
}

// recall returns the key's record as it is now, if it is kept.
func (s *Store) recall(key idem.Key) (idem.Record, bool) {
	r, ok := s.records.GetIfPresent(key)
	if !ok {
		return idem.Record{}, false
	}
	rec := r.Record
	rec.Response = clone(rec.Response)
	rec.ExpiresIn = time.Until(r.until)
	return rec, !rec.Expired()
}

// question is when the store was asked for a record.
type question struct {
	sent   time.Time
	erased int
}

func (s *Store) ask() question {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return question{time.Now(), s.erased}
}

// learn keeps the store's answer if it is settled, and otherwise drops what was
// kept. Answers may overtake each other: a settled record is true until it
// expires, and the want of one costs a round trip.
func (s *Store) learn(asked question, key idem.Key, rec idem.Record) {
	r := &record{rec, asked.sent.Add(rec.ExpiresIn)}
	settled := rec.State == idem.Succeeded || rec.State == idem.Failed
	if !settled || !time.Now().Before(r.until) || r.size(key) > min(s.max, math.MaxUint32) {
		s.records.Invalidate(key)
		return
	}
	r.Response = clone(rec.Response)
	s.mu.RLock()
	defer s.mu.RUnlock()
	if asked.erased == s.erased { // or it may be what was to be forgotten
		s.records.Set(key, r)
	}
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
