package storetest

import (
	"errors"
	"sync/atomic"

	"github.com/idem-go/idem"
)

const callers = 8

var raceChecks = []check{
	{rule: "B56 of many claims of one key at once exactly one must win", run: func(p *probe) {
		for range p.rounds(200) {
			key := p.key()
			p.contend(func() idem.ClaimRequest { return request(key) })
		}
	}},
	{rule: "Of many takeovers of one stale claim at once exactly one must win", run: func(p *probe) {
		for range p.rounds(50) {
			seen := p.snapshot(p.stale().Key)
			p.contend(func() idem.ClaimRequest {
				req := request(seen.key)
				req.Replace = &seen.rec
				return req
			})
		}
	}},
	{rule: "Of many takeovers of one released claim at once exactly one must win", run: func(p *probe) {
		for range p.rounds(50) {
			seen := p.snapshot(p.released().Key)
			p.contend(func() idem.ClaimRequest {
				req := request(seen.key)
				req.Replace = &seen.rec
				return req
			})
		}
	}},
	{rule: "A completion and a takeover at once must not both succeed", run: raced(complete)},
	{rule: "A renewal and a takeover at once must not both succeed", run: raced(renew)},
	{rule: "A release and a takeover at once must not both succeed", run: raced(release)},
	{rule: "B41 of a claim and its own repetition at once neither must be lost", run: func(p *probe) {
		for range p.rounds(200) {
			req := request(p.key())
			p.together(2, func(int) {
				if rec := p.claim(req); rec.Token != req.Token || rec.Attempt != 1 {
					p.errorf("the repetition got attempt %d of another owner", rec.Attempt)
				}
			})
		}
	}},
	{rule: "B41 of a completion and its own repetition at once both must return the same time", run: func(p *probe) {
		for range p.rounds(200) {
			req := p.live()
			var times [2]int64
			p.together(2, func(i int) {
				completed, err := p.store.Complete(p.ctx, completion(req, idem.Succeeded, answer("1")))
				p.must(err, "Complete")
				times[i] = completed.UnixNano()
			})
			if times[0] != times[1] {
				p.fatalf("the repetition returned a time %d ns from the first", times[1]-times[0])
			}
		}
	}},
}

// contend sends many claims at once. The same one must be told to all as the
// winner, and be the one that the store has.
func (p *probe) contend(newClaim func() idem.ClaimRequest) {
	p.t.Helper()
	var (
		wins   atomic.Int64
		owners [callers]idem.ID
		req    = newClaim()
	)
	p.together(callers, func(i int) {
		req := newClaim()
		rec := p.claim(req)
		if owners[i] = rec.Token; rec.Token == req.Token {
			wins.Add(1)
		}
	})
	if n := wins.Load(); n != 1 {
		p.fatalf("%d of %d claims won", n, callers)
	}
	owner := p.lookup(req.Key).Token
	for _, told := range owners {
		if told != owner {
			p.fatalf("a claim was told that the owner is %v, but it is %v", told, owner)
		}
	}
}

// raced lets a late owner do something while a rival takes its claim over.
// Whoever comes first wins, and the other is told so.
func raced(op operation) func(*probe) {
	return func(p *probe) {
		for round := range p.rounds(100) {
			owner := p.stale()
			rival := p.takeover(owner.Key)
			var (
				err error
				won bool
			)
			p.together(2, func(i int) {
				if i == round%2 { // either may be the one that is scheduled first
					err = op(p, owner)
				} else {
					won = p.claim(rival).Token == rival.Token
				}
			})
			if err != nil && !errors.Is(err, idem.ErrLeaseLost) {
				p.fatalf("the owner got %v", err)
			}
			if (err == nil) == won {
				p.fatalf("the owner succeeded: %v; the rival succeeded: %v", err == nil, won)
			}
			if rec := p.lookup(owner.Key); won != (rec.Token == rival.Token) {
				p.fatalf("the rival succeeded: %v, but the record's token is %v", won, rec.Token)
			}
		}
	}
}
