package natstest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/idem-go/idem/idemmq"
	"github.com/idem-go/idem/idemnats"
	"github.com/idem-go/idem/memstore"
)

// Two copies of an order, apart from the duplicate window, with another body,
// and two orders without an id: all but the first are put aside.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	q := newQueue(t, 0, jetstream.ConsumerConfig{Durable: "billing"})
	dead, err := q.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"dead.>"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{"first", "another", "a third"} {
		msg := nats.NewMsg("orders")
		msg.Data = []byte(body)
		msg.Header.Set("Order-Id", "order-1")
		if body == "a third" {
			msg.Header.Del("Order-Id")
			msg.Header.Set(jetstream.MsgIDHeader, "not ours")
		}
		if _, err := q.js.PublishMsg(t.Context(), msg); err != nil {
			t.Fatal(err)
		}
	}
	q.publish(t, "none", "without headers")

	store := memstore.New()
	handle := func(msg jetstream.Msg) {
		d := idemnats.New(msg, idemnats.WithIDHeader("Order-Id"), idemnats.WithDeadLetter(q.js, "dead.orders"))
		_, _ = idemmq.Handle(t.Context(), store, "billing", d, func(context.Context) error {
			q.succeed(string(msg.Data()))
			return nil
		})
		if m := d.Message(); time.Since(m.Published) > time.Minute || m.Deliveries != 1 {
			t.Errorf("published %v, delivery %d", m.Published, m.Deliveries)
		}
	}
	q.consume(t, 1, handle)
	if diff := cmp.Diff(map[string]int{"first": 1}, q.done); diff != "" {
		t.Errorf("handled (-want +got):\n%s", diff)
	}
	want := []map[string]string{
		{"body": "another", "Idem-Reason": "payload_mismatch", "Order-Id": "order-1", "Nats-Msg-Id": "ORDERS.2.billing"},
		{"body": "a third", "Idem-Reason": "invalid_id", "Idem-Msg-Id": "not ours", "Nats-Msg-Id": "ORDERS.3.billing"},
		{"body": "without headers", "Idem-Reason": "invalid_id", "Nats-Msg-Id": "ORDERS.4.billing"},
	}
	for i := range want {
		want[i]["Idem-Subject"], want[i]["Idem-Consumer"], want[i]["Idem-Deliveries"] = "orders", "billing", "1"
	}
	var got []map[string]string
	for seq := range uint64(len(want)) {
		msg, err := dead.GetMsg(t.Context(), seq+1)
		if err != nil {
			t.Fatal(err)
		}
		letter := map[string]string{"body": string(msg.Data)}
		for name := range msg.Header {
			letter[name] = msg.Header.Get(name)
		}
		got = append(got, letter)
	}
	published := cmpopts.IgnoreMapEntries(func(name, _ string) bool { return name == idemnats.HeaderPublished })
	if diff := cmp.Diff(want, got, published); diff != "" {
		t.Errorf("dead letters (-want +got):\n%s", diff)
	}
}

// A dead letter that no stream takes is not lost: the message comes again.
func TestADeadLetterThatCannotBePublishedIsNakd(t *testing.T) {
	t.Parallel()
	q := newQueue(t, 1, jetstream.ConsumerConfig{})
	q.consume(t, 1, func(msg jetstream.Msg) {
		d := idemnats.New(msg, idemnats.WithDeadLetter(q.js, "nobody.listens"))
		dec, err := idemmq.Handle(t.Context(), memstore.New(), "billing", d, func(context.Context) error {
			if d.Message().Deliveries == 2 {
				return nil
			}
			return idemmq.Reject(errFlaky)
		}, idemmq.WithBackoff(1, 1))
		if d.Message().Deliveries == 1 && (dec.Action != idemmq.Nak || !errors.Is(err, jetstream.ErrNoStreamResponse)) {
			t.Errorf("decision %v, error %v, want nak and ErrNoStreamResponse", dec, err)
		}
	})
}

// Without a subject for dead letters the server is told to give up.
func TestTermination(t *testing.T) {
	t.Parallel()
	q := newQueue(t, 1, jetstream.ConsumerConfig{Durable: "billing"})
	advisories, err := q.js.Conn().SubscribeSync("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.ORDERS.billing")
	if err != nil {
		t.Fatal(err)
	}
	q.consume(t, 1, func(msg jetstream.Msg) {
		_, _ = idemmq.Handle(t.Context(), memstore.New(), "billing", idemnats.New(msg),
			func(context.Context) error { return idemmq.Reject(errFlaky) })
	})
	advisory, err := advisories.NextMsgWithContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(advisory.Data), `"reason":"rejected"`) {
		t.Errorf("advisory %s, want the reason", advisory.Data)
	}
}
