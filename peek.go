package idem

import (
	"context"
	"errors"
)

// Peek tells what [Do] would do with key and payload now, without doing it. It
// reads the record once, and changes and locks nothing, so the answer is only
// advice: it may be another one a moment later. A use is to spare an exact
// retry the rate limiter.
//
// It returns true if Do would replay, false if it would run its closure, and
// otherwise the error that Do would return, such as [ErrInProgress] or
// [ErrPayloadMismatch]. Waiting, and options that concern the result, do not
// count; no event but those of errors is observed.
func Peek(ctx context.Context, store Store, key Key, payload any, opts ...Option) (replay bool, err error) {
	c, err := newCall(ctx, store, key, opts)
	if err != nil {
		return false, err
	}
	if c.payload, err = hashPayload(payload, c.cfg.hashKeys); err != nil {
		return false, err
	}
	rec, found, err := c.lookup(ctx)
	if err != nil || !found {
		return false, err
	}
	free, err := c.judge(rec)
	return !free && err == nil, c.refuse(rec, err)
}

// Resolve settles a key whose outcome is unknown: its owner's lease ended
// without an outcome. It takes the stale claim over, whatever the payload and
// the policy of [WithStale], so that a late owner is fenced out, and runs find
// to learn what happened: for example by asking the payment provider about
// [ExecutionID], or because an operator knows. What find returns is settled as
// an outcome of [Do] is: a final status is kept and replayed from then on; a
// passing one, such as 503, frees the key. An error without a status means that
// find has learnt nothing: the key stays as it was.
//
// T and the codec must be those of the key's Do. It returns
// [ErrNothingToResolve] if the key has no unknown outcome, and [ErrInProgress]
// while an owner's lease is alive; waiting does not count.
func Resolve[T any](ctx context.Context, store Store, key Key,
	find func(context.Context) (T, Status, error), opts ...Option,
) (Result[T], error) {
	c, err := newCall(ctx, store, key, opts)
	switch {
	case err != nil:
		return Result[T]{}, err
	case find == nil:
		return Result[T]{}, invalidOption("nil find")
	}
	c.cfg.disposition = knowing(c.cfg.disposition)
	rec, _, err := c.lookup(ctx)
	if err != nil {
		return Result[T]{}, err
	}
	if err := c.unresolved(rec); err != nil {
		return Result[T]{}, err
	}
	req := c.newClaim()
	req.Hash, req.ExecutionID, req.Reclaimed, req.Replace = rec.Hash, rec.ExecutionID, true, &rec
	won, until, err := c.tryClaim(req)
	switch {
	case err != nil:
		return Result[T]{}, err
	case won.Token != req.Token: // somebody else was first
		if err := c.unresolved(won); err != nil {
			return Result[T]{}, err
		}
		return Result[T]{}, &InProgressError{RetryAfter: busyRetryAfter}
	}
	if until, err = c.admit(ctx, req, won, until); err != nil {
		return Result[T]{}, err
	}
	return run(ctx, c, won, until, find)
}

// unresolved returns nil if the record's outcome is unknown.
func (c *call) unresolved(rec Record) error {
	switch {
	case rec.Attempt == 0, rec.Expired(), rec.released():
		return ErrNothingToResolve
	case !rec.readable():
		return c.refuse(rec, ErrCorruptRecord)
	case rec.State != Processing:
		return ErrNothingToResolve
	case rec.LeaseLeft > 0:
		return &InProgressError{RetryAfter: rec.LeaseLeft}
	}
	return nil
}

// knowing is the disposition d for [Resolve]: to have learnt nothing is no
// reason to do the work again.
func knowing(d func(Outcome) Disposition) func(Outcome) Disposition {
	return func(o Outcome) Disposition {
		if o.Err != nil && o.Status == 0 {
			return Hold
		}
		return d(o)
	}
}

func (c *call) lookup(ctx context.Context) (Record, bool, error) {
	if err := ctx.Err(); err != nil {
		return Record{}, false, err
	}
	ctx, cancel := context.WithTimeout(c.background, c.cfg.timeout)
	defer cancel()
	rec, found, err := c.store.Lookup(ctx, c.key)
	switch {
	case errors.Is(err, ErrCorruptRecord):
		return rec, false, c.refuse(rec, err)
	case err != nil:
		return rec, false, c.unavailable(err)
	}
	return rec, found, nil
}
