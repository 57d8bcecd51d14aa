package storetest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem"
)

var doReplyChecks = []check{
	{rule: "B41 an owner whose claim was carried out but not answered must recognise it and run", run: func(p *probe) {
		key := p.key()
		res, err := idem.Do(p.ctx, p.losing(atClaim, 1), key, "payload", returns("value", 0))
		p.must(err, "Do")
		if res.Attempt != 1 || res.Replayed {
			p.errorf("got %+v", res)
		}
		p.replays(key, "payload", "value")
	}},
	{rule: "B41 an owner whose takeover was carried out but not answered must recognise it and run", run: func(p *probe) {
		key := p.key()
		p.die(key, "payload")
		res, err := idem.Do(p.ctx, p.losing(atTakeover, 1), key, "payload", returns("value", 0))
		p.must(err, "Do")
		if res.Attempt != 2 || res.Replayed {
			p.errorf("got %+v", res)
		}
		p.replays(key, "payload", "value")
	}},
	{rule: "B41 an owner whose claims are never answered must not run, and the key must free itself", run: func(p *probe) {
		key := p.key()
		_, err := idem.Do(p.ctx, p.losing(atClaim, 1000), key, "payload", p.mustNotRun(), idem.WithLease(short))
		p.wantError(err, idem.ErrUnavailable, "the call without answers")
		p.untilStale(key)
		_, err = p.do(key, "payload", returns("value", 0))
		p.must(err, "Do after the lease")
	}},
	{rule: "B41 a completion that was carried out but not answered must not be an error", run: func(p *probe) {
		key := p.key()
		res, err := idem.Do(p.ctx, p.losing(atComplete, 2), key, "payload", returns("value", 0))
		p.must(err, "Do")
		if rec := p.lookup(key); !rec.CompletedAt.Equal(res.CompletedAt) {
			p.errorf("completed at %v, recorded at %v", res.CompletedAt, rec.CompletedAt)
		}
		p.replays(key, "payload", "value")
	}},
	{rule: "B41 a release that was carried out but not answered must free the key", run: func(p *probe) {
		key := p.key()
		_, err := idem.Do(p.ctx, p.losing(atRelease, 2), key, "payload", fails("", 503, errNoneLeft))
		if !errors.Is(err, errNoneLeft) || errors.Is(err, idem.ErrLeaseLost) {
			p.errorf("the first call got %v", err)
		}
		_, err = p.do(key, "payload", returns("value", 0))
		p.must(err, "Do, repeated")
	}},
	{rule: "B07 a renewal that was carried out but not answered must not end the closure", run: func(p *probe) {
		var (
			store   = p.losing(atRenew, 1)
			lose    = store.after
			renewed = make(chan struct{})
			n       atomic.Int64
		)
		store.after = func(here point) error {
			if here == atRenew && n.Add(1) == 2 {
				close(renewed)
			}
			return lose(here)
		}
		_, err := idem.Do(p.ctx, store, p.key(), "payload", func(ctx context.Context) (string, idem.Status, error) {
			select {
			case <-renewed:
			case <-ctx.Done():
			}
			return "", 0, context.Cause(ctx)
		}, idem.WithLease(2400*time.Millisecond))
		p.must(err, "Do")
	}},
	{rule: "B43 a caller that goes away during its claim must leave no claim", run: func(p *probe) {
		key := p.key()
		p.goAway(key, atClaim)
		if rec, found := p.find(key); found && rec.LeaseLeft > 0 {
			p.errorf("the claim is still there, with %v of its lease", rec.LeaseLeft)
		}
		_, err := p.do(key, "another", returns("value", 0))
		p.must(err, "Do, repeated")
	}},
	{rule: "B43 a caller that goes away during its takeover must leave the outcome unknown", run: func(p *probe) {
		key := p.key()
		p.die(key, "payload")
		p.goAway(key, atTakeover)
		p.untilStale(key)
		p.mismatch(key)
		res, err := p.do(key, "payload", func(ctx context.Context) (string, idem.Status, error) {
			if !idem.Reclaimed(ctx) {
				p.errorf("the run is not told that an earlier one has no outcome")
			}
			return "value", 0, nil
		})
		if err != nil || res.Replayed {
			p.errorf("got %+v, error %v", res, err)
		}
	}},
}

// goAway calls Do with a context that ends when the store has carried out a
// claim.
func (p *probe) goAway(key idem.Key, at point) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	store := p.intercept()
	store.after = onFirst(at, cancel)
	_, err := idem.Do(ctx, store, key, "payload", p.mustNotRun())
	p.wantError(err, context.Canceled, "the caller that went away")
}
