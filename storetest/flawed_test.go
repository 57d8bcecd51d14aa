package storetest

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/idem-go/idem"
)

// Flawed methods. They act in more than one step, which is a flaw of its own.

type completeByKey struct{ *memory }

func (s completeByKey) Complete(ctx context.Context, req idem.CompleteRequest) (time.Time, error) {
	rec, _, _ := s.Lookup(ctx, req.Key)
	req.Token = rec.Token
	return s.memory.Complete(ctx, req)
}

type releaseByKey struct{ *memory }

func (s releaseByKey) Release(ctx context.Context, req idem.ReleaseRequest) error {
	rec, _, _ := s.Lookup(ctx, req.Key)
	req.Token = rec.Token
	return s.memory.Release(ctx, req)
}

type renewByKey struct{ *memory }

func (s renewByKey) Renew(ctx context.Context, req idem.RenewRequest) error {
	rec, _, _ := s.Lookup(ctx, req.Key)
	req.Token = rec.Token
	return s.memory.Renew(ctx, req)
}

type upsert struct{ *memory }

func (s upsert) Claim(ctx context.Context, req idem.ClaimRequest) (idem.Record, error) {
	if _, found, _ := s.Lookup(ctx, req.Key); !found {
		req.Replace = nil
	}
	return s.memory.Claim(ctx, req)
}

type forgetful struct{ *memory }

func (s forgetful) Claim(ctx context.Context, req idem.ClaimRequest) (idem.Record, error) {
	before, _, _ := s.Lookup(ctx, req.Key)
	rec, err := s.memory.Claim(ctx, req)
	if before.Token == req.Token {
		rec.Token = idem.ID{1} // somebody's
	}
	return rec, err
}

type hashless struct{ *memory }

func (s hashless) Claim(ctx context.Context, req idem.ClaimRequest) (idem.Record, error) {
	rec, err := s.memory.Claim(ctx, req)
	rec.Hash = req.Hash
	return rec, err
}

type leases struct {
	*memory
	round func(time.Duration) time.Duration
}

func (s leases) Claim(ctx context.Context, req idem.ClaimRequest) (idem.Record, error) {
	req.Lease = s.round(req.Lease)
	return s.memory.Claim(ctx, req)
}

func (s leases) Renew(ctx context.Context, req idem.RenewRequest) error {
	req.Lease = s.round(req.Lease)
	return s.memory.Renew(ctx, req)
}

type nanoseconds struct{ *memory }

func (s nanoseconds) Lookup(ctx context.Context, key idem.Key) (idem.Record, bool, error) {
	rec, found, err := s.memory.Lookup(ctx, key)
	rec.ExpiresAt = time.Unix(0, rec.ExpiresAt.UnixNano())
	return rec, found, err
}

type unending struct{ *memory }

func (s unending) Lookup(ctx context.Context, key idem.Key) (idem.Record, bool, error) {
	rec, found, err := s.memory.Lookup(ctx, key)
	if rec.ExpiresIn > 0 {
		rec.ExpiresIn += long
	}
	return rec, found, err
}

type purges struct {
	*memory
	request func(idem.PurgeRequest) idem.PurgeRequest
	result  func(idem.PurgeResult) idem.PurgeResult
}

func (s purges) Purge(ctx context.Context, req idem.PurgeRequest) (idem.PurgeResult, error) {
	if s.request != nil {
		req = s.request(req)
	}
	done, err := s.memory.Purge(ctx, req)
	if s.result != nil {
		done = s.result(done)
	}
	return done, err
}

type tireless struct{ *memory }

func (s tireless) Claim(ctx context.Context, req idem.ClaimRequest) (idem.Record, error) {
	return s.memory.Claim(context.WithoutCancel(ctx), req)
}

type deletesOnRelease struct{ *memory }

func (s deletesOnRelease) Release(ctx context.Context, req idem.ReleaseRequest) error {
	err := s.memory.Release(ctx, req)
	if err == nil {
		s.mu.Lock()
		delete(s.entries, s.identity(req.Key))
		s.mu.Unlock()
	}
	return err
}

type keepsLease struct{ *memory }

