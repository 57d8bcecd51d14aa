package idemmq_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemmq"
	"github.com/idem-go/idem/memstore"
)

var (
	testKey  = idem.Key{User: idem.NoUser, Scope: "billing", Key: "order-1"}
	testBody = []byte("body of order-1")
)

// spy is a memstore whose answers a test can replace.
type spy struct {
	idem.Store
	onClaim    func(idem.ClaimRequest) (idem.Record, error)
	onComplete func(context.Context, idem.CompleteRequest) (time.Time, error)
	onLookup   func() (idem.Record, bool, error)
}

func newSpy() *spy { return &spy{Store: memstore.New()} }

func (s *spy) Claim(ctx context.Context, req idem.ClaimRequest) (idem.Record, error) {
	if s.onClaim != nil {
		return s.onClaim(req)
	}
	return s.Store.Claim(ctx, req)
}

func (s *spy) Complete(ctx context.Context, req idem.CompleteRequest) (time.Time, error) {
	if s.onComplete != nil {
		return s.onComplete(ctx, req)
	}
	return s.Store.Complete(ctx, req)
}

func (s *spy) Lookup(ctx context.Context, key idem.Key) (idem.Record, bool, error) {
	if s.onLookup != nil {
		return s.onLookup()
	}
	return s.Store.Lookup(ctx, key)
}

// before handles the message once with a plain call of Do, which fails as given.
func before(t *testing.T, s idem.Store, status idem.Status, failure error) {
	_, _ = idem.Do(t.Context(), s, testKey, testBody, func(context.Context) (string, idem.Status, error) {
		return "value", status, failure
	})
}

