package storetest

import (
	"context"
	"fmt"

	"github.com/idem-go/idem"
)

// txTakeoverChecks are about free records that DoTx takes over.
func txTakeoverChecks[Tx any]() []txCheck[Tx] {
	return []txCheck[Tx]{
		{"DoTx must take over a dead owner's claim, as the same execution, reclaimed", func(p *txProbe[Tx]) {
			key := p.key()
			p.die(key, "payload")
			p.takesOver(key, "payload", p.lookup(key).ExecutionID, "2 true")
			if rec := p.lookup(key); rec.Attempt != 2 || !rec.Reclaimed {
				p.errorf("the record is %+v", rec)
			}
		}},
		{"DoTx must not take over a dead owner's claim with another payload", func(p *txProbe[Tx]) {
			key := p.key()
			p.die(key, "payload")
			before := p.snapshot(key)
			_, err := p.doTx(key, "another", p.mustNotRunTx())
			p.wantError(err, idem.ErrPayloadMismatch, "another payload")
			p.unchanged(before, "after a mismatch")
		}},
		{"DoTx must take over a released key, as the same execution", func(p *txProbe[Tx]) {
			key := p.key()
			_, err := p.do(key, "payload", fails("", 503, errNoneLeft))
			p.wantError(err, errNoneLeft, "the first call")
			p.takesOver(key, "payload", p.lookup(key).ExecutionID, "2 false")
		}},
		{"DoTx must take over a released key with another payload, as a new execution", func(p *txProbe[Tx]) {
			key := p.key()
			first, err := p.do(key, "payload", fails("", 503, errNoneLeft))
			p.wantError(err, errNoneLeft, "the first call")
			res := p.takesOver(key, "another", idem.ID{}, "2 false")
			if res.ExecutionID == first.ExecutionID {
				p.errorf("the execution is that of the first payload")
			}
			_, err = p.doTx(key, "payload", p.mustNotRunTx())
			p.wantError(err, idem.ErrPayloadMismatch, "the first payload")
		}},
		{"DoTx must take over an expired claim as new work", func(p *txProbe[Tx]) {
			key := p.key()
			_, err := p.do(key, "payload", fails("", 0, idem.Unknown(nil)), idem.WithLease(short), idem.WithRetention(short))
			p.wantError(err, idem.ErrOutcomeUnknown, "the first call")
			p.untilExpired(key)
			res, err := p.doTx(key, "another", func(ctx context.Context, tx Tx) (string, idem.Status, error) {
				p.write(ctx, tx, key)
				return fmt.Sprint(idem.Reclaimed(ctx)), 0, nil
			})
			if err != nil || res.Value != "false" {
				p.errorf("got %+v, %v", res, err)
			}
			p.replaysTx(key, "another", "false")
		}},
		{"DoTx that takes a dead owner's claim over and leaves nothing must leave the claim as it was", func(p *txProbe[Tx]) {
			key := p.key()
			p.die(key, "payload")
			before := p.snapshot(key)
			for _, fn := range []txClosure[Tx]{p.ends(key, "", 503, nil), p.ends(key, "", 0, idem.Unknown(nil))} {
				_, _ = p.doTx(key, "payload", fn)
				p.unchanged(before, "after an outcome that is not kept")
			}
			p.panics(key)
			p.unchanged(before, "after a panic")
			p.wrote(key, 0, "after all")
		}},
		{"DoTx must refuse a dead owner's claim when its outcome is to be looked into", func(p *txProbe[Tx]) {
			key, refuse := p.key(), idem.WithStale(idem.Refuse)
			p.die(key, "payload")
			before := p.snapshot(key)
			_, err := p.doTx(key, "payload", p.mustNotRunTx(), refuse)
			p.wantError(err, idem.ErrOutcomeUnknown, "a duplicate")
			p.unchanged(before, "after a duplicate")
			_, err = idem.Resolve(p.ctx, p.store, key, returns("found out", 0))
			p.must(err, "Resolve")
			p.replaysTx(key, "payload", "found out")
		}},
		{"Resolve must find a key at which a transaction is at work in progress", func(p *txProbe[Tx]) {
			key := p.key()
			p.die(key, "payload")
			_, err := p.doTx(key, "payload", func(ctx context.Context, tx Tx) (string, idem.Status, error) {
				_, err := idem.Resolve(p.ctx, p.store, key, p.mustNotRun())
				p.isBusy(err, "Resolve")
				return "value", 0, p.Write(ctx, tx, p.name(key))
			})
			p.must(err, "DoTx")
			p.replaysTx(key, "payload", "value")
		}},
	}
}

// takesOver fails the check if DoTx does not run, as the execution that is
// wanted (zero for any), and with the attempt and reclaimed that are wanted.
func (p *txProbe[Tx]) takesOver(key idem.Key, payload string, execution idem.ID, want string) idem.Result[string] {
	p.t.Helper()
	res, err := p.doTx(key, payload, func(ctx context.Context, tx Tx) (string, idem.Status, error) {
		p.write(ctx, tx, key)
		if execution != (idem.ID{}) && idem.ExecutionID(ctx) != execution.String() {
			p.errorf("the execution is %s, want %s", idem.ExecutionID(ctx), execution)
		}
		return fmt.Sprint(idem.Attempt(ctx), idem.Reclaimed(ctx)), 0, nil
	})
	p.must(err, "DoTx")
	rec := p.lookup(key)
	if res.Value != want || res.ExecutionID != rec.ExecutionID.String() || res.Attempt != rec.Attempt {
		p.errorf("got %+v, want attempt and reclaimed %s; the record is %+v", res, want, rec)
	}
	p.wrote(key, 1, "after DoTx")
	p.replaysTx(key, payload, want)
	return res
}
