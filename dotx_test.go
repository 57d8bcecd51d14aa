package idem_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
)

// A txSpy is a spy with transactions of a kind: their only write is the record.
// Its log tells how they end.
type txSpy struct {
	*spy
	onBegin  func() error
	onFinish func() error // before the record is written
	busy     time.Time    // until then another transaction is at work
}

type transaction struct {
	s      *txSpy
	rec    idem.Record
	locked bool
}

func (s *txSpy) BeginTx(ctx context.Context, req idem.BeginRequest) (idem.Transaction[string], error) {
	s.called("begin")
	if s.onBegin != nil {
		if err := s.onBegin(); err != nil {
			return nil, err
		}
	}
	rec, _, err := s.Store.Lookup(ctx, req.Key)
	return &transaction{s, rec, !time.Now().Before(s.busy)}, err
}

func (tx *transaction) Record() (idem.Record, bool) { return tx.rec, tx.locked }
func (tx *transaction) Tx() string                  { return "tx" }
func (tx *transaction) Rollback(context.Context)    { tx.s.called("rollback") }

func (tx *transaction) Finish(ctx context.Context, req idem.FinishRequest) (time.Time, error) {
	if req.Undo {
		tx.s.called("undo")
	}
	tx.s.called("finish")
	if tx.s.onFinish != nil {
		if err := tx.s.onFinish(); err != nil {
			return time.Time{}, err
		}
	}
	rec, err := tx.s.Store.Claim(ctx, req.Claim)
	if err == nil && rec.Token != req.Claim.Token {
		err = idem.ErrLeaseLost
	}
	if err != nil {
		return time.Time{}, err
	}
	return tx.s.Store.Complete(ctx, idem.CompleteRequest{
		Key: req.Claim.Key, Token: req.Claim.Token, State: req.State, Response: req.Response, Retention: req.Claim.Retention,
	})
}

func (tx *transaction) Complete(ctx context.Context, req idem.CompleteRequest) (time.Time, error) {
	tx.s.called("commit")
	if tx.s.onFinish != nil {
		if err := tx.s.onFinish(); err != nil {
			return time.Time{}, err
		}
	}
	return tx.s.Store.Complete(ctx, req)
}

// inTx makes a worker one for DoTx.
func inTx[T any](w *worker[T]) func(context.Context, string) (T, idem.Status, error) {
	return func(ctx context.Context, _ string) (T, idem.Status, error) { return w.fn(ctx) }
}

func TestDoTxEndsItsTransaction(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		status idem.Status
		err    error
		calls  []string
		next   error // of Peek
		replay bool
	}{
		{"a success commits with the closure's writes", 201, nil, []string{"begin", "finish"}, nil, true},
		{"a refusal without an error does, too", 409, nil, []string{"begin", "finish"}, nil, true},
		{"a failure is kept, but not the writes", 409, errBusiness, []string{"begin", "undo", "finish"}, nil, true},
		{"a passing failure leaves nothing", 503, errBusiness, []string{"begin", "rollback"}, nil, false},
		{"an unknown outcome leaves nothing", 0, idem.Unknown(errBusiness), []string{"begin", "rollback"}, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, w, events := &txSpy{spy: newSpy()}, returns("v", tt.status, tt.err), &recorder{}
			res, err := idem.DoTx(t.Context(), s, testKey, payload, inTx(w), events.option())
			if err != tt.err { //nolint:errorlint // unwrapped is the point
				t.Errorf("err = %v, want the closure's own, %v", err, tt.err)
			}
			wantResult(t, res, "v", tt.status, false)
			s.wantCalls(t, tt.calls...)
			events.wantKinds(t, idem.EventExecuted)
			replay, err := idem.Peek(t.Context(), s, testKey, payload)
			wantErr(t, err, targets(tt.next)...)
			if replay != tt.replay {
				t.Errorf("replay = %v, want %v", replay, tt.replay)
			}
		})
	}
}

func TestDoTxRollsBackWhenTheClosurePanics(t *testing.T) {
	t.Parallel()
	s := &txSpy{spy: newSpy()}
	func() {
		defer func() {
			if p, ok := recover().(*thrown); !ok || p.reason != "original" {
				t.Errorf("recovered %v, want the original value", p)
			}
		}()
		_, _ = idem.DoTx(t.Context(), s, testKey, payload, func(ctx context.Context, _ string) (string, idem.Status, error) {
			return panicsHere(ctx)
		})
	}()
	s.wantCalls(t, "begin", "rollback")
}

