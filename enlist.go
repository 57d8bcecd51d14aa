package idem

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Enlisted is a transaction that takes part in a run of [Do]: the outcome is
// recorded in it, so that it commits together with what the closure wrote. It
// is made by a store's own function, such as pg.Begin, and handed over with
// [Enlist].
type Enlisted interface {
	// Complete records the outcome as [Store.Complete] does and commits. If the
	// token does not hold the claim any more, everything is rolled back:
	// ErrLeaseLost. If nobody can tell whether the commit was carried out, the
	// error matches ErrOutcomeUnknown. With any other error everything was
	// rolled back. It is called once.
	Complete(ctx context.Context, req CompleteRequest) (time.Time, error)

	// Rollback undoes everything. It is called instead of Complete.
	Rollback(ctx context.Context)
}

// A Claim is what a transaction has to know of the run that it takes part in.
type Claim struct {
	Key   Key
	Token ID
	Lease time.Duration
}

// Enlist begins a transaction for the run that ctx belongs to and
// makes the run end with it: completed if its outcome is kept and no error,
// rolled back otherwise. ctx must be that of a closure of [Do] or derived from
// it; a run takes one transaction. It is for stores; programs call the store's
// own function.
func Enlist(ctx context.Context, begin func(Claim) (Enlisted, error)) error {
	e, ok := ctx.Value(executionKey{}).(*execution)
	if !ok {
		return invalidOption("no closure of Do is running in this context")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case !e.open:
		return invalidOption("no closure of Do is running in this context")
	case e.tx != nil:
		return invalidOption("the closure has a transaction already")
	}
	tx, err := begin(Claim{Key: e.key, Token: e.rec.Token, Lease: e.lease})
	if err == nil {
		e.tx = tx
	}
	return err
}

// close ends the time for Enlist.
func (e *execution) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.open = false
}

// take returns the transaction that was enlisted, once: it must be ended.
func (e *execution) take() Enlisted {
	tx := e.tx
	e.tx = nil
	return tx
}

func (e *execution) rollback(ctx context.Context) {
	if tx := e.take(); tx != nil {
		tx.Rollback(ctx)
	}
}

// commit ends a run whose outcome its transaction records. Neither fn nor the
// record are tried again: what fn wrote is gone if the commit failed, and
// recording the outcome on its own would claim that it is there.
func (c *call) commit(tx Enlisted, req CompleteRequest) (time.Time, error) {
	ctx, cancel := context.WithTimeout(c.background, c.cfg.timeout)
	defer cancel()
	completed, err := tx.Complete(ctx, req)
	if err == nil || errors.Is(err, ErrLeaseLost) || errors.Is(err, ErrOutcomeUnknown) {
		return completed, err
	}
	return completed, fmt.Errorf("%w: the closure's writes were rolled back: %w", ErrOutcomeUnknown, err)
}
