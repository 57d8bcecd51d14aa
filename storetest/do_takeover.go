package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem"
)

var doTakeoverChecks = []check{
	{rule: "B01 a dead owner must block its key for the lease and not for the retention", run: func(p *probe) {
		key := p.key()
		p.hold(key, "payload")
		_, err := p.do(key, "payload", p.mustNotRun())
		busy := new(idem.InProgressError)
		if !errors.As(err, &busy) || busy.RetryAfter <= 0 || busy.RetryAfter > long+slack {
			p.fatalf("a duplicate got %v while the lease of %v is alive", err, long)
		}

		key = p.key()
		p.die(key, "payload")
		dead := p.lookup(key)
		res, err := p.do(key, "payload", func(ctx context.Context) (string, idem.Status, error) {
			return fmt.Sprintf("%d %v %s", idem.Attempt(ctx), idem.Reclaimed(ctx), idem.ExecutionID(ctx)), 0, nil
		})
		p.must(err, "Do after the lease")
		if want := fmt.Sprintf("2 true %s", dead.ExecutionID); res.Value != want {
			p.errorf("attempt, reclaimed and execution id are %s, want %s", res.Value, want)
		}
		p.replays(key, "payload", res.Value)
	}},
	{rule: "A dead owner's key must be refused when its outcome is to be looked into", run: func(p *probe) {
		key := p.key()
		p.die(key, "payload")
		before := p.snapshot(key)
		_, err := p.do(key, "payload", p.mustNotRun(), idem.WithStale(idem.Refuse))
		p.wantError(err, idem.ErrOutcomeUnknown, "a duplicate")
		p.unchanged(before, "after a duplicate")
		_, err = idem.Resolve(p.ctx, p.store, key, returns("found out", 0))
		p.must(err, "Resolve")
		p.replays(key, "payload", "found out")
	}},
	{rule: "An owner whose lease is over but who was not replaced must record its outcome", run: func(p *probe) {
		late := p.slowOwner("payload", returns("late", 0))
		p.must(late.finish(), "the late owner's Do")
		p.replays(late.key, "payload", "late")
	}},
	{rule: "B21 a late owner that was replaced must get its value with ErrLeaseLost, and its rival's outcome stand", run: func(p *probe) {
		late := p.slowOwner("payload", returns("late", 0))
		_, err := p.do(late.key, "payload", returns("rival", 0))
		p.must(err, "the rival's Do")
		p.wantError(late.finish(), idem.ErrLeaseLost, "the late owner")
		if late.res.Value != "late" {
			p.errorf("the late owner's value is %q", late.res.Value)
		}
		if n := late.lost.Load(); n != 1 {
			p.errorf("%d events tell that the lease was lost", n)
		}
		p.replays(late.key, "payload", "rival")
	}},
	{rule: "B05 a late owner that fails must not free the claim of its rival", run: func(p *probe) {
		late := p.slowOwner("payload", fails("", 503, errNoneLeft))
		_, err := p.do(late.key, "payload", func(context.Context) (string, idem.Status, error) {
			p.wantError(late.finish(), errNoneLeft, "the late owner")
			_, err := p.do(late.key, "payload", p.mustNotRun())
			p.wantError(err, idem.ErrInProgress, "a third caller")
			return "rival", 0, nil
		})
		p.must(err, "the rival's Do")
		p.replays(late.key, "payload", "rival")
	}},
	{rule: "A late owner must not overwrite an outcome that was found out", run: func(p *probe) {
		late := p.slowOwner("payload", returns("late", 0))
		_, err := idem.Resolve(p.ctx, p.store, late.key, returns("found out", 0))
		p.must(err, "Resolve")
		p.wantError(late.finish(), idem.ErrLeaseLost, "the late owner")
		p.replays(late.key, "payload", "found out")
	}},
	{rule: "B07 a renewal that finds a rival must end the closure", run: func(p *probe) {
		key := p.key()
		_, err := p.do(key, "payload", func(ctx context.Context) (string, idem.Status, error) {
			p.until("a rival to take over", func() bool { // a renewal may come between
				p.lapse(key)
				rival := p.takeover(key)
				return p.claim(rival).Token == rival.Token
			})
			p.until("the closure's context to end", func() bool {
				if left := p.lookup(key).LeaseLeft; left < long/2 {
					p.fatalf("the rival's lease was changed: %v are left", left)
				}
				return ctx.Err() != nil
			})
			return "value", 0, context.Cause(ctx)
		}, idem.WithLease(time.Second))
		p.wantError(err, idem.ErrLeaseLost, "the owner")
	}},
	{rule: "A closure that takes longer than its lease must keep the key by renewal", run: func(p *probe) {
		var (
			key   = p.key()
			lease = 2 * time.Second
			store = p.intercept()
			over  = make(chan struct{})
			n     atomic.Int64
		)
		store.after = func(here point) error {
			if here == atRenew && n.Add(1) == 5 { // a third of the lease each
				close(over)
			}
			return nil
		}
		_, err := idem.Do(p.ctx, store, key, "payload", func(ctx context.Context) (string, idem.Status, error) {
			for {
				_, err := p.do(key, "payload", p.mustNotRun())
				p.wantError(err, idem.ErrInProgress, "a duplicate")
				select {
				case <-over:
					return "value", 0, context.Cause(ctx)
				case <-ctx.Done():
					return "", 0, context.Cause(ctx)
				case <-time.After(20 * time.Millisecond):
				}
			}
		}, idem.WithLease(lease))
		p.must(err, "Do")
		p.replays(key, "payload", "value")
	}},
}

// A slowOwner is a call of Do whose closure goes on until finish. In the store
// its lease is over.
type slowOwner struct {
	key    idem.Key
	res    idem.Result[string] // once it has finished
	lost   atomic.Int64        // events of the lost lease
	finish func() error
}

func (p *probe) slowOwner(payload string, fn closure) *slowOwner {
	p.t.Helper()
	o := &slowOwner{key: p.key()}
	running, end, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		var err error
		o.res, err = p.do(o.key, payload, func(ctx context.Context) (string, idem.Status, error) {
			close(running)
			<-end
			return fn(ctx)
		}, idem.WithLease(long), idem.WithObserver(func(_ context.Context, e idem.Event) {
			if e.Kind == idem.EventLeaseLost {
				o.lost.Add(1)
			}
		}))
		ended <- err
	}()
	o.finish = func() error {
		close(end)
		return <-ended
	}
	p.await(running, "a closure to start")
	p.lapse(o.key)
	return o
}
