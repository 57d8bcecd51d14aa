package idemmq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem"
)

// Handle runs fn once for the message of d and decides what becomes of the
// delivery. consumer is the name of what the program does with such messages,
// "billing" for example: it is the scope of their keys, so that each consumer of
// a message handles it once. It must stay the same over deploys.
//
// An error of fn frees the message at once: it is delivered again after a
// backoff, and fn runs again. [Reject] marks one after which it should not. After
// a panic, [runtime.Goexit], a context's error or [idem.Unknown], nobody can tell
// whether the work was done: the message comes again when the lease is over, and
// then follows [idem.WithStale]. A panic continues when the delivery is decided.
//
// While fn runs, the delivery is extended, see [WithHeartbeat]. fn's context is
// that of [idem.Do] and knows [KeyFrom].
//
// Handle returns its decision, and an error that says why it is not [Ack]: fn's
// own, one of idem's, [ErrNoID] or [ErrTooOld]. With Ack the error is nil, or
// [idem.ErrNotRecorded] as a warning. If the broker did not take the decision,
// the error says so, and the broker delivers the message again in its own time.
//
// ctx ends fn. The decision is made nevertheless, with a time limit of its own:
// a consumer that shuts down has to say what became of its messages. Handle is
// safe for concurrent use.
func Handle(ctx context.Context, store idem.Store, consumer string, d Delivery,
	fn func(context.Context) error, opts ...Option,
) (Decision, error) {
	h := begin(store, consumer, d, opts)
	if fn == nil {
		h.refused = invalidOption("nil fn")
	}
	return h.handle(ctx, func(ctx context.Context) (idem.Result[none], error) {
		return idem.Do(ctx, store, h.key, h.payload, func(ctx context.Context) (none, idem.Status, error) {
			return h.run(func() error { return fn(ctx) })
		}, h.cfg.idem...)
	})
}

// HandleTx is [Handle] with [idem.DoTx]: the claim, what fn writes through its
// transaction, and the outcome commit together or not at all. store is one that
// has transactions, such as *pg.Store. What fn does outside of the transaction
// may still be done twice.
//
// While fn runs there is no lease whose rest could be known, so another delivery
// of the message is nak'd with a backoff.
func HandleTx[Tx any](ctx context.Context, store idem.TxStore[Tx], consumer string, d Delivery,
	fn func(context.Context, Tx) error, opts ...Option,
) (Decision, error) {
	h := begin(store, consumer, d, opts)
	h.tx = true
	if fn == nil {
		h.refused = invalidOption("nil fn")
	}
	return h.handle(ctx, func(ctx context.Context) (idem.Result[none], error) {
		return idem.DoTx(ctx, store, h.key, h.payload, func(ctx context.Context, tx Tx) (none, idem.Status, error) {
			return h.run(func() error { return fn(ctx, tx) })
		}, h.cfg.idem...)
	})
}

// none is the value of a handled message: what is recorded is that it is.
type none struct{}

// A handling is one call of Handle.
type handling struct {
	store   idem.Store
	d       Delivery
	msg     Message
	cfg     config
	key     idem.Key
	payload any
	refused error // why the handler must not run
	tx      bool

	ran bool  // the handler was started
	err error // and returned this
}

func begin(store idem.Store, consumer string, d Delivery, opts []Option) *handling {
	h := &handling{store: store, d: d, msg: d.Message()}
	h.cfg, h.refused = configure(opts)
	h.key = idem.Key{User: idem.NoUser, Scope: consumer, Key: h.msg.ID}
	return h
}

// handle is the life of one delivery. There is no recover: a panic passes
// through the deferred call, which decides without an answer, and goes on.
func (h *handling) handle(ctx context.Context, do func(context.Context) (idem.Result[none], error)) (dec Decision, err error) {
	beating := startHeartbeat(context.WithoutCancel(ctx), h.d, h.cfg.beat(h.msg))
	returned := false
	defer func() {
		beating.end()
		if !returned {
			_, _ = h.carryOut(ctx, h.later(ctx, 0))
		}
	}()
	if dec, err = h.admit(); err == nil {
		var res idem.Result[none]
		res, err = do(context.WithValue(ctx, keyContext{}, h.key))
		beating.end()
		dec = h.decide(ctx, res, err)
	}
	returned = true
	if dec.Action == Ack && !errors.Is(err, idem.ErrNotRecorded) {
		err = nil
	}
	dec, problem := h.carryOut(ctx, dec)
	return dec, errors.Join(err, problem)
}

// admit finishes the key and the payload, or says why the handler must not run.
func (h *handling) admit() (Decision, error) {
	if h.refused != nil {
		return Decision{Action: Nak, Delay: h.cfg.max}, h.refused
	}
	if t := h.msg.Published; !t.IsZero() && time.Since(t) > h.cfg.retention {
		return Decision{Action: DeadLetter, Reason: ReasonTooOld}, ErrTooOld
	}
	switch {
	case h.cfg.key != nil:
		key, err := h.cfg.key(h.msg)
		if err != nil {
			return Decision{Action: DeadLetter, Reason: ReasonInvalid}, fmt.Errorf("idemmq: no key: %w", err)
		}
		h.key.User, h.key.Key = key.User, key.Key
	case h.msg.ID == "":
		return Decision{Action: DeadLetter, Reason: ReasonInvalid}, ErrNoID
	}
	h.payload = h.cfg.payload(h.msg)
	return Decision{}, nil
}

func (h *handling) run(fn func() error) (none, idem.Status, error) {
	h.ran = true
	h.err = fn()
	return none{}, h.status(), h.err
}

// status makes a failure final in the terms of idem.Do, or leaves it open.
func (h *handling) status() idem.Status {
	if Rejected(h.err) {
		return 422
	}
	return 0
}
