package storetest

import (
	"context"
	"errors"
	"runtime"

	"github.com/idem-go/idem"
)

// txUndoChecks are about outcomes whose writes are undone.
func txUndoChecks[Tx any]() []txCheck[Tx] {
	return []txCheck[Tx]{
		{"DoTx: a final failure must be kept and its writes undone", func(p *txProbe[Tx]) {
			key, known := p.key(), idem.WithErrors(map[string]error{"none_left": errNoneLeft})
			res, err := p.doTx(key, "payload", p.ends(key, "sorry", 409, errNoneLeft), known)
			if p.wantError(err, errNoneLeft, "the first call"); res.Value != "sorry" || res.CompletedAt.IsZero() {
				p.errorf("the first call got %+v", res)
			}
			p.wrote(key, 0, "after the failure")
			if state := p.lookup(key).State; state != idem.Failed {
				p.errorf("the state is %s", state)
			}
			replay, err := p.doTx(key, "payload", p.mustNotRunTx(), known)
			p.wantError(err, errNoneLeft, "the replay")
			if !replay.Replayed || replay.Value != "sorry" || replay.Status != 409 {
				p.errorf("the replay is %+v", replay)
			}
		}},
		{"DoTx: an outcome that is released must leave nothing", func(p *txProbe[Tx]) {
			for name, fn := range map[string]func(idem.Key) txClosure[Tx]{
				"an error without a status": func(key idem.Key) txClosure[Tx] { return p.ends(key, "", 0, errUnforeseen) },
				"status 503 and an error":   func(key idem.Key) txClosure[Tx] { return p.ends(key, "", 503, errUnforeseen) },
				"status 429":                func(key idem.Key) txClosure[Tx] { return p.ends(key, "", 429, nil) },
			} {
				key := p.key()
				if _, err := p.doTx(key, "payload", fn(key)); err != nil && !errors.Is(err, errUnforeseen) {
					p.errorf("%s: got error %v", name, err)
				}
				p.runsAnew(key, name)
			}
		}},
		{"DoTx: an outcome that is unknown must leave nothing", func(p *txProbe[Tx]) {
			for _, err := range []error{
				context.Canceled, context.DeadlineExceeded, idem.Unknown(errUnforeseen), idem.ErrLeaseLost, idem.ErrNotRecorded,
			} {
				key := p.key()
				_, got := p.doTx(key, "payload", p.ends(key, "", 201, err))
				p.wantError(got, err, "the first call")
				p.runsAnew(key, err.Error())
			}
		}},
		{"DoTx: a panic must go on unchanged and leave nothing", func(p *txProbe[Tx]) {
			key := p.key()
			if got := p.panics(key); got != errUnforeseen { //nolint:errorlint // the very value
				p.errorf("recovered %v", got)
			}
			p.runsAnew(key, "a panic")
		}},
		{"DoTx: a closure that ends its goroutine must leave nothing", func(p *txProbe[Tx]) {
			key := p.key()
			p.beside(func() {
				_, _ = p.doTx(key, "payload", func(ctx context.Context, tx Tx) (string, idem.Status, error) {
					p.write(ctx, tx, key)
					runtime.Goexit()
					return "", 0, nil
				})
				p.errorf("DoTx has returned")
			})()
			p.runsAnew(key, "runtime.Goexit")
		}},
		{"DoTx with StoreAll must keep a panic and undo its writes", func(p *txProbe[Tx]) {
			key, keepAll := p.key(), idem.WithDisposition(idem.StoreAll)
			if got := p.panics(key, keepAll); got != errUnforeseen { //nolint:errorlint // the very value
				p.errorf("recovered %v", got)
			}
			p.wrote(key, 0, "after a panic")
			res, err := p.doTx(key, "payload", p.mustNotRunTx(), keepAll)
			recorded := new(idem.RecordedError)
			if !errors.As(err, &recorded) || recorded.Code != idem.CodeExecutionFailed || res.Status != 500 || !res.Replayed {
				p.errorf("the replay is %+v, error %v", res, err)
			}
		}},
		{"DoTx with StoreAll must keep an error without a status and undo its writes", func(p *txProbe[Tx]) {
			key, keepAll := p.key(), idem.WithDisposition(idem.StoreAll)
			_, err := p.doTx(key, "payload", p.ends(key, "", 0, errUnforeseen), keepAll)
			p.wantError(err, errUnforeseen, "the first call")
			p.wrote(key, 0, "after the error")
			res, err := p.doTx(key, "payload", p.mustNotRunTx(), keepAll)
			if recorded := new(idem.RecordedError); !errors.As(err, &recorded) || res.Status != 500 {
				p.errorf("the replay is %+v, error %v", res, err)
			}
		}},
		{"DoTx must not leave its key locked when the caller's own functions panic", func(p *txProbe[Tx]) {
			oops := func() { panic(errUnforeseen) }
			for name, opt := range map[string]idem.Option{
				"the disposition": idem.WithDisposition(func(idem.Outcome) idem.Disposition { oops(); return 0 }),
				"the observer": idem.WithObserver(func(_ context.Context, e idem.Event) {
					if e.Kind == idem.EventReclaimed {
						oops()
					}
				}),
			} {
				key := p.key()
				p.die(key, "payload")
				if recovered(func() { _, _ = p.doTx(key, "payload", p.ends(key, "", 201, nil), opt) }) == nil {
					p.errorf("%s does not panic", name)
				}
				p.wrote(key, 0, name+" panics")
				_, err := p.doTx(key, "payload", p.ends(key, "value", 0, nil))
				p.must(err, "DoTx after "+name+" has panicked")
			}
		}},
	}
}

// panics calls DoTx with a closure that panics, and returns what comes of it.
func (p *txProbe[Tx]) panics(key idem.Key, opts ...idem.Option) any {
	return recovered(func() {
		_, _ = p.doTx(key, "payload", func(ctx context.Context, tx Tx) (string, idem.Status, error) {
			p.write(ctx, tx, key)
			panic(errUnforeseen)
		}, opts...)
	})
}

func recovered(f func()) (v any) {
	defer func() { v = recover() }()
	f()
	return nil
}
