package idem

import (
	"context"
	"time"
)

// RunPurge deletes expired records from store, now and then every interval,
// until ctx ends, and returns ctx's error. It works in small batches, each
// committed on its own, so that it makes progress whatever interrupts it; any
// number of processes may run it on one store. A batch that fails is observed
// and tried again at the next interval.
//
// Of the options only [WithObserver] and [WithStoreTimeout] count: the events
// tell how many records were deleted and for how long the oldest was overdue.
// An interval that is not positive is [ErrInvalidOption].
//
//	go idem.RunPurge(ctx, store, time.Minute)
func RunPurge(ctx context.Context, store Store, interval time.Duration, opts ...Option) error {
	c := &call{store: store, background: ctx}
	if err := c.cfg.set(opts); err != nil {
		return err
	}
	if store == nil || interval <= 0 {
		return invalidOption("purge of store %v every %v", store != nil, interval)
	}
	for ctx.Err() == nil {
		c.purge(ctx)
		sleep(ctx, interval)
	}
	return ctx.Err()
}

const purgeBatch = 1000

// purge deletes batches until one is not full.
func (c *call) purge(ctx context.Context) {
	for ctx.Err() == nil {
		batch, cancel := context.WithTimeout(ctx, c.cfg.timeout)
		done, err := c.store.Purge(batch, PurgeRequest{Limit: purgeBatch})
		cancel()
		if err != nil && ctx.Err() == nil {
			c.emit(Event{Kind: EventPurgeFailed, Err: err}, Record{})
		}
		if done.Deleted > 0 {
			c.emit(Event{Kind: EventPurged, Purge: done}, Record{})
		}
		if err != nil || done.Deleted < purgeBatch {
			return
		}
	}
}
