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

// A txStore is a memstore with transactions that count as what they write the
// names in them. It has room for one at a time, and a test can fail its commit.
type txStore struct {
	*memstore.Store
	busy    bool
	commit  error
	written []string
}

var _ idem.TxStore[*names] = (*txStore)(nil)

type names struct{ names []string }

type tx struct {
	s      *txStore
	rec    idem.Record
	locked bool
	names  names
}

func (s *txStore) BeginTx(ctx context.Context, req idem.BeginRequest) (idem.Transaction[*names], error) {
	rec, _, err := s.Lookup(ctx, req.Key)
	return &tx{s: s, rec: rec, locked: !s.busy}, err
}

func (t *tx) Record() (idem.Record, bool) { return t.rec, t.locked }
func (t *tx) Tx() *names                  { return &t.names }
func (t *tx) Rollback(context.Context)    {}

func (t *tx) Finish(ctx context.Context, req idem.FinishRequest) (time.Time, error) {
	if t.s.commit != nil {
		return time.Time{}, t.s.commit
	}
	rec, err := t.s.Claim(ctx, req.Claim)
	switch {
	case err != nil:
		return time.Time{}, err
	case rec.Token != req.Claim.Token:
		return time.Time{}, idem.ErrLeaseLost
	}
	if !req.Undo {
		t.s.written = append(t.s.written, t.names.names...)
	}
	return t.s.Complete(ctx, idem.CompleteRequest{
		Key: req.Claim.Key, Token: req.Claim.Token, State: req.State, Response: req.Response, Retention: req.Claim.Retention,
	})
}

func TestHandleTx(t *testing.T) {
	t.Parallel()
	var (
		rejected = idemmq.Reject(errFlaky)
		errRival = errors.New("unused")
	)
	for _, tt := range []struct {
		name    string
		setUp   func(*testing.T, *txStore)
		fn      error
		rival   error // errRival: another consumer is first, while fn runs
		want    string
		err     error
		written int
	}{
		{name: "executed", want: "ack", written: 1},
		{name: "replayed", setUp: func(t *testing.T, s *txStore) {
			_, _ = idemmq.Handle(t.Context(), s, "billing", message("order-1"), func(context.Context) error { return nil })
		}, want: "ack"},
		{name: "a retryable error leaves nothing", fn: errFlaky, want: "nak in 4s", err: errFlaky},
		{name: "an unknown outcome leaves nothing either", fn: idem.Unknown(errFlaky), want: "nak in 4s", err: errFlaky},
		{name: "a final error keeps the failure alone", fn: rejected, want: "dead_letter: rejected", err: errFlaky},
		{name: "in progress, for a time that nobody knows", setUp: func(_ *testing.T, s *txStore) { s.busy = true },
			want: "nak in 4s", err: idem.ErrInProgress},
		{name: "a rival was first", rival: errRival, want: "ack"},
		{name: "a rival was first, and fn failed", rival: errRival, fn: rejected, want: "ack"},
		{name: "the commit failed", setUp: func(_ *testing.T, s *txStore) { s.commit = errFlaky }, want: "nak in 4s", err: errFlaky},
		{name: "nobody knows whether it was committed", setUp: func(_ *testing.T, s *txStore) { s.commit = idem.ErrOutcomeUnknown },
			want: "nak in 4s", err: idem.ErrOutcomeUnknown}, // the record will tell
	} {
		synctestRun(t, tt.name, func(t *testing.T) {
			s := &txStore{Store: memstore.New()}
			if tt.setUp != nil {
				tt.setUp(t, s)
			}
			d := message("order-1")
			d.msg.Deliveries = 10
			dec, err := idemmq.HandleTx(t.Context(), s, "billing", d, func(ctx context.Context, tx *names) error {
				if tt.rival != nil {
					_, _ = idemmq.Handle(ctx, s, "billing", message("order-1"), func(context.Context) error { return nil })
				}
				tx.names = append(tx.names, "written")
				return tt.fn
			}, idemmq.WithBackoff(time.Second, 4*time.Second))
			if dec.Action == idemmq.Nak { // the backoff is jittered
				if dec.Delay < 2*time.Second || dec.Delay > 4*time.Second {
					t.Errorf("nak in %v, want between 2 and 4 s", dec.Delay)
				}
				dec.Delay = 4 * time.Second
			}
			if dec.String() != tt.want {
				t.Errorf("decision %v, want %s", dec, tt.want)
			}
			if !errors.Is(err, tt.err) || tt.err == nil && err != nil {
				t.Errorf("error %v, want %v", err, tt.err)
			}
			if len(s.written) != tt.written {
				t.Errorf("%d writes committed, want %d", len(s.written), tt.written)
			}
		})
	}
}
