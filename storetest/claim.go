package storetest

import (
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
)

var claimChecks = []check{
	{rule: "Lookup of an absent key must find nothing, without an error", run: func(p *probe) {
		if rec, found := p.find(p.key()); found {
			p.errorf("found %+v", rec)
		}
	}},
	{rule: "A claim of an absent key must insert a processing record", run: func(p *probe) {
		req := request(p.key())
		req.Hash = idem.Hash{Version: 7, Sum: "00" + req.Hash.Sum[2:]}
		req.Token = idem.ID{0, 1, 0xff, '\'', '\\', 0x80, '\n'}
		req.ExecutionID = idem.ID{15: 1}
		req.Reclaimed = true
		p.isClaim(req, 1, func() idem.Record { return p.own(req) })
	}},
	{rule: "A claim must not be marked as reclaimed unless it asks for it", run: func(p *probe) {
		if req := request(p.key()); p.own(req).Reclaimed || p.lookup(req.Key).Reclaimed {
			p.errorf("a first claim is marked as reclaimed")
		}
	}},
	{rule: "B41 a claim repeated with its own token must return its own record", run: func(p *probe) {
		req := p.live()
		before := p.snapshot(req.Key)
		p.same(before, p.claim(req), "the answer to the repetition")
		p.unchanged(before, "after the repetition")
	}},
	{rule: "B56 a second claim in a row must be lost", run: func(p *probe) {
		req := p.live()
		if rec := p.claim(request(req.Key)); rec.Token != req.Token {
			p.errorf("the key's owner is %v after a second claim, want the first, %v", rec.Token, req.Token)
		}
	}},
	{rule: "A claim without Replace must change nothing if the key has a record", run: func(p *probe) {
		for _, state := range states {
			before := p.snapshot(state.make(p).Key)
			if !before.found || before.rec.Expired() {
				continue // the next rule's
			}
			p.same(before, p.claim(request(before.key)), "the answer of a claim that met %s", state.name)
			p.unchanged(before, "a claim met %s", state.name)
		}
	}},
	{rule: "A claim without Replace must change nothing if the key has an expired record", run: func(p *probe) {
		for _, req := range []idem.ClaimRequest{p.expiredClaim(), p.expiredOutcome()} {
			before := p.snapshot(req.Key)
			rec := p.claim(request(req.Key))
			if !before.found || rec.Attempt == 1 && rec.Token != req.Token {
				continue // the store had forgotten it
			}
			p.same(before, rec, "the answer of a claim that met an expired record")
			p.unchanged(before, "a claim met an expired record")
		}
	}},
	{rule: "A claim in vain must return the stored hash, not its own", run: func(p *probe) {
		for _, req := range []idem.ClaimRequest{p.live(), p.stale(), p.released(), p.settled()} {
			rival := request(req.Key)
			rival.Hash = idem.Hash{Version: 2, Sum: "ff" + req.Hash.Sum[2:]}
			if diff := cmp.Diff(req.Hash, p.claim(rival).Hash); diff != "" {
				p.errorf("payloads are compared by the hash that the store returns (-stored +returned):\n%s", diff)
			}
		}
	}},
	{rule: "Lookup must change nothing", run: func(p *probe) {
		for _, state := range states {
			before := p.snapshot(state.make(p).Key)
			for range 3 {
				p.unchanged(before, "a look at %s", state.name)
			}
		}
	}},
	{rule: "Attempt must grow by one with every claim of the key", run: func(p *probe) {
		req := request(p.key())
		for attempt := 1; attempt <= 6; attempt++ {
			if rec := p.own(req); rec.Attempt != attempt {
				p.fatalf("attempt is %d, want %d", rec.Attempt, attempt)
			}
			if attempt%2 == 0 {
				p.must(release(p, req), "Release")
			} else {
				req.Lease = short
				p.must(renew(p, req), "Renew")
				p.untilStale(req.Key)
			}
			req = p.takeover(req.Key)
		}
	}},
}

// isClaim fails the check if the record that get makes, or the one that Lookup
// finds then, is not the claim that req asked for.
func (p *probe) isClaim(req idem.ClaimRequest, attempt int, get func() idem.Record) {
	p.t.Helper()
	earliest, since := p.now(), time.Now()
	answer := get()
	latest := p.now()
	for _, rec := range []idem.Record{answer, p.lookup(req.Key)} {
		p.leaseStarted(rec, req.Lease, since)
		p.expires(rec, earliest, latest, req.Lease, req.Retention)
		rec.LeaseLeft, rec.ExpiresAt = 0, time.Time{}
		want := idem.Record{
			State: idem.Processing, Hash: req.Hash, Token: req.Token, ExecutionID: req.ExecutionID,
			Attempt: attempt, Reclaimed: req.Reclaimed,
		}
		if diff := diffRecords(want, rec); diff != "" {
			p.errorf("the claim's record is not what was asked for (-want +got):\n%s", diff)
		}
	}
}

// leaseStarted fails the check if rec's lease does not have the given length or
// was started before since.
func (p *probe) leaseStarted(rec idem.Record, lease time.Duration, since time.Time) {
	p.t.Helper()
	ran := time.Since(since)
	if rec.LeaseLeft > lease+slack || rec.LeaseLeft < lease-ran-slack {
		p.errorf("%v of the lease are left, %v or less after it started; it is to last %v", rec.LeaseLeft, ran, lease)
	}
}

// expires fails the check if rec has expired, or does not end the given
// durations after a time between earliest and latest, by the store's clock.
func (p *probe) expires(rec idem.Record, earliest, latest time.Time, after ...time.Duration) {
	p.t.Helper()
	p.endsBetween(rec, earliest, latest, after...)
	if rec.Expired() {
		p.errorf("the record counts as expired")
	}
}

// endsBetween is expires for a record that may have expired meanwhile.
func (p *probe) endsBetween(rec idem.Record, earliest, latest time.Time, after ...time.Duration) {
	p.t.Helper()
	for _, d := range after {
		earliest, latest = earliest.Add(d), latest.Add(d)
	}
	if rec.ExpiresAt.Before(earliest.Add(-slack)) || rec.ExpiresAt.After(latest.Add(slack)) {
		p.errorf("the record expires at %v, want a time from %v to %v", rec.ExpiresAt, earliest, latest)
	}
}
