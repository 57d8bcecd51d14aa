package storetest

import (
	"context"

	"github.com/idem-go/idem"
)

// txEndChecks are about who ends a transaction, and what is left of it then.
func txEndChecks[Tx any]() []txCheck[Tx] {
	return []txCheck[Tx]{
		{"A closure must not be able to commit or roll back its transaction", func(p *txProbe[Tx]) {
			for _, end := range []string{"Commit", "Rollback"} {
				key := p.key()
				_, err := p.doTx(key, "payload", func(ctx context.Context, tx Tx) (string, idem.Status, error) {
					p.write(ctx, tx, key)
					if err, ok := endTx(ctx, tx, end); ok && err == nil {
						p.errorf("%s succeeds", end)
					}
					p.nothing(key, "after "+end)
					p.write(ctx, tx, key)
					return "value", 0, nil
				})
				p.must(err, "DoTx")
				p.wrote(key, 2, "after DoTx")
			}
		}},
		{"A transaction must not be usable after its call has ended, whichever way", func(p *txProbe[Tx]) {
			for name, end := range map[string]func(idem.Key, txClosure[Tx]){
				"with an outcome": func(key idem.Key, fn txClosure[Tx]) { _, _ = p.doTx(key, "payload", fn) },
				"with a failure": func(key idem.Key, fn txClosure[Tx]) {
					_, _ = p.doTx(key, "payload", func(ctx context.Context, tx Tx) (string, idem.Status, error) {
						_, _, _ = fn(ctx, tx)
						return "", 409, errNoneLeft
					})
				},
				"with nothing": func(key idem.Key, fn txClosure[Tx]) {
					_, _ = p.doTx(key, "payload", func(ctx context.Context, tx Tx) (string, idem.Status, error) {
						_, _, _ = fn(ctx, tx)
						return "", 503, nil
					})
				},
				"with a panic": func(key idem.Key, fn txClosure[Tx]) {
					recovered(func() {
						_, _ = p.doTx(key, "payload", func(ctx context.Context, tx Tx) (string, idem.Status, error) {
							_, _, _ = fn(ctx, tx)
							panic(errUnforeseen)
						})
					})
				},
				"with a rival": func(_ idem.Key, fn txClosure[Tx]) {
					key, owner := p.dead()
					_, _ = p.doTx(key, "payload", func(ctx context.Context, tx Tx) (string, idem.Status, error) {
						p.moves(complete, owner)
						return fn(ctx, tx)
					})
				},
			} {
				key := p.key()
				var kept Tx
				end(key, func(_ context.Context, tx Tx) (string, idem.Status, error) {
					kept = tx
					return "value", 0, nil
				})
				if p.Write(p.ctx, kept, p.name(key)) == nil {
					p.errorf("after an end %s, a write succeeds", name)
				}
				for _, end := range []string{"Commit", "Rollback"} {
					if err, ok := endTx(p.ctx, kept, end); ok && err == nil {
						p.errorf("after an end %s, %s succeeds", name, end)
					}
				}
				p.wrote(key, 0, "after an end "+name)
			}
		}},
		{"A closure that breaks its transaction and says nothing must get an error, and leave nothing", func(p *txProbe[Tx]) {
			key := p.key()
			_, err := p.doTx(key, "payload", func(ctx context.Context, tx Tx) (string, idem.Status, error) {
				p.write(ctx, tx, key)
				gone, cancel := context.WithCancel(ctx)
				cancel()
				_ = p.Write(gone, tx, p.name(key)) // fails, and may break the transaction or not
				return "value", 0, nil
			})
			if err != nil {
				p.runsAnew(key, "after a broken transaction")
				return
			}
			p.wrote(key, 1, "after a transaction that was not broken")
			p.replaysTx(key, "payload", "value")
		}},
	}
}

// endTx calls a method of the transaction, if it has it.
func endTx(ctx context.Context, tx any, method string) (err error, ok bool) {
	switch method {
	case "Commit":
		switch tx := tx.(type) {
		case interface{ Commit(context.Context) error }:
			return tx.Commit(ctx), true
		case interface{ Commit() error }:
			return tx.Commit(), true
		}
	case "Rollback":
		switch tx := tx.(type) {
		case interface{ Rollback(context.Context) error }:
			return tx.Rollback(ctx), true
		case interface{ Rollback() error }:
			return tx.Rollback(), true
		}
	}
	return nil, false
}
