package idemmq_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemmq"
	"github.com/idem-go/idem/memstore"
)

func TestPanicIsDecidedAndContinues(t *testing.T) {
	t.Parallel()
	synctestRun(t, "a panic", func(t *testing.T) {
		d := message("order-1")
		defer func() {
			if p := recover(); p != "boom" {
				t.Errorf("recovered %v, want the original value", p)
			}
			d.want(t, "extend", "nak in 55.05s") // a minute since the renewal 5 s ago
		}()
		_, _ = idemmq.Handle(t.Context(), memstore.New(), "billing", d, func(ctx context.Context) error {
			wait(ctx, 25*time.Second)
			panic("boom")
		}, idemmq.WithHeartbeat(15*time.Second))
	})
	synctestRun(t, "Goexit", func(t *testing.T) {
		d := message("order-1")
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = idemmq.Handle(t.Context(), memstore.New(), "billing", d, func(context.Context) error {
				runtime.Goexit()
				return nil
			})
		}()
		<-done
		d.want(t, "nak in 1m0.05s")
	})
	synctestRun(t, "in the key function", func(t *testing.T) {
		d := message("order-1")
		defer func() {
			if p := recover(); p != "boom" {
				t.Errorf("recovered %v, want the original value", p)
			}
			d.want(t, "nak in 1ns")
		}()
		_, _ = idemmq.Handle(t.Context(), memstore.New(), "billing", d, func(context.Context) error { return nil },
			idemmq.WithBackoff(1, 1), idemmq.WithKey(func(idemmq.Message) (idem.Key, error) { panic("boom") }))
	})
	synctestRun(t, "on the last delivery", func(t *testing.T) {
		d := message("order-1")
		d.msg.Deliveries = 5
		defer func() {
			_ = recover()
			d.want(t, "dead_letter: deliveries_exhausted")
		}()
		_, _ = idemmq.Handle(t.Context(), memstore.New(), "billing", d, func(context.Context) error { panic("boom") },
			idemmq.WithMaxDeliveries(5))
	})
}

func TestAMessageThatCannotBeDeadLetteredIsNakd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := message("")
		d.deadLetter = errFlaky
		dec, err := idemmq.Handle(t.Context(), memstore.New(), "billing", d,
			func(context.Context) error { return nil }, idemmq.WithBackoff(1, 1))
		d.want(t, "dead_letter: invalid_id", "nak in 1ns")
		if dec.Action != idemmq.Nak || !errors.Is(err, idemmq.ErrNoID) || !errors.Is(err, errFlaky) {
			t.Errorf("decision %v, error %v: want nak and both causes", dec, err)
		}
	})
}

// A consumer that shuts down gives back what it has not begun, and still tells
// the broker about what it has done.
func TestShutdown(t *testing.T) {
	t.Parallel()
	synctestRun(t, "before the handler", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		d := message("order-1")
		_, err := idemmq.Handle(ctx, memstore.New(), "billing", d, func(context.Context) error {
			t.Error("the handler ran")
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want context.Canceled", err)
		}
		d.want(t, "nak in 0s")
	})
	synctestRun(t, "while the handler finishes", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		d := message("order-1")
		_, err := idemmq.Handle(ctx, memstore.New(), "billing", d, func(context.Context) error {
			cancel()
			<-time.After(15 * time.Second) // and is extended meanwhile
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		d.want(t, "extend", "ack")
	})
}
