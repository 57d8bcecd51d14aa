package storetest

import (
	"time"

	"github.com/idem-go/idem"
)

const year = 365 * 24 * time.Hour

var timeChecks = []check{
	{rule: "What is left of a record's life must be by the store's clock", run: func(p *probe) {
		for _, state := range states {
			req := state.make(p)
			since := time.Now()
			earliest := p.now()
			rec, found := p.find(req.Key)
			if !found {
				continue // the store forgets what has expired
			}
			passed := time.Since(since)
			if left := rec.ExpiresAt.Sub(earliest); rec.ExpiresIn > left+slack || rec.ExpiresIn < left-passed-slack {
				p.errorf("%s expires in %v, at %v; it was %v before", state.name, rec.ExpiresIn, rec.ExpiresAt, earliest)
			}
		}
	}},
	{rule: "B13 a lease must last as long as was asked for", run: func(p *probe) {
		for _, lease := range []time.Duration{70 * time.Millisecond, 250 * time.Millisecond, 1100 * time.Millisecond} {
			req := request(p.key())
			req.Lease = lease
			since := time.Now()
			p.leaseStarted(p.own(req), lease, since)
			p.leaseStarted(p.lookup(req.Key), lease, since)
			if lease > time.Second {
				continue // the shorter ones show whether it really ends
			}
			p.untilStale(req.Key)
			if lasted := time.Since(since); lasted < lease-slack {
				p.errorf("a lease of %v was over after %v", lease, lasted)
			}
		}
	}},
	{rule: "B13 a lease below a millisecond must not be rounded to zero, nor to a second", run: func(p *probe) {
		for _, lease := range []time.Duration{1, time.Microsecond} { // may be over at once
			req := request(p.key())
			req.Lease, req.Retention = lease, lease
			if left := p.own(req).LeaseLeft; left > time.Millisecond {
				p.errorf("%v of a lease of %v are left", left, lease)
			}
		}
		const lease = 900 * time.Microsecond
		var left time.Duration
		for range 100 { // on a busy machine it may be over before it is told
			req := request(p.key())
			req.Lease = lease
			if left = p.own(req).LeaseLeft; left > 0 && left <= time.Millisecond {
				return
			}
		}
		p.errorf("%v of a lease of %v are left when it starts", left, lease)
	}},
	{rule: "B13 a retention below a millisecond must not be for ever", run: func(p *probe) {
		req := request(p.key())
		p.own(req)
		req.Retention = 1
		completed, err := p.store.Complete(p.ctx, completion(req, idem.Succeeded, answer("1")))
		p.must(err, "Complete")
		if rec, found := p.find(req.Key); found && rec.ExpiresAt.After(completed.Add(slack)) {
			p.fatalf("a record that was completed at %v is kept until %v", completed, rec.ExpiresAt)
		}
		p.untilExpired(req.Key)
	}},
	{rule: "B13 a lease of 100 years and a retention of 290 must not overflow", run: func(p *probe) {
		req := request(p.key())
		req.Lease, req.Retention = 100*year, 290*year
		p.isClaim(req, 1, func() idem.Record { return p.own(req) })
		p.refused(p.takeover(req.Key), "a claim for 100 years")

		earliest, since := p.now(), time.Now()
		p.must(renew(p, req), "Renew")
		p.leaseStarted(p.lookup(req.Key), req.Lease, since)
		p.expires(p.lookup(req.Key), earliest, p.now(), req.Lease, req.Retention)

		completed, err := p.store.Complete(p.ctx, completion(req, idem.Succeeded, answer("1")))
		p.must(err, "Complete")
		p.expires(p.lookup(req.Key), completed, completed, req.Retention)

		req = request(p.key())
		req.Retention = 290 * year
		p.own(req)
		earliest = p.now()
		p.must(release(p, req), "Release")
		p.expires(p.lookup(req.Key), earliest, p.now(), req.Retention)
	}},
	{rule: "B113 a record must expire when its retention is over, not before and not never", run: func(p *probe) {
		const retention = 80 * time.Millisecond
		req := request(p.key())
		p.own(req)
		req.Retention = retention
		since := time.Now()
		completed, err := p.store.Complete(p.ctx, completion(req, idem.Succeeded, answer("1")))
		p.must(err, "Complete")
		if rec, found := p.find(req.Key); found {
			p.endsBetween(rec, completed, completed, retention)
		}
		p.untilExpired(req.Key)
		if lasted := time.Since(since); lasted < retention-slack {
			p.errorf("a record that is kept for %v expired after %v", retention, lasted)
		}
		req = p.takeover(req.Key)
		p.own(req)
	}},
	{rule: "A claim without an outcome must expire after lease and retention", run: func(p *probe) {
		req := request(p.key())
		req.Lease, req.Retention = 50*time.Millisecond, 50*time.Millisecond
		earliest, since := p.now(), time.Now()
		p.endsBetween(p.own(req), earliest, p.now(), req.Lease, req.Retention)
		p.untilExpired(req.Key)
		if lasted := time.Since(since); lasted < req.Lease+req.Retention-slack {
			p.errorf("a claim that is kept for %v expired after %v", req.Lease+req.Retention, lasted)
		}
	}},
	{rule: "All times must come from one clock, whatever clock the caller has", run: func(p *probe) {
		req := request(p.key())
		since := time.Now()
		p.own(req)
		last := p.now()
		for range 8 {
			p.leaseStarted(p.lookup(req.Key), req.Lease, since)
			p.leaseStarted(p.claim(request(req.Key)), req.Lease, since)
			now := p.now()
			if now.Before(last.Add(-time.Second)) || now.After(last.Add(time.Since(since)+time.Second)) {
				p.errorf("a completion at %v followed one at %v", now, last)
			}
			last = now
		}
	}},
}