// The decision table. Each row is one delivery of a message with a lease of 30 s
// and a backoff of exactly 1 ns.
func TestDecisions(t *testing.T) {
	t.Parallel()
	var (
		errFinal = errors.New("no such account")
		errDown  = errors.New("connection refused")
		refuse   = idemmq.WithIdem(idem.WithStale(idem.Refuse))
		ok       = func(context.Context) error { return nil }
		fails    = func(err error) func(context.Context) error {
			return func(context.Context) error { return err }
		}
	)
	const nakForTheLease = "nak in 30.05s"
	for _, tt := range []struct {
		name  string
		setUp func(*testing.T, *spy, *delivery)
		fn    func(context.Context) error // nil if it must not run
		opts  []idemmq.Option
		want  string
		err   error
	}{
		{name: "executed", fn: ok, want: "ack"},
		{name: "replayed", setUp: func(t *testing.T, s *spy, _ *delivery) {
			_, _ = idemmq.Handle(t.Context(), s, "billing", message("order-1"), ok)
		}, want: "ack"},
		{name: "a retryable error", fn: fails(errFlaky), want: "nak in 1ns", err: errFlaky},
		{name: "a final error", fn: fails(idemmq.Reject(errFinal)), want: "dead_letter: rejected", err: errFinal},
		{name: "a final error, replayed", setUp: func(t *testing.T, s *spy, _ *delivery) {
			_, _ = idemmq.Handle(t.Context(), s, "billing", message("order-1"), fails(idemmq.Reject(errFinal)))
		}, opts: []idemmq.Option{idemmq.WithIdem(idem.WithErrors(map[string]error{"x": errFinal}))},
			want: "dead_letter: rejected"},
		{name: "any error is final with StoreAll", fn: fails(errFlaky),
			opts: []idemmq.Option{idemmq.WithIdem(idem.WithDisposition(idem.StoreAll))}, want: "dead_letter: rejected", err: errFlaky},
		{name: "a failure that another transport recorded as a status", setUp: func(t *testing.T, s *spy, _ *delivery) {
			before(t, s, 404, nil)
		}, want: "dead_letter: record_unreadable", err: idem.ErrCorruptRecord},
		{name: "an unknown outcome of the run", fn: fails(idem.Unknown(errFlaky)), want: nakForTheLease, err: idem.ErrOutcomeUnknown},
		{name: "a context's error of the run", fn: fails(context.DeadlineExceeded), want: nakForTheLease, err: context.DeadlineExceeded},
		{name: "a nested call's mismatch is the handler's own error", fn: fails(idem.ErrPayloadMismatch), want: "nak in 1ns", err: idem.ErrPayloadMismatch},
		{name: "a nested call in progress is the handler's own error", fn: fails(&idem.InProgressError{RetryAfter: time.Hour}), want: "nak in 1ns", err: idem.ErrInProgress},
		{name: "a nested call's lost record", fn: fails(idem.ErrNotRecorded), want: nakForTheLease, err: idem.ErrNotRecorded},
		{name: "no error, but to be released", fn: ok,
			opts: []idemmq.Option{idemmq.WithIdem(idem.WithDisposition(func(idem.Outcome) idem.Disposition { return idem.Release }))},
			want: "nak in 1ns"},
		{name: "no error, but to be held", fn: ok,
			opts: []idemmq.Option{idemmq.WithIdem(idem.WithDisposition(func(idem.Outcome) idem.Disposition { return idem.Hold }))},
			want: nakForTheLease},
		{name: "ran, but not recorded", setUp: func(_ *testing.T, s *spy, _ *delivery) {
			s.onComplete = func(context.Context, idem.CompleteRequest) (time.Time, error) {
				return time.Time{}, idem.Permanent(errDown)
			}
		}, fn: ok, want: "ack", err: idem.ErrNotRecorded},
		{name: "rejected, but not recorded", setUp: func(_ *testing.T, s *spy, _ *delivery) {
			s.onComplete = func(context.Context, idem.CompleteRequest) (time.Time, error) {
				return time.Time{}, idem.Permanent(errDown)
			}
		}, fn: fails(idemmq.Reject(errFinal)), want: nakForTheLease, err: errFinal},
		{name: "not recorded, and the store stays down", setUp: func(_ *testing.T, s *spy, _ *delivery) {
			s.onLookup = func() (idem.Record, bool, error) { return idem.Record{}, false, errDown }
		}, fn: fails(idem.Unknown(errFlaky)), want: "nak in 1ns", err: errFlaky},
		{name: "lease lost", setUp: func(_ *testing.T, s *spy, _ *delivery) {
			s.onComplete = func(context.Context, idem.CompleteRequest) (time.Time, error) {
				return time.Time{}, idem.ErrLeaseLost
			}
		}, fn: ok, want: nakForTheLease, err: idem.ErrLeaseLost},
		{name: "store down", setUp: func(_ *testing.T, s *spy, _ *delivery) {
			s.onClaim = func(idem.ClaimRequest) (idem.Record, error) { return idem.Record{}, errDown }
		}, want: "nak in 1ns", err: idem.ErrUnavailable},
		{name: "store does not answer in time", setUp: func(_ *testing.T, s *spy, _ *delivery) {
			s.onClaim = func(idem.ClaimRequest) (idem.Record, error) { return idem.Record{}, context.DeadlineExceeded }
		}, want: "nak in 1ns", err: idem.ErrUnavailable},
		{name: "in progress", setUp: func(t *testing.T, s *spy, _ *delivery) {
			_, _ = idem.Do(t.Context(), s, testKey, testBody, func(context.Context) (string, idem.Status, error) {
				return "", 0, idem.Unknown(nil)
			}, idem.WithLease(20*time.Second))
		}, want: "nak in 20.05s", err: idem.ErrInProgress},
		{name: "another body", setUp: func(t *testing.T, s *spy, d *delivery) {
			_, _ = idemmq.Handle(t.Context(), s, "billing", message("order-1"), ok)
			d.msg.Body = []byte("another")
		}, want: "dead_letter: payload_mismatch", err: idem.ErrPayloadMismatch},
		{name: "a bad id", setUp: func(_ *testing.T, _ *spy, d *delivery) { d.msg.ID = "order\n1" },
			want: "dead_letter: invalid_id", err: idem.ErrInvalidKey},
		{name: "no id", setUp: func(_ *testing.T, _ *spy, d *delivery) { d.msg.ID = "" },
			want: "dead_letter: invalid_id", err: idemmq.ErrNoID},
		{name: "outcome unknown", setUp: func(t *testing.T, s *spy, _ *delivery) {
			_, _ = idem.Do(t.Context(), s, testKey, testBody, func(context.Context) (string, idem.Status, error) {
				return "", 0, idem.Unknown(nil)
			}, idem.WithLease(time.Second))
			<-time.After(2 * time.Second)
		}, opts: []idemmq.Option{refuse}, want: "dead_letter: outcome_unknown", err: idem.ErrOutcomeUnknown},
		{name: "an unreadable record", setUp: func(_ *testing.T, s *spy, _ *delivery) {
			s.onClaim = func(idem.ClaimRequest) (idem.Record, error) { return idem.Record{}, idem.ErrCorruptRecord }
		}, want: "dead_letter: record_unreadable", err: idem.ErrCorruptRecord},
		{name: "older than retention", setUp: func(_ *testing.T, _ *spy, d *delivery) {
			d.msg.Published = time.Now().Add(-idem.DefaultRetention - time.Second)
		}, want: "dead_letter: older_than_retention", err: idemmq.ErrTooOld},
		{name: "just younger than retention", setUp: func(_ *testing.T, _ *spy, d *delivery) {
			d.msg.Published = time.Now().Add(-idem.DefaultRetention)
		}, fn: ok, want: "ack"},
		{name: "a bad option of idem", opts: []idemmq.Option{idemmq.WithIdem(idem.WithLease(0))}, want: "nak in 1ns", err: idem.ErrInvalidOption},
		{name: "a bad option", opts: []idemmq.Option{nil}, want: "nak in 1m0s", err: idem.ErrInvalidOption},
	} {
		synctestRun(t, tt.name, func(t *testing.T) {
			store, d, ran := newSpy(), message("order-1"), false
			before(t, store, 503, nil) // an earlier release does not matter
			if tt.setUp != nil {
				tt.setUp(t, store, d)
			}
			opts := append([]idemmq.Option{
				idemmq.WithBackoff(1, 1), idemmq.WithIdem(idem.WithLease(30 * time.Second)),
			}, tt.opts...)
			dec, err := idemmq.Handle(t.Context(), store, "billing", d, func(ctx context.Context) error {
				if ran = true; tt.fn == nil {
					t.Error("the handler ran")
					return nil
				}
				return tt.fn(ctx)
			}, opts...)
			d.want(t, tt.want)
			if dec.String() != tt.want {
				t.Errorf("decision %v, want %s", dec, tt.want)
			}
			switch {
			case tt.err != nil && !errors.Is(err, tt.err):
				t.Errorf("error %v, want %v", err, tt.err)
			case tt.want == "ack" && tt.err == nil && err != nil:
				t.Errorf("error %v with an ack", err)
			}
			if want := tt.fn != nil; ran != want {
				t.Errorf("ran = %v, want %v", ran, want)
			}
		})
	}
}
