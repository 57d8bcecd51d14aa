package storetest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem"
)

// An interceptor is the store, but lets a check step in before a request is
// sent, or after it was carried out. If that returns an error, the request is
// not sent, or its answer is lost.
type interceptor struct {
	idem.Store
	before, after func(point) error
}

// A point is where a check steps in.
type point string

const (
	atClaim    point = "claim"
	atTakeover point = "takeover" // a claim that replaces a record
	atComplete point = "completion"
	atRelease  point = "release"
	atRenew    point = "renewal"
)

var errLost = errors.New("the connection was lost")

func (p *probe) intercept() *interceptor {
	pass := func(point) error { return nil }
	return &interceptor{Store: p.store, before: pass, after: pass}
}

// losing returns the store with answers that get lost: the first ones to
// requests of one kind.
func (p *probe) losing(at point, answers int64) *interceptor {
	var lost atomic.Int64
	s := p.intercept()
	s.after = func(here point) error {
		if here == at && lost.Add(1) <= answers {
			return errLost
		}
		return nil
	}
	return s
}

// onFirst steps in once.
func onFirst(at point, f func()) func(point) error {
	var done atomic.Bool
	return func(here point) error {
		if here == at && done.CompareAndSwap(false, true) {
			f()
		}
		return nil
	}
}

func (s *interceptor) Claim(ctx context.Context, req idem.ClaimRequest) (rec idem.Record, err error) {
	at := atClaim
	if req.Replace != nil {
		at = atTakeover
	}
	err = s.send(at, func() (err error) {
		rec, err = s.Store.Claim(ctx, req)
		return err
	})
	return rec, err
}

func (s *interceptor) Complete(ctx context.Context, req idem.CompleteRequest) (completed time.Time, err error) {
	err = s.send(atComplete, func() (err error) {
		completed, err = s.Store.Complete(ctx, req)
		return err
	})
	return completed, err
}

func (s *interceptor) Release(ctx context.Context, req idem.ReleaseRequest) error {
	return s.send(atRelease, func() error { return s.Store.Release(ctx, req) })
}

func (s *interceptor) Renew(ctx context.Context, req idem.RenewRequest) error {
	return s.send(atRenew, func() error { return s.Store.Renew(ctx, req) })
}

func (s *interceptor) send(at point, request func() error) error {
	if err := s.before(at); err != nil {
		return err
	}
	err := request()
	if lost := s.after(at); lost != nil {
		return lost
	}
	return err
}
