package storetest

import (
	"time"

	"github.com/idem-go/idem"
)

var completeChecks = []check{
	{rule: "A completion must settle the record and keep the rest of it", run: func(p *probe) {
		for _, state := range []idem.State{idem.Succeeded, idem.Failed} {
			req := p.takeover(p.stale().Key)
			req.Reclaimed = true
			p.own(req)
			want := idem.Record{
				State: state, Hash: req.Hash, Token: req.Token, ExecutionID: req.ExecutionID,
				Attempt: 2, Reclaimed: true, Response: answer(`{"n": 1}`),
			}
			completed, err := p.store.Complete(p.ctx, completion(req, state, want.Response))
			p.must(err, "Complete")
			want.CompletedAt, want.ExpiresAt = completed, completed.Add(req.Retention)
			for _, rec := range []idem.Record{p.lookup(req.Key), p.claim(request(req.Key))} {
				p.expires(rec, completed, completed, req.Retention)
				rec.ExpiresAt = want.ExpiresAt
				if diff := diffRecords(want, rec); diff != "" {
					p.errorf("the record is not what it must be (-want +got):\n%s", diff)
				}
			}
		}
	}},
	{rule: "B41 a completion repeated with its token must return the first one's time and change nothing", run: func(p *probe) {
		req := p.live()
		first, err := p.store.Complete(p.ctx, completion(req, idem.Succeeded, answer("1")))
		p.must(err, "Complete")
		before := p.snapshot(req.Key)
		p.until("time to pass", func() bool { return p.now().After(first.Add(slack)) })
		again, err := p.store.Complete(p.ctx, completion(req, idem.Failed, answer("2")))
		p.must(err, "Complete, repeated")
		if !again.Equal(first) {
			p.errorf("the repetition returned %v, the first completion %v", again, first)
		}
		p.unchanged(before, "after the repetition")
	}},
	{rule: "B105 retention must count from completion, not from the claim or its lease", run: func(p *probe) {
		for _, retention := range []time.Duration{long / 60, 20 * long} {
			for _, req := range []idem.ClaimRequest{p.live(), p.stale()} {
				claimed := p.now()
				p.until("time to pass", func() bool { return p.now().After(claimed.Add(5 * slack)) })
				req.Retention = retention
				completed, err := p.store.Complete(p.ctx, completion(req, idem.Failed, answer("1")))
				p.must(err, "Complete")
				p.expires(p.lookup(req.Key), completed, completed, retention)
			}
		}
	}},
	{rule: "B58 a duplicate must not prolong a record", run: func(p *probe) {
		req := request(p.key())
		p.own(req)
		completed, err := p.store.Complete(p.ctx, completion(req, idem.Succeeded, answer("1")))
		p.must(err, "Complete")
		p.until("time to pass", func() bool {
			p.claim(request(req.Key))
			return p.now().After(completed.Add(20 * slack))
		})
		p.expires(p.lookup(req.Key), completed, completed, req.Retention)
	}},
}

var releaseChecks = []check{
	{rule: "A released record must stay, with its attempt, hash and execution, but without token and lease", run: func(p *probe) {
		req := p.takeover(p.stale().Key)
		req.Reclaimed = true
		p.own(req)
		earliest := p.now()
		p.must(release(p, req), "Release")
		latest := p.now()
		for _, rec := range []idem.Record{p.lookup(req.Key), p.claim(request(req.Key))} {
			if rec.LeaseLeft > 0 {
				p.errorf("%v of the lease are left", rec.LeaseLeft)
			}
			p.expires(rec, earliest, latest, req.Retention)
			rec.LeaseLeft, rec.ExpiresAt = 0, time.Time{}
			want := idem.Record{
				State: idem.Processing, Hash: req.Hash, ExecutionID: req.ExecutionID, Attempt: 2, Reclaimed: true,
			}
			if diff := diffRecords(want, rec); diff != "" {
				p.errorf("the record is not what it must be (-want +got):\n%s", diff)
			}
		}
	}},
	{rule: "A renewal must set the lease's end and nothing else", run: func(p *probe) {
		req := p.live()
		for _, lease := range []time.Duration{10 * long, long / 10, short} {
			before := p.lookup(req.Key)
			req.Lease = lease
			earliest, since := p.now(), time.Now()
			p.must(renew(p, req), "Renew")
			latest, after := p.now(), p.lookup(req.Key)
			p.leaseStarted(after, lease, since)
			p.expires(after, earliest, latest, lease, req.Retention)
			after.LeaseLeft, after.ExpiresAt = before.LeaseLeft, before.ExpiresAt
			if diff := diffRecords(before, after); diff != "" {
				p.errorf("the record has changed (-before +after):\n%s", diff)
			}
		}
	}},
}
