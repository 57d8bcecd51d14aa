package idemmq_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemmq"
	"github.com/idem-go/idem/memstore"
)

func TestBadOptionsAreRefused(t *testing.T) {
	t.Parallel()
	for i, o := range []idemmq.Option{
		nil,
		idemmq.WithKey(nil),
		idemmq.WithPayload(nil),
		idemmq.WithHeartbeat(0),
		idemmq.WithHeartbeat(-1),
		idemmq.WithBackoff(0, time.Second),
		idemmq.WithBackoff(time.Second, time.Millisecond),
		idemmq.WithMaxDeliveries(-1),
		idemmq.WithRetention(0),
		idemmq.Options(idemmq.WithMaxDeliveries(1), nil),
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			d := message("order-1")
			_, err := idemmq.Handle(t.Context(), memstore.New(), "billing", d, func(context.Context) error {
				t.Error("the handler ran")
				return nil
			}, o)
			if !errors.Is(err, idem.ErrInvalidOption) {
				t.Errorf("error %v, want ErrInvalidOption", err)
			}
			d.want(t, "nak in 1m0s")
		})
	}
	t.Run("nil fn", func(t *testing.T) {
		t.Parallel()
		d := message("order-1")
		if _, err := idemmq.Handle(t.Context(), memstore.New(), "billing", d, nil); !errors.Is(err, idem.ErrInvalidOption) {
			t.Errorf("error %v, want ErrInvalidOption", err)
		}
		d.want(t, "nak in 1m0s")
	})
	t.Run("nil store", func(t *testing.T) {
		t.Parallel()
		d := message("order-1")
		_, err := idemmq.Handle(t.Context(), nil, "billing", d, func(context.Context) error { return nil })
		if !errors.Is(err, idem.ErrInvalidOption) {
			t.Errorf("error %v, want ErrInvalidOption", err)
		}
		d.want(t, "nak in 1m0s")
	})
}

// The key function replaces the id, for producers that give none or a new one
// for each copy. Each consumer has keys of its own.
func TestKeyFunction(t *testing.T) {
	t.Parallel()
	store, runs := memstore.New(), 0
	byOrder := idemmq.WithKey(func(m idemmq.Message) (idem.Key, error) {
		var order struct{ Tenant, Number string }
		err := json.Unmarshal(m.Body, &order)
		return idem.Key{User: order.Tenant, Scope: "not this", Key: order.Number}, err
	})
	sameJSON := idemmq.WithPayload(func(m idemmq.Message) any { return json.RawMessage(m.Body) })
	for _, tt := range []struct {
		consumer, body, want string
		runs                 int
	}{
		{"billing", `{"tenant":"a","number":"1"}`, "ack", 1},
		{"billing", `{"number": "1", "tenant": "a"}`, "ack", 1},
		{"billing", `{"tenant":"b","number":"1"}`, "ack", 2},
		{"shipping", `{"tenant":"a","number":"1"}`, "ack", 3},
		{"billing", `{"tenant":"a","number":"1","sum":5}`, "dead_letter: payload_mismatch", 3},
		{"billing", `{"number":"1"}`, "dead_letter: invalid_id", 3}, // no tenant
		{"billing", `not JSON`, "dead_letter: invalid_id", 3},
	} {
		d := message("")
		d.msg.Body = []byte(tt.body)
		_, err := idemmq.Handle(t.Context(), store, tt.consumer, d, func(ctx context.Context) error {
			if key := idemmq.KeyFrom(ctx); key.Scope != tt.consumer || key.Key != "1" {
				t.Errorf("KeyFrom = %+v", key)
			}
			runs++
			return nil
		}, byOrder, sameJSON)
		d.want(t, tt.want)
		if runs != tt.runs {
			t.Errorf("%s %s: %d runs, want %d (error %v)", tt.consumer, tt.body, runs, tt.runs, err)
		}
	}
	t.Run("a payload that is not JSON", func(t *testing.T) {
		t.Parallel()
		d := message("order-1")
		_, err := idemmq.Handle(t.Context(), store, "billing", d, func(context.Context) error { return nil }, sameJSON)
		if !errors.Is(err, idem.ErrInvalidPayload) {
			t.Errorf("error %v, want ErrInvalidPayload", err)
		}
		d.want(t, "dead_letter: invalid_id")
	})
}

