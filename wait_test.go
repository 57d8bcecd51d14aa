package idem_test

import (
	"context"
	"testing"
	"time"

	"github.com/idem-go/idem"
)

// owner starts a call whose closure takes d, and returns when it runs.
func owner(t *testing.T, s idem.Store, d time.Duration, status idem.Status, opts ...idem.Option) (wait func()) {
	t.Helper()
	running := make(chan struct{})
	wait = goes(func() {
		_, err := idem.Do(t.Context(), s, testKey, payload, func(context.Context) (string, idem.Status, error) {
			close(running)
			pass(d)
			return "owner's", status, nil
		}, opts...)
		wantErr(t, err)
	})
	<-running
	return wait
}

func TestWait(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		takes  time.Duration
		status idem.Status
		wait   time.Duration

		value    string
		want     idem.Status
		replayed bool
		err      error
		atLeast  time.Duration
		atMost   time.Duration
	}{
		{
			name: "the outcome is replayed", takes: 10 * time.Second, status: 201, wait: time.Minute,
			value: "owner's", want: 201, replayed: true, atLeast: 10 * time.Second, atMost: 11 * time.Second,
		},
		{
			name: "a short wait is answered soon", takes: 50 * time.Millisecond, status: 201, wait: time.Minute,
			value: "owner's", want: 201, replayed: true, atLeast: 50 * time.Millisecond, atMost: 100 * time.Millisecond,
		},
		{
			name: "a failure is replayed", takes: time.Second, status: 409, wait: time.Minute,
			value: "owner's", want: 409, replayed: true, atLeast: time.Second, atMost: 2 * time.Second,
		},
		{
			name: "if the key is freed the waiter runs", takes: 10 * time.Second, status: 503, wait: time.Minute,
			value: "waiter's", want: 200, atLeast: 10 * time.Second, atMost: 11 * time.Second,
		},
		{
			name: "it ends in time", takes: time.Hour, status: 201, wait: 1234 * time.Millisecond,
			err: idem.ErrInProgress, atLeast: 1234 * time.Millisecond, atMost: 1234 * time.Millisecond,
		},
		{name: "no wait", takes: time.Hour, status: 201, err: idem.ErrInProgress},
		{
			name: "a wait as long as can be", takes: 10 * time.Second, status: 201, wait: 1<<63 - 1,
			value: "owner's", want: 201, replayed: true, atLeast: 10 * time.Second, atMost: 11 * time.Second,
		},
	} {
		synctestRun(t, tt.name, func(t *testing.T) {
			s, w, events := newSpy(), returns("waiter's", 200, nil), &recorder{}
			ended := owner(t, s.Store, tt.takes, tt.status)
			began := time.Now()
			res, err := idem.Do(t.Context(), s, testKey, payload, w.fn, idem.WithWait(tt.wait), events.option())
			took := time.Since(began)
			wantErr(t, err, targets(tt.err)...)
			wantResult(t, res, tt.value, tt.want, tt.replayed)
			if took < tt.atLeast || took > tt.atMost {
				t.Errorf("it took %v, want %v to %v", took, tt.atLeast, tt.atMost)
			}
			if got, most := s.count("claim"), 8+int(took/time.Second); got > most {
				t.Errorf("%d requests in %v, want at most %d", got, took, most)
			}
			if got := len(events.all()); got != 1 {
				t.Errorf("events %+v, want one", events.all())
			}
			ended()
		})
	}
}

func TestWaiterMeetsADeadOwner(t *testing.T) {
	t.Parallel()
	synctestRun(t, "it reclaims the key as soon as the lease is over", func(t *testing.T) {
		s, w := newSpy(), returns("waiter's", 200, nil)
		abandon(t, s, testKey, payload, idem.WithLease(lease))
		began := time.Now()
		res, err := idem.Do(t.Context(), s, testKey, payload, w.fn, idem.WithWait(time.Hour))
		wantErr(t, err)
		wantResult(t, res, "waiter's", 200, false)
		if took := time.Since(began); took != lease {
			t.Errorf("it took %v, want the lease, %v", took, lease)
		}
	})
	synctestRun(t, "it gets an unknown outcome where the policy is to refuse", func(t *testing.T) {
		s, w := newSpy(), returns("waiter's", 200, nil)
		abandon(t, s, testKey, payload, idem.WithLease(lease))
		_, err := idem.Do(t.Context(), s, testKey, payload, w.fn, idem.WithWait(time.Hour), idem.WithStale(idem.Refuse))
		wantErr(t, err, idem.ErrOutcomeUnknown)
		w.wantRuns(t, 0)
	})
}

func TestWaitEndsWithTheContext(t *testing.T) {
	t.Parallel()
	synctestRun(t, "which ends", func(t *testing.T) {
		s, w, events := newSpy(), returns("waiter's", 200, nil), &recorder{}
		ended := owner(t, s, time.Minute, 201)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		_, err := idem.Do(ctx, s, testKey, payload, w.fn, idem.WithWait(time.Hour), events.option())
		wantErr(t, err, context.DeadlineExceeded, idem.ErrInProgress)
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("it took %v", took)
		}
		events.wantKinds(t, idem.EventInProgress)
		ended()
		w.wantRuns(t, 0)
	})
}

// Of many waiters one runs when the key is freed, and the others replay.
func TestWaitersTakeTurns(t *testing.T) {
	t.Parallel()
	synctestRun(t, "50 of them", func(t *testing.T) {
		s := newSpy()
		ended := owner(t, s, time.Second, 503)
		w := works(func(context.Context) (string, idem.Status, error) {
			pass(time.Second)
			return "waiter's", 200, nil
		})
		var waits []func()
		for range 50 {
			waits = append(waits, goes(func() {
				res, err := idem.Do(t.Context(), s, testKey, payload, w.fn, idem.WithWait(time.Minute))
				wantErr(t, err)
				wantResult(t, res, "waiter's", 200, res.Replayed)
			}))
		}
		ended()
		for _, wait := range waits {
			wait()
		}
		w.wantRuns(t, 1)
	})
}

func TestWaitWithinATransactionIsAnOptionError(t *testing.T) {
	t.Parallel()
	s, w := newSpy(), returns("v", 200, nil)
	_, err := idem.Do(t.Context(), bound{s, idem.BoundToTx}, testKey, payload, w.fn, idem.WithWait(time.Second))
	wantErr(t, err, idem.ErrInvalidOption)
	w.wantRuns(t, 0)
	s.wantCalls(t)
	_, err = idem.Do(t.Context(), bound{s, idem.BoundToConn}, testKey, payload, w.fn, idem.WithWait(time.Second))
	wantErr(t, err)
}
