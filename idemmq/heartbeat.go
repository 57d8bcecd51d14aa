package idemmq

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A heartbeat extends a delivery at regular intervals. Until the first of them
// has passed it costs one timer.
type heartbeat struct {
	d     Delivery
	every time.Duration

	ctx  context.Context
	stop context.CancelFunc

	mu    sync.Mutex // held while the broker is asked
	timer *time.Timer
}

func startHeartbeat(ctx context.Context, d Delivery, every time.Duration) *heartbeat {
	h := &heartbeat{d: d, every: every}
	h.ctx, h.stop = context.WithCancel(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer = time.AfterFunc(every, h.beat)
	return h
}

func (h *heartbeat) beat() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(h.ctx, h.every)
	defer cancel()
	if err := h.d.Extend(ctx); !errors.Is(err, errors.ErrUnsupported) {
		h.timer.Reset(h.every)
	}
}

// end returns when the broker is not being asked any more and will not be.
func (h *heartbeat) end() {
	h.stop()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer.Stop()
}