func TestDoTxMeetsARecord(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		before func(*testing.T, *txSpy)
		opts   []idem.Option
		err    error
		value  string
		replay bool
		runs   int
	}{
		{name: "settled", before: func(t *testing.T, s *txSpy) {
			_, err := idem.Do(t.Context(), s.Store, testKey, payload, returns("old", 200, nil).fn)
			wantErr(t, err)
		}, value: "old", replay: true},
		{name: "settled, with another payload", before: func(t *testing.T, s *txSpy) {
			_, err := idem.Do(t.Context(), s.Store, testKey, otherPayload, returns("old", 200, nil).fn)
			wantErr(t, err)
		}, err: idem.ErrPayloadMismatch},
		{name: "in progress", before: func(t *testing.T, s *txSpy) { abandon(t, s.Store, testKey, payload) }, err: idem.ErrInProgress},
		{name: "stale", before: func(t *testing.T, s *txSpy) {
			abandon(t, s.Store, testKey, payload, idem.WithLease(lease))
			pass(lease)
		}, value: "new", runs: 1},
		{name: "stale, refused", before: func(t *testing.T, s *txSpy) {
			abandon(t, s.Store, testKey, payload, idem.WithLease(lease))
			pass(lease)
		}, opts: []idem.Option{idem.WithStale(idem.Refuse)}, err: idem.ErrOutcomeUnknown},
		{name: "another transaction is at work", before: func(_ *testing.T, s *txSpy) { s.busy = time.Now().Add(time.Hour) }, err: idem.ErrInProgress},
		{
			name:   "a waiter waits for that transaction",
			before: func(_ *testing.T, s *txSpy) { s.busy = time.Now().Add(5 * time.Second) },
			opts:   []idem.Option{idem.WithWait(time.Minute)}, value: "new", runs: 1,
		},
		{name: "the store is down", before: func(_ *testing.T, s *txSpy) { s.onBegin = func() error { return errStore } }, err: idem.ErrUnavailable},
	} {
		synctestRun(t, tt.name, func(t *testing.T) {
			s, w := &txSpy{spy: newSpy()}, returns("new", 200, nil)
			tt.before(t, s)
			res, err := idem.DoTx(t.Context(), s, testKey, payload, inTx(w), tt.opts...)
			wantErr(t, err, targets(tt.err)...)
			if res.Value != tt.value || res.Replayed != tt.replay {
				t.Errorf("value %q, replayed %v, want %q, %v", res.Value, res.Replayed, tt.value, tt.replay)
			}
			w.wantRuns(t, tt.runs)
			wantEnded(t, s)
		})
	}
}

// wantEnded checks that every transaction has ended.
func wantEnded(t *testing.T, s *txSpy) {
	t.Helper()
	if s.onBegin != nil {
		return
	}
	if began, ended := s.count("begin"), s.count("rollback")+s.count("finish"); began != ended {
		t.Errorf("%d transactions began, %d ended", began, ended)
	}
}

