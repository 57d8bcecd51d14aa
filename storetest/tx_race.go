package storetest

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/idem-go/idem"
)

// txRaceChecks are about many callers at once.
func txRaceChecks[Tx any]() []txCheck[Tx] {
	return []txCheck[Tx]{
		{"Of many callers of DoTx exactly one must run and commit", func(p *txProbe[Tx]) {
			for range p.rounds(25) {
				p.oneCommits(p.key(), 0)
			}
		}},
		{"Of many callers of Do and DoTx exactly one must run and commit", func(p *txProbe[Tx]) {
			for range p.rounds(25) {
				p.oneCommits(p.key(), 2)
			}
		}},
		{"Of many callers of Do and DoTx that find a dead owner's claim exactly one must run and commit", func(p *txProbe[Tx]) {
			for range p.rounds(20) {
				key := p.key()
				p.die(key, "payload")
				p.oneCommits(key, 2)
			}
		}},
		{"Of many callers of Do and DoTx that find a released key exactly one must run and commit", func(p *txProbe[Tx]) {
			for range p.rounds(20) {
				key := p.key()
				_, _ = p.do(key, "payload", fails("", 503, errNoneLeft))
				p.oneCommits(key, 2)
			}
		}},
		{"Of many callers of Do and DoTx that find an expired outcome exactly one must run and commit", func(p *txProbe[Tx]) {
			for range p.rounds(20) {
				key := p.key()
				_, err := p.do(key, "payload", returns("old", 0), idem.WithRetention(short))
				p.must(err, "Do")
				p.untilExpired(key)
				p.oneCommits(key, 2)
			}
		}},
		{"B35 of two callers of DoTx with different payloads exactly one must run and commit", func(p *txProbe[Tx]) {
			for range p.rounds(100) {
				key := p.key()
				var errs [2]error
				p.together(2, func(i int) {
					_, errs[i] = p.doTx(key, []string{"one", "two"}[i], p.ends(key, "value", 0, nil))
				})
				for i, err := range errs {
					if err != nil && (errs[1-i] != nil || !errors.Is(err, idem.ErrPayloadMismatch) && !errors.Is(err, idem.ErrInProgress)) {
						p.errorf("got %v and %v", errs[0], errs[1])
					}
				}
				p.wrote(key, 1, "after both")
			}
		}},
	}
}

// oneCommits calls the key many times at once; one call in plain of them is Do.
// Callers that find it in progress come again until they get the answer.
func (p *txProbe[Tx]) oneCommits(key idem.Key, plain int) {
	p.t.Helper()
	var runs, plainRuns atomic.Int64
	p.together(callers, func(i int) {
		p.until("an answer", func() bool {
			var err error
			if plain > 0 && i%plain == 0 {
				_, err = p.do(key, "payload", func(context.Context) (string, idem.Status, error) {
					plainRuns.Add(1)
					return "value", 0, nil
				})
			} else {
				_, err = p.doTx(key, "payload", func(ctx context.Context, tx Tx) (string, idem.Status, error) {
					runs.Add(1)
					return "value", 0, p.Write(ctx, tx, p.name(key))
				})
			}
			if err != nil && !errors.Is(err, idem.ErrInProgress) {
				p.fatalf("got error %v", err)
			}
			return err == nil
		})
	})
	if runs.Load()+plainRuns.Load() != 1 {
		p.errorf("%d closures of DoTx and %d of Do ran", runs.Load(), plainRuns.Load())
	}
	p.wrote(key, int(runs.Load()), "after all")
	p.replaysTx(key, "payload", "value")
}