func TestBackoffGrowsWithDeliveries(t *testing.T) {
	t.Parallel()
	for deliveries, most := range map[int]time.Duration{
		0: time.Second, 1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second, 6: 32 * time.Second,
		7: time.Minute, 1_000_000: time.Minute,
	} {
		differ := map[time.Duration]bool{}
		for range 20 {
			d := message("order-1")
			d.msg.Deliveries = deliveries
			dec, _ := idemmq.Handle(t.Context(), memstore.New(), "billing", d, func(context.Context) error { return errFlaky })
			if dec.Delay > most || dec.Delay < most/2 {
				t.Errorf("delivery %d: %v, want between %v and %v", deliveries, dec.Delay, most/2, most)
			}
			differ[dec.Delay] = true
		}
		if len(differ) < 2 {
			t.Errorf("delivery %d: always the same delay", deliveries)
		}
	}
	t.Run("with attempts where the broker does not count", func(t *testing.T) {
		t.Parallel()
		store := memstore.New()
		for attempt := range 5 {
			dec, _ := idemmq.Handle(t.Context(), store, "billing", message("order-1"), func(context.Context) error { return errFlaky })
			if most := time.Second << attempt; dec.Delay > most || dec.Delay < most/2 {
				t.Errorf("attempt %d: %v, want between %v and %v", attempt+1, dec.Delay, most/2, most)
			}
		}
	})
}

func TestTheLastDeliveryIsDeadLetteredInPlaceOfANak(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	for n, want := range map[int]idemmq.Action{1: idemmq.Nak, 4: idemmq.Nak, 5: idemmq.DeadLetter, 6: idemmq.DeadLetter} {
		d := message("order-1")
		d.msg.Deliveries = n
		dec, err := idemmq.Handle(t.Context(), store, "billing", d, func(context.Context) error { return errFlaky },
			idemmq.WithMaxDeliveries(5))
		if dec.Action != want || !errors.Is(err, errFlaky) {
			t.Errorf("delivery %d: %v, %v, want %s", n, dec, err, want)
		}
	}
	d := message("order-1")
	d.msg.Deliveries = 5
	_, err := idemmq.Handle(t.Context(), store, "billing", d, func(context.Context) error { return nil }, idemmq.WithMaxDeliveries(5))
	if err != nil {
		t.Error(err)
	}
	d.want(t, "ack")
}

func TestObserversPassThrough(t *testing.T) {
	t.Parallel()
	var kinds []idem.EventKind
	observe := idemmq.WithIdem(idem.WithObserver(func(_ context.Context, e idem.Event) { kinds = append(kinds, e.Kind) }))
	store := memstore.New()
	for range 2 {
		_, _ = idemmq.Handle(t.Context(), store, "billing", message("order-1"), func(context.Context) error { return nil }, observe)
	}
	if fmt.Sprint(kinds) != "[executed replayed]" {
		t.Errorf("observed %v", kinds)
	}
}

// The retention that refuses old messages is the one that outcomes are kept for.
func TestRetention(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, runs := memstore.New(), 0
		opts := idemmq.Options(idemmq.WithRetention(time.Hour), idemmq.WithIdem(idem.WithRetention(time.Minute)))
		for _, tt := range []struct {
			after time.Duration
			runs  int
		}{{0, 1}, {59 * time.Minute, 1}, {time.Minute, 2}} {
			<-time.After(tt.after)
			_, err := idemmq.Handle(t.Context(), store, "billing", message("order-1"), func(context.Context) error {
				runs++
				return nil
			}, opts)
			if err != nil || runs != tt.runs {
				t.Errorf("%v later: %d runs, want %d (error %v)", tt.after, runs, tt.runs, err)
			}
		}
		d := message("order-1")
		d.msg.Published = time.Now().Add(-61 * time.Minute)
		if _, err := idemmq.Handle(t.Context(), store, "billing", d, func(context.Context) error { return nil }, opts); !errors.Is(err, idemmq.ErrTooOld) {
			t.Errorf("error %v, want ErrTooOld", err)
		}
	})
}
