package storetest

import (
	"errors"

	"github.com/idem-go/idem"
)

var doPurgeChecks = alone([]check{
	{rule: "B37 a claim whose obstacle was purged must judge by the record that took its place", run: func(p *probe) {
		for _, rival := range []string{"", "payload", "another"} {
			key := p.key()
			_, err := p.do(key, "old", returns("old", 0), idem.WithRetention(short))
			p.must(err, "Do")
			p.untilExpired(key)
			if _, kept := p.find(key); !kept {
				return // the store forgets by itself
			}
			racing := p.intercept()
			racing.after = onFirst(atClaim, func() {
				p.purgeAll(1000)
				if rival != "" {
					_, err := p.do(key, rival, returns("of "+rival, 0))
					p.must(err, "the rival's Do")
				}
			})
			fn := p.mustNotRun()
			if rival == "" {
				fn = returns("own", 0)
			}
			res, err := idem.Do(p.ctx, racing, key, "payload", fn)
			switch rival {
			case "another":
				p.wantError(err, idem.ErrPayloadMismatch, "a caller whose rival had another payload")
			case "payload":
				if err != nil || !res.Replayed || res.Value != "of payload" {
					p.errorf("got %+v, error %v; want the rival's answer", res, err)
				}
			default:
				if err != nil || res.Replayed || res.Attempt != 1 {
					p.errorf("got %+v, error %v; want a first run", res, err)
				}
			}
		}
	}},
	{rule: "B105 an outcome that was recorded after its lease must outlive a purge", run: func(p *probe) {
		late := p.slowOwner("payload", fails("late", 409, errNoneLeft))
		p.wantError(late.finish(), errNoneLeft, "the late owner")
		p.purgeAll(1000)
		res, err := p.do(late.key, "payload", p.mustNotRun())
		recorded := new(idem.RecordedError)
		if !errors.As(err, &recorded) || !res.Replayed || res.Value != "late" {
			p.errorf("got %+v, error %v; want the late owner's failure", res, err)
		}
	}},
})