func TestDoTxWhoseCommitFails(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		finish func(*testing.T, *txSpy) error
		err    error
		value  string
		replay bool
		kinds  []idem.EventKind
	}{
		{"a rival was first", func(t *testing.T, s *txSpy) error {
			_, err := idem.Do(t.Context(), s.Store, testKey, payload, returns("rival", 200, nil).fn)
			return err
		}, nil, "rival", true, []idem.EventKind{idem.EventExecuted, idem.EventLeaseLost, idem.EventReplayed}},
		{"a rival with another payload was first", func(t *testing.T, s *txSpy) error {
			_, err := idem.Do(t.Context(), s.Store, testKey, otherPayload, returns("rival", 200, nil).fn)
			return err
		}, idem.ErrPayloadMismatch, "", false, []idem.EventKind{idem.EventExecuted, idem.EventLeaseLost, idem.EventMismatch}},
		{"a rival is running", func(t *testing.T, s *txSpy) error {
			abandon(t, s.Store, testKey, payload)
			return nil
		}, idem.ErrInProgress, "", false, []idem.EventKind{idem.EventExecuted, idem.EventLeaseLost, idem.EventInProgress}},
		{"nobody can tell", func(*testing.T, *txSpy) error { return idem.Unknown(errStore) },
			idem.ErrOutcomeUnknown, "new", false, []idem.EventKind{idem.EventExecuted, idem.EventOutcomeUnknown}},
		{"the connection broke", func(*testing.T, *txSpy) error { return errStore },
			idem.ErrUnavailable, "", false, []idem.EventKind{idem.EventExecuted, idem.EventUnavailable}},
		{"a constraint refused it", func(*testing.T, *txSpy) error { return idem.Permanent(errStore) },
			errStore, "", false, []idem.EventKind{idem.EventExecuted}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, w, events := &txSpy{spy: newSpy()}, returns("new", 200, nil), &recorder{}
			s.onFinish = func() error { return tt.finish(t, s) }
			res, err := idem.DoTx(t.Context(), s, testKey, payload, inTx(w), events.option())
			wantErr(t, err, targets(tt.err)...)
			if res.Value != tt.value || res.Replayed != tt.replay {
				t.Errorf("value %q, replayed %v, want %q, %v", res.Value, res.Replayed, tt.value, tt.replay)
			}
			w.wantRuns(t, 1)
			events.wantKinds(t, tt.kinds...)
		})
	}
}

func TestDoTxChecksItsArguments(t *testing.T) {
	t.Parallel()
	s, w := &txSpy{spy: newSpy()}, returns("v", 200, nil)
	_, err := idem.DoTx(t.Context(), s, idem.Key{}, payload, inTx(w))
	wantErr(t, err, idem.ErrInvalidKey)
	_, err = idem.DoTx(t.Context(), s, testKey, make(chan int), inTx(w))
	wantErr(t, err, idem.ErrInvalidPayload)
	_, err = idem.DoTx[string](t.Context(), s, testKey, payload, nil)
	wantErr(t, err, idem.ErrInvalidOption)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = idem.DoTx(ctx, s, testKey, payload, inTx(w))
	wantErr(t, err, context.Canceled)
	w.wantRuns(t, 0)
	s.wantCalls(t)
}

// enlist is what a store's own function, such as pg.Begin, does.
func enlist(ctx context.Context, s *txSpy) error {
	return idem.Enlist(ctx, func(claim idem.Claim) (idem.Enlisted, error) {
		if claim.Token == (idem.ID{}) || claim.Lease <= 0 {
			return nil, errors.New("the transaction is not told of the claim")
		}
		return &transaction{s: s}, nil
	})
}

func TestEnlistedTransactionEndsWithTheRun(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		status idem.Status
		err    error
		calls  []string
	}{
		{"a success commits", 201, nil, []string{"claim", "commit"}},
		{"a failure is kept, but not the writes", 409, errBusiness, []string{"claim", "rollback", "complete"}},
		{"a passing failure rolls back", 503, nil, []string{"claim", "rollback", "release"}},
		{"an unknown outcome rolls back", 0, context.Canceled, []string{"claim", "rollback"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := &txSpy{spy: newSpy()}
			_, err := idem.Do(t.Context(), s, testKey, payload, func(ctx context.Context) (string, idem.Status, error) {
				wantErr(t, enlist(ctx, s))
				wantErr(t, enlist(ctx, s), idem.ErrInvalidOption) // one is enough
				return "v", tt.status, tt.err
			})
			wantErr(t, err, targets(tt.err)...)
			s.wantCalls(t, tt.calls...)
		})
	}
	t.Run("a panic rolls back", func(t *testing.T) {
		t.Parallel()
		s := &txSpy{spy: newSpy()}
		func() {
			defer func() { _ = recover() }()
			_, _ = idem.Do(t.Context(), s, testKey, payload, func(ctx context.Context) (string, idem.Status, error) {
				wantErr(t, enlist(ctx, s))
				panic("original")
			})
		}()
		s.wantCalls(t, "claim", "rollback")
	})
}

// Whatever of the caller's own panics while the run is settled, the transaction
// ends.
func TestEnlistedTransactionEndsThoughTheRuleForItPanics(t *testing.T) {
	t.Parallel()
	s := &txSpy{spy: newSpy()}
	func() {
		defer func() {
			if p := recover(); p != "rule" {
				t.Errorf("recovered %v, want the rule's panic", p)
			}
		}()
		_, _ = idem.Do(t.Context(), s, testKey, payload, func(ctx context.Context) (string, idem.Status, error) {
			return "v", 200, enlist(ctx, s)
		}, idem.WithDisposition(func(idem.Outcome) idem.Disposition { panic("rule") }))
	}()
	s.wantCalls(t, "claim", "rollback")
}

