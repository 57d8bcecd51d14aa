package storetest

import (
	"github.com/idem-go/idem"
)

var fenceChecks = []check{
	{rule: "A completion with another claim's token must change nothing", run: fenced(complete)},
	{rule: "B05 a release with another claim's token must change nothing", run: fenced(release)},
	{rule: "A renewal with another claim's token must change nothing", run: fenced(renew)},
	{rule: "B21 a completion by a late owner that was replaced must change nothing", run: fencedLate(complete)},
	{rule: "B05 a release by a late owner that was replaced must change nothing", run: fencedLate(release)},
	{rule: "A renewal by a late owner that was replaced must change nothing", run: fencedLate(renew)},
	{rule: "A token that was released must hold nothing", run: func(p *probe) {
		req := p.released()
		p.lost(req, "a released claim's owner", complete, release, renew)
	}},
	{rule: "No token must hold a released record", run: func(p *probe) {
		req := p.released()
		req.Token = idem.ID{}
		p.lost(req, "an owner without a token", complete, release, renew)
	}},
	{rule: "A settled record must be neither released nor renewed, even by its owner", run: func(p *probe) {
		p.lost(p.settled(), "a settled record's owner", release, renew)
	}},
	{rule: "An absent key must be neither completed nor released nor renewed", run: func(p *probe) {
		p.lost(request(p.key()), "nobody", complete, release, renew)
	}},
	{rule: "The token of one key must hold no other", run: func(p *probe) {
		req := p.live()
		req.Key = p.live().Key
		p.lost(req, "the owner of another key", complete, release, renew)
	}},
	{rule: "An owner whose lease is over but who was not replaced must complete: the fence is the token, not the time", run: func(p *probe) {
		req := p.stale()
		p.must(complete(p, req), "Complete")
		if rec := p.lookup(req.Key); rec.State != idem.Succeeded {
			p.errorf("the record's state is %q", rec.State)
		}
	}},
	{rule: "An owner whose lease is over but who was not replaced must renew: the fence is the token, not the time", run: func(p *probe) {
		req := p.stale()
		p.must(renew(p, req), "Renew")
		if rec := p.lookup(req.Key); rec.LeaseLeft <= 0 {
			p.errorf("the lease is still over: %v", rec.LeaseLeft)
		}
	}},
	{rule: "An owner whose lease is over but who was not replaced must release: the fence is the token, not the time", run: func(p *probe) {
		req := p.stale()
		p.must(release(p, req), "Release")
		if rec := p.lookup(req.Key); rec.Token != (idem.ID{}) {
			p.errorf("the record still has a token")
		}
	}},
	{rule: "B105 an owner who is later than lease and retention must complete, unless the record is gone", run: func(p *probe) {
		req := p.expiredClaim()
		switch err := complete(p, req); {
		case err == nil:
			if rec := p.lookup(req.Key); rec.State != idem.Succeeded || rec.Expired() {
				p.errorf("the record is %q, expired: %v; want a fresh outcome", rec.State, rec.Expired())
			}
		default:
			p.wantError(err, idem.ErrLeaseLost, "completing an expired claim")
			if rec, found := p.find(req.Key); found {
				p.errorf("the completion was refused although the record is there: %+v", rec)
			}
		}
	}},
}

// fenced tests an operation that has no right to any record there may be.
func fenced(op operation) func(*probe) {
	return func(p *probe) {
		for _, state := range states {
			req := state.make(p)
			req.Token = newID()
			p.lost(req, "a stranger to "+state.name, op)
		}
	}
}

// fencedLate tests an operation of an owner that a rival has replaced.
func fencedLate(op operation) func(*probe) {
	return func(p *probe) {
		old := p.stale()
		rival := p.takeover(old.Key)
		p.own(rival)
		p.lost(old, "an owner whose rival is at work", op)
		p.must(complete(p, rival), "Complete")
		p.lost(old, "an owner whose rival has completed", op)

		old = p.stale()
		rival = p.takeover(old.Key)
		p.own(rival)
		p.must(release(p, rival), "Release")
		p.lost(old, "an owner whose rival has released", op)
	}
}

// lost fails the check if an operation does anything but fail.
func (p *probe) lost(req idem.ClaimRequest, who string, ops ...operation) {
	p.t.Helper()
	for _, op := range ops {
		before := p.snapshot(req.Key)
		p.wantError(op(p, req), idem.ErrLeaseLost, "the request of %s", who)
		p.unchanged(before, "after the request of %s", who)
	}
}
