package idem

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// DoTx does a whole call of [Do] in one transaction of the store's database:
// the claim, what fn writes through its transaction, and the outcome commit
// together or not at all. It is what a store's own DoTx, such as pg.DoTx, is
// made of, and what programs call is that.
//
// It differs from Do in this:
//
//   - While fn runs, other callers get [ErrInProgress] with a retry time that is
//     a hint: nothing has been published yet, no payload and no lease.
//   - If the outcome is kept with a nil error, fn's writes are kept; with an
//     error, they are undone and the failure alone is kept; if it is to be
//     released or held, everything is rolled back and nothing is left.
//   - If a rival recorded its outcome first, everything is rolled back, and the
//     call returns what the rival's record says.
//   - If the commit fails, everything was rolled back: the error is the
//     database's own, or [ErrUnavailable] if a retry may succeed. If nobody can
//     tell, it is [ErrOutcomeUnknown]. fn is never run again.
func DoTx[T, Tx any](ctx context.Context, store TxStore[Tx], key Key, payload any,
	fn func(context.Context, Tx) (T, Status, error), opts ...Option,
) (Result[T], error) {
	c, err := newCall(ctx, store, key, opts)
	switch {
	case err != nil:
		return Result[T]{}, err
	case fn == nil:
		return Result[T]{}, invalidOption("nil fn")
	}
	if c.payload, err = hashPayload(payload, c.cfg.hashKeys); err != nil {
		return Result[T]{}, err
	}
	tx, req, rec, err := begin(ctx, c, store)
	switch {
	case err != nil:
		return Result[T]{}, err
	case tx == nil:
		return replay[T](c, rec)
	default:
		return runTx(ctx, c, tx, req, fn)
	}
}

// A TxStore is a [Store] that can do a whole call in one transaction. Package
// storetest has the suite for it.
type TxStore[Tx any] interface {
	Store

	// BeginTx starts a transaction in which what is committed by others becomes
	// visible statement by statement, tries to lock the key in it against other
	// transactions and against claims, without waiting, and reads the key's
	// record. It returns an error instead of a transaction if a call with the
	// key is running further up in the same transaction.
	BeginTx(ctx context.Context, req BeginRequest) (Transaction[Tx], error)
}

// BeginRequest is the argument of [TxStore.BeginTx].
type BeginRequest struct {
	Key Key

	// Idle is how long the transaction may be idle: a caller that vanished
	// without a trace must not lock the key for longer.
	Idle time.Duration
}

// A Transaction is one call's.
type Transaction[Tx any] interface {
	// Record returns the key's record as it was read, zero if there was none,
	// and whether the key was locked before that.
	Record() (rec Record, locked bool)

	// Tx is for the closure. Committing or rolling it back is refused.
	Tx() Tx

	// Finish records the outcome and commits. The record is inserted, or takes
	// the place of req.Claim.Replace under the conditions of [Store.Claim]. If a
	// rival's record stands in the way, everything is rolled back: ErrLeaseLost.
	// If nobody can tell whether the commit was carried out, the error matches
	// ErrOutcomeUnknown. With any other error everything was rolled back.
	Finish(ctx context.Context, req FinishRequest) (time.Time, error)

	// Rollback undoes everything. It is called instead of Finish.
	Rollback(ctx context.Context)
}

// FinishRequest is the argument of [Transaction.Finish].
type FinishRequest struct {
	Claim    ClaimRequest
	State    State // Succeeded or Failed
	Response Response
	Undo     bool // what the closure wrote is undone first
}

// begin returns the transaction to run in and the claim to finish it with, or
// no transaction and the record to replay.
func begin[Tx any](ctx context.Context, c *call, store TxStore[Tx]) (Transaction[Tx], ClaimRequest, Record, error) {
	fresh, wait := c.newClaim(), c.patience()
	if err := ctx.Err(); err != nil {
		return nil, fresh, Record{}, err
	}
	for {
		tx, err := tryBegin(c, store)
		if err != nil {
			return nil, fresh, Record{}, err
		}
		rec, locked := tx.Record()
		free, err := c.judge(rec)
		if free && locked && ctx.Err() == nil {
			return tx, c.takeOver(fresh, rec), rec, nil
		}
		tx.Rollback(c.background)
		if err := ctx.Err(); err != nil {
			return nil, fresh, rec, err
		}
		if free {
			err = &InProgressError{RetryAfter: busyRetryAfter}
		}
		if !errors.Is(err, ErrInProgress) || !wait.more() {
			return nil, fresh, rec, c.refuse(rec, err)
		}
		if err := wait.sleep(ctx, err); err != nil {
			return nil, fresh, rec, c.refuse(rec, err)
		}
	}
}

