package storetest

import (
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
)

var takeoverChecks = []check{
	{rule: "A claim with Replace must take over a free record as it was seen", run: func(p *probe) {
		for _, state := range states[1:] {
			if state.name == "a settled record" {
				continue
			}
			old := state.make(p)
			req := p.takeover(old.Key)
			req.Hash.Version, req.Reclaimed = 3, true
			attempt := 2
			if req.Replace == nil { // the store has forgotten it
				attempt = 1
			}
			p.isClaim(req, attempt, func() idem.Record { return p.own(req) })
		}
	}},
	{rule: "A takeover must compare nothing but state, token and attempt", run: func(p *probe) {
		req := p.takeover(p.stale().Key)
		req.Replace = &idem.Record{State: req.Replace.State, Token: req.Replace.Token, Attempt: req.Replace.Attempt}
		p.own(req)
	}},
	{rule: "B41 a takeover repeated with its own token must return its own record", run: func(p *probe) {
		for _, old := range []idem.ClaimRequest{p.stale(), p.released()} {
			req := p.takeover(old.Key)
			p.own(req)
			before := p.snapshot(req.Key)
			p.same(before, p.claim(req), "the answer to the repetition")
			p.unchanged(before, "after the repetition")
		}
	}},
	{rule: "A live claim must not be taken over", run: func(p *probe) {
		p.refused(p.takeover(p.live().Key), "a live claim")
	}},
	{rule: "A settled record must not be taken over before it expires", run: func(p *probe) {
		p.refused(p.takeover(p.settled().Key), "a settled record")
	}},
	{rule: "A claim that was renewed after it was seen stale must not be taken over", run: func(p *probe) {
		old := p.stale()
		req := p.takeover(old.Key)
		p.must(renew(p, old), "Renew")
		p.refused(req, "a renewed claim")
	}},
	{rule: "A claim that was completed after it was seen stale must not be taken over", run: func(p *probe) {
		old := p.stale()
		req := p.takeover(old.Key)
		p.must(complete(p, old), "Complete")
		p.refused(req, "a completed claim")
	}},
	{rule: "A claim that was completed after it was seen stale must not be taken over even when it has expired", run: func(p *probe) {
		old := p.stale()
		req := p.takeover(old.Key)
		old.Retention = short
		p.must(complete(p, old), "Complete")
		p.untilExpired(old.Key)
		before := p.snapshot(old.Key)
		if rec := p.claim(req); rec.Token == req.Token {
			p.errorf("the record was taken over although its state is another one than was seen")
		}
		p.unchanged(before, "after a takeover that must fail")
	}},
	{rule: "A claim that was released after it was seen stale must not be taken over", run: func(p *probe) {
		old := p.stale()
		req := p.takeover(old.Key)
		p.must(release(p, old), "Release")
		p.refused(req, "a released claim with another token")
	}},
	{rule: "A claim that a rival has taken over must not be taken over again", run: func(p *probe) {
		old := p.stale()
		req, rival := p.takeover(old.Key), p.takeover(old.Key)
		rival.Lease = short
		p.own(rival)
		p.untilStale(old.Key)
		p.refused(req, "a rival's stale claim")
	}},
	{rule: "A claim that was claimed and released after it was seen released must not be taken over", run: func(p *probe) {
		old := p.released()
		req, rival := p.takeover(old.Key), p.takeover(old.Key)
		p.own(rival)
		p.must(release(p, rival), "Release")
		p.refused(req, "a released claim with another attempt")
	}},
	{rule: "A takeover of a record that is gone must return the zero Record and insert nothing", run: func(p *probe) {
		req := request(p.key())
		req.Replace = &idem.Record{State: idem.Processing, Token: newID(), Attempt: 1}
		if diff := cmp.Diff(idem.Record{}, p.claim(req)); diff != "" {
			p.errorf("the record is not zero (-want +got):\n%s", diff)
		}
		if rec, found := p.find(req.Key); found {
			p.errorf("the takeover inserted %+v", rec)
		}
	}},
	{rule: "A record that was taken over must not show the former outcome", run: func(p *probe) {
		req := p.takeover(p.expiredOutcome().Key)
		for _, rec := range []idem.Record{p.own(req), p.lookup(req.Key)} {
			if diff := cmp.Diff(idem.Response{}, rec.Response); diff != "" {
				p.errorf("the response is still there (-want +got):\n%s", diff)
			}
			if rec.CompletedAt != (time.Time{}) {
				p.errorf("a processing record was completed at %v", rec.CompletedAt)
			}
		}
	}},
}

// refused fails the check if the claim gets the key, or changes what it has.
func (p *probe) refused(req idem.ClaimRequest, what string) {
	p.t.Helper()
	before := p.snapshot(req.Key)
	p.same(before, p.claim(req), "the answer of a takeover of %s", what)
	p.unchanged(before, "a takeover of %s", what)
}
