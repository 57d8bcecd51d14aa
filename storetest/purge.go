package storetest

import (
	"sync/atomic"
	"time"

	"github.com/idem-go/idem"
)

var purgeChecks = alone([]check{
	{rule: "B58 Purge must delete expired records, claims and outcomes alike", run: func(p *probe) {
		keys := []idem.Key{p.expiredClaim().Key, p.expiredOutcome().Key, p.expiredRelease().Key}
		p.purgeAll(1000)
		p.gone(keys)
	}},
	{rule: "Purge must never delete a live claim", run: func(p *probe) { p.survives(p.live()) }},
	{rule: "B111 Purge must not delete a stale claim before it expires", run: func(p *probe) { p.survives(p.stale()) }},
	{rule: "Purge must not delete a released claim before it expires", run: func(p *probe) { p.survives(p.released()) }},
	{rule: "Purge must not delete an outcome before it expires", run: func(p *probe) { p.survives(p.settled()) }},
	{rule: "B105 Purge must not delete an outcome that was recorded late", run: func(p *probe) {
		req := p.expiredClaim()
		if complete(p, req) == nil { // or the store has forgotten the claim
			p.survives(req)
		}
	}},
	{rule: "Purge must not delete a claim that was renewed", run: func(p *probe) {
		req := request(p.key())
		req.Lease, req.Retention = short, long
		p.own(req)
		req.Lease, req.Retention = long, short
		p.must(renew(p, req), "Renew")
		p.survives(req)
	}},
	{rule: "B107 Purge must keep to its limit", run: func(p *probe) {
		p.purgeAll(1000)
		keys, kept := p.expiredOutcomes(7)
		done := p.purge(3)
		left := 0
		for _, key := range keys {
			if _, found := p.find(key); found {
				left++
			}
		}
		if done.Deleted > 3 {
			p.errorf("deleted %d records, the limit is 3", done.Deleted)
		}
		if kept && (done.Deleted != 3 || left != 4) {
			p.errorf("deleted %d of 7 records with a limit of 3 and left %d", done.Deleted, left)
		}
		p.purgeAll(3)
		p.gone(keys)
	}},
	{rule: "Purge must find short-lived records behind long-lived ones", run: func(p *probe) {
		p.purgeAll(1000)
		var long []snapshot
		for range 50 {
			long = append(long, p.snapshot(p.settled().Key))
		}
		keys, _ := p.expiredOutcomes(5)
		p.purgeAll(2)
		p.gone(keys)
		for _, before := range long {
			p.unchanged(before, "after a purge")
		}
	}},
	{rule: "Purges at once must delete everything and count each record once", run: func(p *probe) {
		p.purgeAll(1000)
		keys, kept := p.expiredOutcomes(60)
		var deleted atomic.Int64
		p.together(4, func(int) { deleted.Add(int64(p.purgeAll(7))) })
		deleted.Add(int64(p.purgeAll(7)))
		p.gone(keys)
		if n := deleted.Load(); n > 60 || kept && n < 60 {
			p.errorf("60 records were deleted and %d counted", n)
		}
	}},
	{rule: "B111 Overdue must tell for how long the oldest deleted record had been expired", run: func(p *probe) {
		p.purgeAll(1000)
		if done := p.purge(1000); done != (idem.PurgeResult{}) {
			p.errorf("a purge of nothing did %+v", done)
		}
		since := time.Now()
		p.expiredOutcome()
		expired := time.Now()
		_, kept := p.expiredOutcomes(3)
		p.until("time to pass", func() bool { return time.Since(expired) > 50*time.Millisecond })
		least := time.Since(expired)
		done := p.purge(1000)
		if most := time.Since(since); kept && (done.Overdue < least-slack || done.Overdue > most+slack) {
			p.errorf("overdue by %v, want from %v to %v", done.Overdue, least, most)
		}
	}},
	{rule: "Purge must not delete an expired record that is taken over at the same time", run: func(p *probe) {
		for range p.rounds(50) {
			req := p.takeover(p.expiredOutcome().Key)
			var won bool
			p.together(2, func(i int) {
				if i == 0 {
					p.purge(1000)
				} else {
					won = p.claim(req).Token == req.Token
				}
			})
			if rec, found := p.find(req.Key); won != (found && rec.Token == req.Token) {
				p.fatalf("the takeover succeeded: %v, but there is a record: %v", won, found)
			}
		}
	}},
	{rule: "B37 a takeover of a record that was purged must return the zero Record and insert nothing", run: func(p *probe) {
		for _, old := range []idem.ClaimRequest{p.expiredOutcome(), p.expiredClaim()} {
			req := p.takeover(old.Key)
			if req.Replace == nil {
				continue // the store has forgotten it
			}
			p.purgeAll(1000)
			if rec := p.claim(req); rec.Attempt != 0 || rec.Token != (idem.ID{}) {
				p.errorf("the takeover returned %+v", rec)
			}
			if _, found := p.find(req.Key); found {
				p.errorf("the takeover inserted a record")
			}
			if rec := p.own(request(old.Key)); rec.Attempt != 1 {
				p.errorf("attempt is %d in a new life", rec.Attempt)
			}
		}
	}},
})

// alone marks checks that purge.
func alone(checks []check) []check {
	for i := range checks {
		checks[i].alone = true
	}
	return checks
}

func (p *probe) purge(limit int) idem.PurgeResult {
	p.t.Helper()
	done, err := p.store.Purge(p.ctx, idem.PurgeRequest{Limit: limit})
	p.must(err, "Purge")
	return done
}

// purgeAll purges as [idem.RunPurge] does, and returns how many were deleted.
func (p *probe) purgeAll(batch int) (deleted int) {
	p.t.Helper()
	for {
		done := p.purge(batch)
		if deleted += done.Deleted; done.Deleted < batch {
			return deleted
		}
	}
}

// survives fails the check if a purge changes a claim's record.
func (p *probe) survives(req idem.ClaimRequest) {
	p.t.Helper()
	before := p.snapshot(req.Key)
	if !before.found || before.rec.Expired() {
		p.fatalf("the record counts as expired before the purge")
	}
	expired := p.expiredOutcome() // something to do for the purge
	p.purgeAll(1000)
	p.gone([]idem.Key{expired.Key})
	p.unchanged(before, "after a purge")
}

func (p *probe) gone(keys []idem.Key) {
	p.t.Helper()
	for _, key := range keys {
		if rec, found := p.find(key); found {
			p.fatalf("an expired record is still there after a purge: %+v", rec)
		}
	}
}

func (p *probe) expiredRelease() idem.ClaimRequest {
	p.t.Helper()
	req := request(p.key())
	p.own(req)
	req.Retention = short
	p.must(release(p, req), "Release")
	p.untilExpired(req.Key)
	return req
}

// expiredOutcomes returns the keys of n expired records, and whether the store
// keeps such records until they are purged.
func (p *probe) expiredOutcomes(n int) (keys []idem.Key, kept bool) {
	p.t.Helper()
	for range n {
		req := request(p.key())
		p.own(req)
		req.Retention = short
		p.must(complete(p, req), "Complete")
		keys = append(keys, req.Key)
	}
	kept = true
	for _, key := range keys {
		p.untilExpired(key)
	}
	for _, key := range keys {
		_, found := p.find(key)
		kept = kept && found
	}
	return keys, kept
}
