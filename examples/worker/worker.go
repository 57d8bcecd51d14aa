package main

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemmq"
	"github.com/idem-go/idem/idemnats"
)

// A worker handles deliveries, one after the other.
type worker struct {
	queue *queue
	books books
	count *count
}

// handle is all that a consumer has to write. What is not about faults is: make
// the message a delivery, and charge the order in its handler.
func (w worker) handle(ctx context.Context, msg jetstream.Msg) {
	d := &mortal{Delivery: idemnats.New(msg,
		idemnats.WithIDHeader(idHeader),
		idemnats.WithConsumer(w.queue.consumer),
		idemnats.WithDeadLetter(w.queue.js, w.queue.dead),
	)}
	defer func() {
		switch p := recover().(type) {
		case nil:
		case fault:
			w.count.add(string(p))
		default:
			panic(p)
		}
	}()
	decision, _ := w.books.handle(ctx, d, func(ctx context.Context, charge func(order) error) error {
		var o order
		if err := json.Unmarshal(msg.Data(), &o); err != nil {
			return idemmq.Reject(err)
		}
		fault := w.queue.strike(o)
		if err := fault.before(ctx, d); err != nil {
			return err
		}
		if err := charge(o); err != nil {
			return err
		}
		fault.after(d)
		return nil
	},
		idemmq.WithBackoff(100*time.Millisecond, 2*time.Second),
		idemmq.WithIdem(idem.WithLease(lease), idem.WithObserver(w.count.observe)),
	)
	w.count.decided(decision)
}

// A fault befalls an order the first time that its handler runs.
type fault string

const (
	none         fault = ""
	failure      fault = "failures"
	slow         fault = "slow handlers"
	crash        fault = "panics"
	killedBefore fault = "workers killed before the charge"
	killedAfter  fault = "workers killed after the charge"
)

// faults are those of every twentieth order.
var faults = map[int]fault{3: failure, 7: slow, 11: crash, 13: killedBefore, 17: killedAfter}

var errBank = errors.New("the bank does not answer")

func (f fault) before(ctx context.Context, d *mortal) error {
	switch f {
	case failure:
		return errBank
	case slow:
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * ackWait / 2):
		}
	case crash:
		panic(f)
	case killedBefore:
		d.kill(f)
	}
	return nil
}

func (f fault) after(d *mortal) {
	if f == killedAfter {
		d.kill(f)
	}
}

// mortal is the delivery of a worker that may be killed: then the broker hears
// nothing of it any more.
type mortal struct {
	idemmq.Delivery
	dead atomic.Bool
}

// kill ends the handler where it is, with its claim made and its delivery open.
func (d *mortal) kill(f fault) {
	d.dead.Store(true)
	panic(f)
}

func (d *mortal) Nak(ctx context.Context, delay time.Duration) error {
	if d.dead.Load() {
		return nil
	}
	return d.Delivery.Nak(ctx, delay)
}

func (d *mortal) Extend(ctx context.Context) error {
	if d.dead.Load() {
		return nil
	}
	return d.Delivery.Extend(ctx)
}
