package storetest

import (
	"context"
	"errors"

	"github.com/idem-go/idem"
)

// txRivalChecks are about an owner that everybody thought dead, and that moves
// while DoTx is at work in the place of its claim. A store may keep it out, so
// that its request fails; if it does not, the transaction must lose.
func txRivalChecks[Tx any]() []txCheck[Tx] {
	return []txCheck[Tx]{
		{"DoTx must lose against a rival that finishes first, and return its answer", func(p *txProbe[Tx]) {
			p.against(complete, func(key idem.Key, res idem.Result[string], err error) {
				if err != nil || !res.Replayed || res.Value != "done" || res.Status != 201 {
					p.errorf("the loser got %+v, %v", res, err)
				}
				p.replaysTx(key, "payload", "done")
			})
		}},
		{"DoTx must lose against a rival that comes back to life, and find it in progress", func(p *txProbe[Tx]) {
			p.against(renew, func(_ idem.Key, _ idem.Result[string], err error) { p.isBusy(err, "the loser") })
		}},
		{"DoTx must lose against a rival that releases the key, and leave it released", func(p *txProbe[Tx]) {
			p.against(release, func(key idem.Key, _ idem.Result[string], err error) {
				p.isBusy(err, "the loser")
				if rec := p.lookup(key); rec.Token != (idem.ID{}) {
					p.errorf("the record is %+v", rec)
				}
			})
		}},
		{"DoTx must return the failure of a rival that failed first", func(p *txProbe[Tx]) {
			p.against(func(p *probe, req idem.ClaimRequest) error {
				r := answer(`"failed"`)
				r.Status, r.Error = 409, &idem.ErrorValue{Code: "none_left"}
				_, err := p.store.Complete(p.ctx, completion(req, idem.Failed, r))
				return err
			}, func(_ idem.Key, res idem.Result[string], err error) {
				if recorded := new(idem.RecordedError); !errors.As(err, &recorded) || recorded.Code != "none_left" || res.Value != "failed" {
					p.errorf("the loser got %+v, %v", res, err)
				}
			})
		}},
		{"DoTx that fails must lose against a rival too, and return its answer", func(p *txProbe[Tx]) {
			key, owner := p.dead()
			excluded := false
			res, err := p.doTx(key, "payload", func(ctx context.Context, tx Tx) (string, idem.Status, error) {
				excluded = p.moves(complete, owner)
				p.write(ctx, tx, key)
				return "", 409, errNoneLeft
			})
			if !excluded && (err != nil || res.Value != "done" || !res.Replayed) {
				p.errorf("the loser got %+v, %v", res, err)
			}
			p.wrote(key, 0, "after the failure")
		}},
		{"DoTx whose rival finishes must not lose what it does not want to keep", func(p *txProbe[Tx]) {
			key, owner := p.dead()
			_, err := p.doTx(key, "payload", func(ctx context.Context, tx Tx) (string, idem.Status, error) {
				p.moves(complete, owner)
				p.write(ctx, tx, key)
				return "", 503, errNoneLeft
			})
			p.wantError(err, errNoneLeft, "a released run")
			p.wrote(key, 0, "after a released run")
		}},
		{"A late owner that DoTx has replaced must change nothing", func(p *txProbe[Tx]) {
			late := p.slowOwner("payload", returns("late", 0))
			_, err := p.doTx(late.key, "payload", p.ends(late.key, "of DoTx", 0, nil))
			p.must(err, "DoTx")
			p.wantError(late.finish(), idem.ErrLeaseLost, "the late owner")
			p.replaysTx(late.key, "payload", "of DoTx")
			p.wrote(late.key, 1, "after both")
		}},
	}
}

// dead returns a key with a stale claim, and its owner.
func (p *txProbe[Tx]) dead() (idem.Key, idem.ClaimRequest) {
	p.t.Helper()
	key := p.key()
	p.die(key, "payload")
	owner := request(key)
	owner.Token = p.lookup(key).Token
	return key, owner
}

// moves has the owner do something, and reports whether the store prevents it.
func (p *txProbe[Tx]) moves(op operation, owner idem.ClaimRequest) (excluded bool) {
	p.t.Helper()
	ctx, cancel := p.bounded()
	defer cancel()
	err := op(&probe{t: p.t, ctx: ctx, store: p.store}, owner)
	if errors.Is(err, idem.ErrLeaseLost) {
		p.errorf("the owner lost its claim to a transaction that has committed nothing: %v", err)
	}
	return err != nil
}

// against has a rival move between the begin and the finish of DoTx.
func (p *txProbe[Tx]) against(op operation, check func(idem.Key, idem.Result[string], error)) {
	p.t.Helper()
	key, owner := p.dead()
	excluded := false
	res, err := p.doTx(key, "payload", func(ctx context.Context, tx Tx) (string, idem.Status, error) {
		excluded = p.moves(op, owner)
		p.write(ctx, tx, key)
		return "of DoTx", 0, nil
	})
	if excluded {
		p.must(err, "DoTx, whose rivals are kept out")
		p.replaysTx(key, "payload", "of DoTx")
		p.wrote(key, 1, "after both")
		return
	}
	p.wrote(key, 0, "after the rival was first")
	check(key, res, err)
}