func (s keepsLease) Release(ctx context.Context, req idem.ReleaseRequest) error {
	err := s.memory.Release(ctx, req)
	if err == nil {
		s.mu.Lock()
		s.at(req.Key, s.clock()).leaseEnd = s.clock().Add(long)
		s.mu.Unlock()
	}
	return err
}

type keepsToken struct{ *memory }

func (s keepsToken) Release(ctx context.Context, req idem.ReleaseRequest) error {
	return s.memory.Renew(ctx, idem.RenewRequest{Key: req.Key, Token: req.Token, Retention: req.Retention})
}

type renewsAll struct{ *memory }

func (s renewsAll) Renew(ctx context.Context, req idem.RenewRequest) error {
	s.mu.Lock()
	e := s.at(req.Key, s.clock())
	if e != nil && e.Token == req.Token && e.State != idem.Processing {
		e.ExpiresAt = e.ExpiresAt.Add(req.Lease)
		s.mu.Unlock()
		return nil
	}
	s.mu.Unlock()
	return s.memory.Renew(ctx, req)
}

type completesAbsent struct{ *memory }

func (s completesAbsent) Complete(ctx context.Context, req idem.CompleteRequest) (time.Time, error) {
	_, _ = s.memory.Claim(ctx, idem.ClaimRequest{Key: req.Key, Token: req.Token})
	return s.memory.Complete(ctx, req)
}

type overwrites struct{ *memory }

func (s overwrites) Claim(ctx context.Context, req idem.ClaimRequest) (idem.Record, error) {
	if req.Replace == nil {
		s.mu.Lock()
		delete(s.entries, s.identity(req.Key))
		s.mu.Unlock()
	}
	return s.memory.Claim(ctx, req)
}

type blind struct{ *memory }

func (s blind) Claim(ctx context.Context, req idem.ClaimRequest) (idem.Record, error) {
	rec, err := s.memory.Claim(ctx, req)
	if req.Replace != nil && rec.Attempt > 0 && rec.Token != req.Token {
		rec = idem.Record{State: idem.Processing, Hash: req.Hash, Token: idem.ID{1}, Attempt: 1, LeaseLeft: time.Second}
	}
	return rec, err
}

type reclaims struct{ *memory }

func (s reclaims) Claim(ctx context.Context, req idem.ClaimRequest) (idem.Record, error) {
	req.Reclaimed = true
	return s.memory.Claim(ctx, req)
}

type lookups struct {
	*memory
	prolong bool // or fail if there is nothing
}

func (s lookups) Lookup(ctx context.Context, key idem.Key) (idem.Record, bool, error) {
	rec, found, err := s.memory.Lookup(ctx, key)
	switch {
	case !found && !s.prolong:
		return rec, false, errors.New("not found")
	case found && s.prolong && rec.LeaseLeft > time.Minute:
		s.mu.Lock()
		e := s.at(key, s.clock())
		e.leaseEnd = e.leaseEnd.Add(time.Minute)
		s.mu.Unlock()
	}
	return rec, found, err
}

type purgesLater struct{ *memory }

func (s purgesLater) Purge(ctx context.Context, req idem.PurgeRequest) (done idem.PurgeResult, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var expired []any
	for id, e := range s.entries {
		if s.purgeable(e, s.clock()) && len(expired) < req.Limit {
			expired = append(expired, id)
		}
	}
	s.mu.Unlock()
	<-time.After(time.Millisecond)
	s.mu.Lock()
	for _, id := range expired {
		delete(s.entries, id)
	}
	return idem.PurgeResult{Deleted: len(expired)}, nil
}

type neverOver struct{ *memory }

func (s neverOver) Claim(ctx context.Context, req idem.ClaimRequest) (idem.Record, error) {
	rec, err := s.memory.Claim(ctx, req)
	if rec.State == idem.Processing {
		rec.LeaseLeft = max(rec.LeaseLeft, time.Second)
	}
	return rec, err
}

type refusesNUL struct{ *memory }

func (s refusesNUL) Complete(ctx context.Context, req idem.CompleteRequest) (time.Time, error) {
	if bytes.IndexByte(req.Response.Body, 0) >= 0 || bytes.Contains(req.Response.Body, []byte(`\u0000`)) {
		return time.Time{}, idem.Permanent(errors.New("unsupported Unicode escape sequence"))
	}
	return s.memory.Complete(ctx, req)
}
