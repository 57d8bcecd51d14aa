package idemmq

import (
	"context"
	"errors"
	"time"

	"github.com/idem-go/idem"
)

// decide is the table of the package's documentation.
func (h *handling) decide(ctx context.Context, res idem.Result[none], err error) Decision {
	mine := h.ran && !res.Replayed // and not the answer of a rival transaction
	recorded := !res.CompletedAt.IsZero()
	switch {
	case !mine:
		return h.refine(Decide(res.Status, err), err, res.Attempt)
	case h.err != nil && recorded:
		return Decision{Action: DeadLetter, Reason: ReasonRejected}
	case h.err != nil:
		if idem.DefaultDisposition(idem.Outcome{Status: h.status(), Err: h.err}) == idem.Release {
			return h.nak(h.cfg.backoff(h.tries(res.Attempt)))
		}
		return h.later(ctx, res.Attempt)
	case recorded:
		return Decision{Action: Ack}
	case err == nil, errors.Is(err, idem.ErrLeaseLost), errors.Is(err, idem.ErrOutcomeUnknown):
		return h.later(ctx, res.Attempt) // the record will tell
	default: // not recorded, or nothing is left of a transaction
		return h.refine(Decide(res.Status, err), err, res.Attempt)
	}
}

// refine gives a nak its delay.
func (h *handling) refine(dec Decision, err error, attempt int) Decision {
	switch {
	case dec.Action != Nak:
		return dec
	case errors.Is(err, idem.ErrInProgress) && h.tx: // the time told is a hint
		return h.nak(max(dec.Delay, h.cfg.backoff(h.tries(attempt))))
	case errors.Is(err, idem.ErrInProgress):
		return h.nak(dec.Delay + grace)
	case errors.Is(err, idem.ErrInvalidOption): // for as long as it takes to mend the program
		return h.nak(h.cfg.max)
	case errors.Is(err, idem.ErrUnavailable): // whose cause may be a context's end, too
		return h.nak(h.cfg.backoff(h.tries(attempt)))
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return h.nak(0) // the handler has not run: another consumer may begin
	}
	return h.nak(h.cfg.backoff(h.tries(attempt)))
}

// grace keeps a message from coming back just before the lease ends, which
// would cost it a delivery: the store, the broker and this process measure time
// separately.
const grace = 50 * time.Millisecond

// later is the nak of a delivery whose run may hold the key: for the rest of the
// lease, if there is one.
func (h *handling) later(ctx context.Context, attempt int) Decision {
	ctx, cancel := detach(ctx)
	defer cancel()
	if key, err := h.key.Normalize(); err == nil && h.store != nil {
		rec, found, err := h.store.Lookup(ctx, key)
		if err == nil && found && rec.State == idem.Processing && rec.LeaseLeft > 0 {
			return h.nak(rec.LeaseLeft + grace)
		}
	}
	return h.nak(h.cfg.backoff(h.tries(attempt)))
}

// tries is how often the message has been tried, for the backoff.
func (h *handling) tries(attempt int) int {
	if h.msg.Deliveries > 0 {
		return h.msg.Deliveries
	}
	return attempt
}

// nak is the decision to nak, unless the message has used up its deliveries.
func (h *handling) nak(delay time.Duration) Decision {
	if h.cfg.deliveries > 0 && h.msg.Deliveries >= h.cfg.deliveries {
		return Decision{Action: DeadLetter, Reason: ReasonExhausted}
	}
	return Decision{Action: Nak, Delay: delay}
}
