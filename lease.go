package idem

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A lease keeps a claim alive while its closure runs. Until a third of it has
// passed it costs one timer; only then a goroutine and requests.
//
// Instants are only ever the store's. What this process measures is how much
// time has passed, on its monotonic clock, since before it sent the request
// that the store last confirmed: so until never lies after the true end.
type lease struct {
	work   execution
	call   *call
	cancel context.CancelCauseFunc // ends the closure's context

	mu    sync.Mutex
	until time.Time
	over  bool // the run has ended, or the lease is lost
	lost  bool
	timer *time.Timer

	// Of keep, once it has begun.
	wake    chan struct{} // closed when over becomes true
	ended   chan struct{} // closed when keep has returned
	abandon context.CancelFunc
}

// hold returns the closure's context and the lease that it runs under.
func (c *call) hold(ctx context.Context, rec Record, until time.Time) (context.Context, *lease) {
	l := &lease{call: c, until: until}
	l.work.start(ctx, c, rec)
	l.work.open = true
	ctx, cancel := context.WithCancelCause(&l.work)
	l.cancel = cancel
	left := time.Until(until)
	l.mu.Lock()
	defer l.mu.Unlock()
	if bindingOf(c.store) == BoundToNothing {
		l.timer = time.AfterFunc(left-2*(c.cfg.lease/3), l.keep) // a third after the claim was sent
	} else {
		l.timer = time.AfterFunc(left, l.lose) // the closure may be using the only connection
	}
	return ctx, l
}

// keep renews the lease every third of it. An unanswered renewal proves
// nothing before the last confirmed end; from then on another owner may run.
func (l *lease) keep() {
	ctx, ok := l.begin()
	if !ok {
		return
	}
	defer close(l.ended)
	end := time.AfterFunc(time.Until(l.until), l.lose)
	defer end.Stop()
	for !l.isOver() {
		pause, err := l.renew(ctx)
		switch {
		case l.isOver(): // the run has ended meanwhile: the answer does not matter
			return
		case errors.Is(err, ErrLeaseLost):
			l.lose()
			return
		case err != nil:
			l.call.event(EventRenewalFailed, l.work.rec, err)
		default:
			end.Reset(time.Until(l.until))
		}
		select {
		case <-l.wake:
			return
		case <-time.After(pause):
		}
	}
}

func (l *lease) begin() (context.Context, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return nil, false
	}
	ctx, cancel := context.WithCancel(l.call.background)
	l.abandon, l.wake, l.ended = cancel, make(chan struct{}), make(chan struct{})
	return ctx, true
}

// renew asks once, and says how long to pause before the next time.
func (l *lease) renew(ctx context.Context) (pause time.Duration, err error) {
	length := l.call.cfg.lease
	sent, err := l.call.renew(ctx, l.work.rec)
	if err != nil {
		return min(length/10, time.Second), err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = sent.Add(length)
	return length / 3, nil
}

func (l *lease) isOver() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over
}

// finish makes the lease be over; mu is held. It reports whether it was not.
func (l *lease) finish() bool {
	if l.over {
		return false
	}
	l.over = true
	if l.wake != nil {
		close(l.wake)
	}
	return true
}

// lose tells the closure that it may no longer be the only one.
func (l *lease) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.finish() {
		return
	}
	l.lost = true
	if l.abandon != nil {
		l.abandon()
	}
	l.cancel(ErrLeaseLost)
	l.call.event(EventLeaseLost, l.work.rec, nil)
}

// stop is called when the closure has returned. No renewal is sent after it;
// one that is under way may still be, so that the answer need not wait for it.
func (l *lease) stop() (lost bool, until time.Time) {
	l.work.close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer.Stop()
	l.finish()
	l.cancel(nil)
	return l.lost, l.until
}

// join returns when no renewal is under way any more.
func (l *lease) join() {
	if l.ended != nil {
		l.abandon()
		<-l.ended
	}
}