func tryBegin[Tx any](c *call, store TxStore[Tx]) (Transaction[Tx], error) {
	ctx, cancel := context.WithTimeout(c.background, c.cfg.timeout)
	defer cancel()
	for tries, pause := 1, firstPause; ; tries, pause = tries+1, 2*pause {
		tx, err := store.BeginTx(ctx, BeginRequest{Key: c.key, Idle: c.cfg.lease})
		switch {
		case err == nil:
			return tx, nil
		case errors.Is(err, ErrCorruptRecord), errors.Is(err, ErrInProgress), errors.Is(err, ErrInvalidOption):
			return nil, c.refuse(Record{}, err)
		case tries == maxTries, !worthRepeating(err), !sleep(ctx, pause):
			return nil, c.unavailable(err)
		}
	}
}

// runTx is run within a transaction: there is no claim to keep alive, and one
// step settles it.
func runTx[T, Tx any](ctx context.Context, c *call, tx Transaction[Tx], req ClaimRequest,
	fn func(context.Context, Tx) (T, Status, error),
) (res Result[T], err error) {
	ended := false
	defer func() {
		if !ended { // one of the caller's functions has panicked on the way
			tx.Rollback(c.background)
		}
	}()
	rec := Record{ExecutionID: req.ExecutionID, Attempt: 1, Reclaimed: req.Reclaimed}
	if req.Replace != nil {
		rec.Attempt += req.Replace.Attempt
	}
	if reclaims(req) {
		c.event(EventReclaimed, rec, nil)
	}
	out := Outcome{Panicked: true} // until it has returned
	began := time.Now()
	defer func() {
		e := Event{Kind: EventExecuted, Status: out.Status, Duration: time.Since(began), Disposition: c.dispose(out)}
		if e.Disposition != Keep {
			ended = true
			tx.Rollback(c.background)
			c.emit(e, rec)
			return
		}
		completion, notKept := c.completion(rec, out, func() ([]byte, error) { return encode(c, &res.Value) })
		ended = true
		completed, failure := finish(c, tx, FinishRequest{
			Claim: req, State: completion.State, Response: completion.Response, Undo: out.failed(),
		})
		c.emit(e, rec)
		switch {
		case failure == nil:
			res.CompletedAt, res.ExpiresAt = completed, completed.Add(c.cfg.retention)
			if notKept != nil {
				notKept = fmt.Errorf("%w: %w", ErrNotRecorded, notKept)
				c.event(EventNotRecorded, rec, notKept)
			}
			err = join(err, notKept)
		case errors.Is(failure, ErrLeaseLost):
			c.event(EventLeaseLost, rec, nil)
			res, err = rival[T](c)
		case errors.Is(failure, ErrOutcomeUnknown):
			c.event(EventOutcomeUnknown, rec, failure)
			err = join(err, failure)
		case worthRepeating(failure):
			res, err = Result[T]{}, join(err, c.unavailable(failure))
		default:
			res, err = Result[T]{}, join(err, failure)
		}
	}()
	res = Result[T]{ExecutionID: rec.ExecutionID.String(), Attempt: rec.Attempt}
	work := &execution{}
	work.start(ctx, c, rec)
	res.Value, res.Status, err = fn(work, tx.Tx())
	if res.Status == 0 && err == nil {
		res.Status = 200
	}
	out = Outcome{Status: res.Status, Err: err}
	return res, err
}

func finish[Tx any](c *call, tx Transaction[Tx], req FinishRequest) (time.Time, error) {
	ctx, cancel := context.WithTimeout(c.background, c.cfg.timeout)
	defer cancel()
	return tx.Finish(ctx, req)
}

// rival returns what the record of the caller that was first says.
func rival[T any](c *call) (Result[T], error) {
	rec, _, err := c.lookup(c.background)
	if err != nil {
		return Result[T]{}, err
	}
	free, err := c.judge(rec)
	switch {
	case free: // it was released, or is on its way: fn does not run twice in one call
		return Result[T]{}, c.refuse(rec, &InProgressError{RetryAfter: busyRetryAfter})
	case err != nil:
		return Result[T]{}, c.refuse(rec, err)
	}
	return replay[T](c, rec)
}