func TestEnlistedCommitThatFails(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		commit error
		want   error
	}{
		{"the claim was lost", idem.ErrLeaseLost, idem.ErrLeaseLost},
		{"nobody can tell", idem.Unknown(errStore), idem.ErrOutcomeUnknown},
		{"it was rolled back", errStore, errStore},
	} {
		synctestRun(t, tt.name, func(t *testing.T) {
			s := &txSpy{spy: newSpy(), onFinish: func() error { return tt.commit }}
			res, err := idem.Do(t.Context(), s, testKey, payload, func(ctx context.Context) (string, idem.Status, error) {
				wantErr(t, enlist(ctx, s))
				return "v", 200, nil
			}, idem.WithLease(lease))
			wantErr(t, err, tt.want)
			if !res.CompletedAt.IsZero() {
				t.Error("CompletedAt is set, though nothing was recorded")
			}
			s.wantCalls(t, "claim", "commit") // it is not tried again, nor recorded on its own
			_, err = idem.Do(t.Context(), s, testKey, payload, returns("", 200, nil).fn)
			wantErr(t, err, idem.ErrInProgress) // held
		})
	}
}

func TestEnlistNeedsARunningClosure(t *testing.T) {
	t.Parallel()
	s := &txSpy{spy: newSpy()}
	wantErr(t, enlist(t.Context(), s), idem.ErrInvalidOption)
	var kept context.Context
	_, err := idem.Do(t.Context(), s, testKey, payload, func(ctx context.Context) (string, idem.Status, error) {
		kept = ctx
		return "v", 200, nil
	})
	wantErr(t, err)
	wantErr(t, enlist(kept, s), idem.ErrInvalidOption)
	_, err = idem.DoTx(t.Context(), s, idem.Key{User: "u", Scope: "s", Key: "tx"}, payload, func(ctx context.Context, _ string) (string, idem.Status, error) {
		wantErr(t, enlist(ctx, s), idem.ErrInvalidOption) // it runs in one already
		return "v", 200, nil
	})
	wantErr(t, err)
	failed := errors.New("no connection left")
	_, err = idem.Do(t.Context(), s, idem.Key{User: "u", Scope: "s", Key: "none"}, payload, func(ctx context.Context) (string, idem.Status, error) {
		return "", 503, idem.Enlist(ctx, func(idem.Claim) (idem.Enlisted, error) { return nil, failed })
	})
	wantErr(t, err, failed)
}

// The closure of DoTx knows its run as that of Do does.
func TestDoTxTellsItsClosureOfTheRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, events := &txSpy{spy: newSpy()}, &recorder{}
		abandon(t, s.Store, testKey, payload, idem.WithLease(lease))
		id := record(t, s.Store).ExecutionID.String()
		pass(lease)
		var see seen
		res, err := idem.DoTx(t.Context(), s, testKey, payload, func(ctx context.Context, _ string) (string, idem.Status, error) {
			return see.fn(ctx, 200, nil)
		}, events.option())
		wantErr(t, err)
		if diff := cmp.Diff(seen{id, 2, true}, see); diff != "" {
			t.Errorf("the closure saw (-want +got):\n%s", diff)
		}
		if res.ExecutionID != id || res.Attempt != 2 {
			t.Errorf("result has id %v, attempt %d", res.ExecutionID, res.Attempt)
		}
		events.wantKinds(t, idem.EventReclaimed, idem.EventExecuted)
	})
}

// As with Do: nobody is there any more, and nothing has happened yet.
func TestDoTxWhoseContextEndsWhileItBegins(t *testing.T) {
	t.Parallel()
	s, w := &txSpy{spy: newSpy()}, returns("v", 200, nil)
	ctx, cancel := context.WithCancel(t.Context())
	s.onBegin = func() error { cancel(); return nil }
	_, err := idem.DoTx(ctx, s, testKey, payload, inTx(w))
	wantErr(t, err, context.Canceled)
	w.wantRuns(t, 0)
	s.wantCalls(t, "begin", "rollback")
}
