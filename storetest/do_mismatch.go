package storetest

import (
	"github.com/idem-go/idem"
)

var doMismatchChecks = []check{
	{rule: "B33 another payload must be a mismatch, not a second run or a second record", run: func(p *probe) {
		key := p.key()
		_, err := p.do(key, "payload", returns("value", 0))
		p.must(err, "Do")
		p.mismatch(key)
		p.replays(key, "payload", "value")
	}},
	{rule: "B53 another payload must be a mismatch while the key is in progress", run: func(p *probe) {
		key := p.key()
		p.hold(key, "payload")
		p.mismatch(key)
	}},
	{rule: "B53 another payload must be a mismatch when the owner has died", run: func(p *probe) {
		key := p.key()
		p.die(key, "payload")
		p.mismatch(key)
		p.mismatch(key, idem.WithStale(idem.Refuse))
	}},
	{rule: "B53 another payload must be a mismatch for those who wait", run: func(p *probe) {
		key := p.key()
		p.hold(key, "payload")
		p.mismatch(key, idem.WithWait(short))
	}},
	{rule: "B53 another payload must be a mismatch when its owner was slow and won the race for the key", run: func(p *probe) {
		key := p.key()
		p.die(key, "another")
		racing := p.intercept()
		racing.before = onFirst(atTakeover, func() { // what looked stale is freed, and taken by the other payload
			rec := p.lookup(key)
			p.must(release(p, idem.ClaimRequest{Key: key, Token: rec.Token, Retention: long}), "Release")
			_, err := p.do(key, "payload", returns("value", 0))
			p.must(err, "Do")
		})
		_, err := idem.Do(p.ctx, racing, key, "another", p.mustNotRun())
		p.wantError(err, idem.ErrPayloadMismatch, "the caller that lost the race")
		p.replays(key, "payload", "value")
	}},
	{rule: "B53 another payload must be a mismatch when its owner came between a claim and its repetition", run: func(p *probe) {
		key := p.key()
		racing := p.intercept()
		racing.before = onFirst(atClaim, func() {
			_, err := p.do(key, "payload", returns("value", 0))
			p.must(err, "Do")
		})
		_, err := idem.Do(p.ctx, racing, key, "another", p.mustNotRun())
		p.wantError(err, idem.ErrPayloadMismatch, "the caller that came second")
	}},
}

// mismatch fails the check if a call with another payload than "payload" gets
// anything but a mismatch.
func (p *probe) mismatch(key idem.Key, opts ...idem.Option) {
	p.t.Helper()
	before := p.snapshot(key)
	res, err := p.do(key, "another", p.mustNotRun(), opts...)
	p.wantError(err, idem.ErrPayloadMismatch, "another payload")
	if res != (idem.Result[string]{}) {
		p.errorf("a mismatch tells of the record: %+v", res)
	}
	p.unchanged(before, "after a mismatch")
}
