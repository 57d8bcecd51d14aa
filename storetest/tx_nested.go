package storetest

import (
	"context"

	"github.com/idem-go/idem"
)

// txNestedChecks are about calls within a closure.
func txNestedChecks[Tx any]() []txCheck[Tx] {
	return []txCheck[Tx]{
		{"The same key must be refused within itself, whatever its record was", func(p *txProbe[Tx]) {
			for name, make := range map[string]func(idem.Key){
				"new":   func(idem.Key) {},
				"stale": func(key idem.Key) { p.die(key, "payload") },
				"released": func(key idem.Key) {
					_, _ = p.do(key, "payload", fails("", 503, errNoneLeft))
				},
				"expired": func(key idem.Key) {
					_, err := p.do(key, "payload", returns("old", 0), idem.WithRetention(short))
					p.must(err, "Do")
					p.untilExpired(key)
				},
			} {
				key := p.key()
				make(key)
				_, err := p.doTx(key, "payload", func(ctx context.Context, tx Tx) (string, idem.Status, error) {
					for _, store := range p.inside(tx) {
						_, err := idem.DoTx(ctx, store, key, "payload", p.mustNotRunTx())
						p.isBusy(err, "DoTx within itself, at a key that is "+name)
					}
					return "value", 0, p.Write(ctx, tx, p.name(key))
				})
				p.must(err, "DoTx of a key that is "+name)
				p.wrote(key, 1, "after DoTx of a key that is "+name)
				p.replaysTx(key, "payload", "value")
			}
		}},
		{"Another key within a closure must commit with it, or not at all", func(p *txProbe[Tx]) {
			for _, status := range []idem.Status{201, 503} {
				outer, inner := p.key(), p.key()
				_, err := p.doTx(outer, "payload", func(ctx context.Context, tx Tx) (string, idem.Status, error) {
					if p.Within == nil {
						return "value", status, nil
					}
					for _, replayed := range []bool{false, true} {
						res, err := idem.DoTx(ctx, p.Within(tx), inner, "payload", p.ends(inner, "inner", 0, nil))
						if err != nil || res.Value != "inner" || res.Replayed != replayed {
							p.errorf("the inner call got %+v, %v; want replayed %v", res, err, replayed)
						}
					}
					p.nothing(inner, "before the outer call commits")
					return "value", status, p.Write(ctx, tx, p.name(outer))
				})
				switch {
				case p.Within == nil:
				case status == 201:
					p.must(err, "DoTx")
					p.wrote(outer, 1, "after both")
					p.wrote(inner, 1, "after both")
					p.replaysTx(outer, "payload", "value")
					p.replaysTx(inner, "payload", "inner")
				default:
					p.runsAnew(outer, "after the outer call was undone")
					p.runsAnew(inner, "after the outer call was undone")
				}
			}
		}},
		{"A call within a closure that leaves nothing must leave the closure's transaction as it was", func(p *txProbe[Tx]) {
			outer, other := p.key(), p.key()
			_, err := p.do(other, "payload", returns("value", 0))
			p.must(err, "Do")
			_, err = p.doTx(outer, "payload", func(ctx context.Context, tx Tx) (string, idem.Status, error) {
				p.write(ctx, tx, outer)
				if p.Within == nil {
					return "value", 0, nil
				}
				within, inner := p.Within(tx), p.key()
				for name, fn := range map[string]txClosure[Tx]{
					"a release": p.ends(inner, "", 503, nil),
					"an error":  p.ends(inner, "", 0, errUnforeseen),
				} {
					_, _ = idem.DoTx(ctx, within, inner, "payload", fn)
					p.must(p.Write(ctx, tx, p.name(outer)+" later"), "Write after "+name)
				}
				recovered(func() {
					_, _ = idem.DoTx(ctx, within, inner, "payload", func(ctx context.Context, tx Tx) (string, idem.Status, error) {
						p.write(ctx, tx, inner)
						panic(errUnforeseen)
					})
				})
				_, err := idem.DoTx(ctx, within, other, "another", p.mustNotRunTx())
				p.wantError(err, idem.ErrPayloadMismatch, "the inner call")
				failed := p.key()
				_, err = idem.DoTx(ctx, within, failed, "payload", p.ends(inner, "", 409, errNoneLeft))
				p.wantError(err, errNoneLeft, "the inner call")
				return "value", 0, p.Write(ctx, tx, p.name(outer)+" later")
			})
			p.must(err, "DoTx")
			p.wrote(outer, 1, "after all")
			p.replaysTx(outer, "payload", "value")
		}},
	}
}

// inside are the stores that a closure may use.
func (p *txProbe[Tx]) inside(tx Tx) []idem.TxStore[Tx] {
	stores := []idem.TxStore[Tx]{p.Store}
	if p.Within != nil {
		stores = append(stores, p.Within(tx))
	}
	return stores
}
