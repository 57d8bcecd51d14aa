package storetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/idem-go/idem"
)

// txErrorChecks are about a store that fails DoTx.
func txErrorChecks[Tx any]() []txCheck[Tx] {
	return []txCheck[Tx]{
		{"DoTx must begin again when the begin was not answered, and run once", func(p *txProbe[Tx]) {
			key, failures := p.key(), 2
			p.txStore = &beginWatch[Tx]{TxStore: p.txStore, before: func() error {
				if failures--; failures >= 0 {
					return errLost
				}
				return nil
			}}
			_, err := p.doTx(key, "payload", p.ends(key, "value", 0, nil))
			p.must(err, "DoTx")
			p.wrote(key, 1, "after DoTx")
		}},
		{"DoTx must not run when the begin is never answered", func(p *txProbe[Tx]) {
			key := p.key()
			p.txStore = &beginWatch[Tx]{TxStore: p.txStore, before: func() error { return errLost }}
			_, err := p.doTx(key, "payload", p.mustNotRunTx())
			p.wantError(err, idem.ErrUnavailable, "DoTx")
			p.wantError(err, errLost, "DoTx")
			p.nothing(key, "after DoTx")
		}},
		{"B43 DoTx whose ctx ends while it begins must not run, and leave nothing locked", func(p *txProbe[Tx]) {
			key := p.key()
			ctx, cancel := context.WithCancel(p.ctx)
			watched := &beginWatch[Tx]{TxStore: p.txStore, began: func(idem.Transaction[Tx]) { cancel() }}
			_, err := idem.DoTx(ctx, watched, key, "payload", p.mustNotRunTx(), idem.WithDetached())
			p.wantError(err, context.Canceled, "DoTx")
			p.runsAnew(key, "after DoTx")
		}},
		{"DoTx whose ctx has ended must not begin", func(p *txProbe[Tx]) {
			ctx, cancel := context.WithCancel(p.ctx)
			cancel()
			watched := &beginWatch[Tx]{TxStore: p.txStore, before: func() error {
				p.errorf("it begins")
				return nil
			}}
			_, err := idem.DoTx(ctx, watched, p.key(), "payload", p.mustNotRunTx())
			p.wantError(err, context.Canceled, "DoTx")
		}},
		{"DoTx must tell what became of a commit that failed, and never run again", func(p *txProbe[Tx]) {
			for name, c := range map[string]struct{ err, want, wantNot error }{
				"a passing error":    {errLost, idem.ErrUnavailable, idem.ErrOutcomeUnknown},
				"a permanent error":  {idem.Permanent(errLost), errLost, idem.ErrUnavailable},
				"an unknown outcome": {idem.Unknown(errLost), idem.ErrOutcomeUnknown, idem.ErrUnavailable},
			} {
				key := p.key()
				p.txStore = &finishWatch[Tx]{beginWatch: beginWatch[Tx]{TxStore: p.Store}, fail: c.err}
				n := 0
				res, err := p.doTx(key, "payload", func(ctx context.Context, tx Tx) (string, idem.Status, error) {
					n++
					return "value", 201, p.Write(ctx, tx, p.name(key))
				})
				p.wantError(err, c.want, "%s", name)
				if errors.Is(err, c.wantNot) {
					p.errorf("%s: got %v", name, err)
				}
				if n != 1 || res.Replayed || !res.CompletedAt.IsZero() {
					p.errorf("%s: ran %d times, got %+v", name, n, res)
				}
				p.txStore = p.Store
				p.runsAnew(key, name)
			}
		}},
	}
}

// A beginWatch steps in before and after a transaction begins.
type beginWatch[Tx any] struct {
	idem.TxStore[Tx]
	before func() error
	began  func(idem.Transaction[Tx])
	mu     sync.Mutex
}

func (s *beginWatch[Tx]) BeginTx(ctx context.Context, req idem.BeginRequest) (idem.Transaction[Tx], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.before != nil {
		if err := s.before(); err != nil {
			return nil, err
		}
	}
	tx, err := s.TxStore.BeginTx(ctx, req)
	if err == nil && s.began != nil {
		s.began(tx)
	}
	return tx, err
}

// A finishWatch fails to commit.
type finishWatch[Tx any] struct {
	beginWatch[Tx]
	fail error
}

func (s *finishWatch[Tx]) BeginTx(ctx context.Context, req idem.BeginRequest) (idem.Transaction[Tx], error) {
	tx, err := s.beginWatch.BeginTx(ctx, req)
	return &failing[Tx]{tx, s.fail}, err
}

type failing[Tx any] struct {
	idem.Transaction[Tx]
	err error
}

func (tx *failing[Tx]) Finish(ctx context.Context, _ idem.FinishRequest) (time.Time, error) {
	tx.Rollback(ctx)
	return time.Time{}, tx.err
}
