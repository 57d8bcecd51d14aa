package storetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
)

// txLockChecks are about what others see while a transaction is at work.
func txLockChecks[Tx any]() []txCheck[Tx] {
	return []txCheck[Tx]{
		{"BeginTx must return no record and the lock for a new key", func(p *txProbe[Tx]) {
			tx := p.begin(p.key())
			defer tx.Rollback(p.ctx)
			rec, locked := tx.Record()
			if diff := cmp.Diff(idem.Record{}, rec); diff != "" || !locked {
				p.errorf("locked %v; the record (-want +got):\n%s", locked, diff)
			}
		}},
		{"BeginTx must return the record of every state", func(p *txProbe[Tx]) {
			for _, state := range states {
				before := p.snapshot(state.make(p.probe).Key)
				tx := p.begin(before.key)
				rec, locked := tx.Record()
				tx.Rollback(p.ctx)
				if !locked {
					p.errorf("%s: not locked", state.name)
				}
				if before.found && (rec.Attempt > 0 || !before.rec.Expired()) {
					p.same(before, rec, "the record that BeginTx read of %s", state.name)
				}
				p.unchanged(before, "after BeginTx and Rollback of %s", state.name)
			}
		}},
		{"BeginTx must not wait for a transaction with the key, but say that it is not locked", func(p *txProbe[Tx]) {
			key := p.key()
			tx := p.begin(key)
			rival := p.begin(key)
			if _, locked := rival.Record(); locked {
				p.errorf("two transactions hold the key")
			}
			rival.Rollback(p.ctx)
			p.isBusy(second(p.doTx(key, "payload", p.mustNotRunTx())), "after the rival's rollback")
			tx.Rollback(p.ctx)
			free := p.begin(key)
			if _, locked := free.Record(); !locked {
				p.errorf("a rollback does not free the key")
			}
			free.Rollback(p.ctx)
		}},
		{"Claim must return Busy while a transaction is at work, and wait for nothing", func(p *txProbe[Tx]) {
			for _, state := range append(states[1:3:3], states[0]) {
				req := request(p.key())
				if state.name != states[0].name {
					req = p.takeover(state.make(p.probe).Key)
				} // else the key is new
				tx := p.begin(req.Key)
				if diff := cmp.Diff(req.Busy(), p.claim(req)); diff != "" {
					p.errorf("a claim got (-want +got):\n%s", diff)
				}
				tx.Rollback(p.ctx)
				p.own(req)
			}
		}},
		{"Callers that meet a transaction at work must get ErrInProgress and a retry time, whatever the payload", func(p *txProbe[Tx]) {
			for name, make := range map[string]func(idem.Key){
				"a new key":      func(idem.Key) {},
				"a stale claim":  func(key idem.Key) { p.die(key, "payload") },
				"a released key": func(key idem.Key) { _, _ = p.do(key, "payload", fails("", 503, errNoneLeft)) },
			} {
				key := p.key()
				make(key)
				_, err := p.doTx(key, "payload", func(ctx context.Context, tx Tx) (string, idem.Status, error) {
					_, err := p.do(key, "payload", p.mustNotRun())
					p.isBusy(err, name+": Do")
					_, err = p.doTx(key, "payload", p.mustNotRunTx())
					p.isBusy(err, name+": DoTx")
					if name != "a stale claim" { // whose payload has been published
						_, err = p.do(key, "another", p.mustNotRun())
						p.isBusy(err, name+": Do with another payload")
						_, err = p.doTx(key, "another", p.mustNotRunTx())
						p.isBusy(err, name+": DoTx with another payload")
					}
					return "value", 0, p.Write(ctx, tx, p.name(key))
				})
				p.must(err, "DoTx of "+name)
				p.wrote(key, 1, name)
				p.replaysTx(key, "payload", "value")
			}
		}},
		{"A settled record must be replayed although a transaction holds the key", func(p *txProbe[Tx]) {
			key := p.key()
			_, err := p.doTx(key, "payload", p.ends(key, "value", 0, nil))
			p.must(err, "DoTx")
			tx := p.begin(key)
			defer tx.Rollback(p.ctx)
			p.replaysTx(key, "payload", "value")
			_, err = p.doTx(key, "another", p.mustNotRunTx())
			p.wantError(err, idem.ErrPayloadMismatch, "another payload")
		}},
		{"DoTx that meets a live claim must get ErrInProgress, or a mismatch, and leave it alone", func(p *txProbe[Tx]) {
			key := p.key()
			p.hold(key, "payload")
			before := p.snapshot(key)
			_, err := p.doTx(key, "payload", p.mustNotRunTx())
			p.isBusy(err, "the same payload")
			if d := retryAfter(err); d > long || d < long/2 {
				p.errorf("the retry time of a lease of %v is %v", long, d)
			}
			_, err = p.doTx(key, "another", p.mustNotRunTx())
			p.wantError(err, idem.ErrPayloadMismatch, "another payload")
			p.unchanged(before, "after both")
		}},
		{"DoTx that waits must get the outcome of the transaction that it met", func(p *txProbe[Tx]) {
			key := p.key()
			var waited func()
			_, err := p.doTx(key, "payload", func(ctx context.Context, tx Tx) (string, idem.Status, error) {
				waited = p.waiter(key, func(res idem.Result[string], err error) {
					if err != nil || !res.Replayed || res.Value != "value" {
						p.errorf("the waiter got %+v, %v", res, err)
					}
				})
				return "value", 0, p.Write(ctx, tx, p.name(key))
			})
			p.must(err, "DoTx")
			waited()
			p.wrote(key, 1, "after both")
		}},
		{"DoTx that waits must run when the transaction that it met leaves nothing", func(p *txProbe[Tx]) {
			key := p.key()
			var waited func()
			_, err := p.doTx(key, "payload", func(ctx context.Context, tx Tx) (string, idem.Status, error) {
				waited = p.waiter(key, func(res idem.Result[string], err error) {
					if err != nil || res.Replayed || res.Value != "of the waiter" {
						p.errorf("the waiter got %+v, %v", res, err)
					}
				})
				return "", 0, errors.Join(p.Write(ctx, tx, p.name(key)), errUnforeseen)
			})
			p.wantError(err, errUnforeseen, "the first call")
			waited()
			p.wrote(key, 1, "after both")
		}},
		{"DoTx that waits in vain must get ErrInProgress", func(p *txProbe[Tx]) {
			key := p.key()
			tx := p.begin(key)
			_, err := p.doTx(key, "payload", p.mustNotRunTx(), idem.WithWait(50*time.Millisecond))
			p.isBusy(err, "the waiter")
			ctx, cancel := context.WithCancel(p.ctx)
			cancel()
			_, err = idem.DoTx(ctx, p.txStore, key, "payload", p.mustNotRunTx(), idem.WithWait(long))
			p.wantError(err, context.Canceled, "the waiter whose ctx has ended")
			tx.Rollback(p.ctx)
		}},
	}
}

// waiter starts a call that waits for the key, and returns once it has met the
// transaction that is at work. The function returned waits for its end.
func (p *txProbe[Tx]) waiter(key idem.Key, check func(idem.Result[string], error)) (wait func()) {
	p.t.Helper()
	met := make(chan struct{})
	once := sync.OnceFunc(func() { close(met) })
	watched := &beginWatch[Tx]{TxStore: p.txStore, began: func(tx idem.Transaction[Tx]) {
		if _, locked := tx.Record(); !locked {
			once()
		}
	}}
	wait = p.beside(func() {
		res, err := idem.DoTx(p.ctx, watched, key, "payload", p.ends(key, "of the waiter", 0, nil), idem.WithWait(patience))
		check(res, err)
	})
	p.await(met, "a call to meet the transaction")
	return wait
}

func second[A any](_ A, err error) error { return err }
