package idemmq

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// carryOut tells the broker, and returns what it was told in the end. It does
// not end with ctx.
func (h *handling) carryOut(ctx context.Context, dec Decision) (Decision, error) {
	ctx, cancel := detach(ctx)
	defer cancel()
	switch dec.Action {
	case Ack:
		return dec, wrap("ack", h.d.Ack(ctx))
	case DeadLetter:
		err := h.d.DeadLetter(ctx, dec.Reason)
		if err == nil {
			return dec, nil
		}
		dec = Decision{Action: Nak, Delay: h.cfg.backoff(h.tries(0))}
		return dec, errors.Join(wrap("dead-letter", err), wrap("nak", h.nakAnyway(ctx, dec.Delay)))
	default:
		return dec, wrap("nak", h.d.Nak(ctx, dec.Delay))
	}
}

// nakAnyway naks though the time for the decision may have been used up.
func (h *handling) nakAnyway(ctx context.Context, delay time.Duration) error {
	ctx, cancel := detach(ctx)
	defer cancel()
	return h.d.Nak(ctx, delay)
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("idemmq: %s: %w", what, err)
}

// decisionTimeout bounds what the broker and the store are asked after the
// handler has ended.
const decisionTimeout = 10 * time.Second

func detach(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), decisionTimeout)
}
