package idemnats_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/idem-go/idem/idemmq"
	"github.com/idem-go/idem/idemnats"
)

// A msg is one that writes down what it is told. The tests against a server are
// in natstest.
type msg struct {
	jetstream.Msg
	header nats.Header
	meta   *jetstream.MsgMetadata
	told   []string
}

func (m *msg) Data() []byte         { return []byte("body") }
func (m *msg) Headers() nats.Header { return m.header }

func (m *msg) Metadata() (*jetstream.MsgMetadata, error) {
	if m.meta == nil {
		return nil, errors.New("not a message of a stream")
	}
	return m.meta, nil
}

func (m *msg) tell(what string) error {
	m.told = append(m.told, what)
	return nil
}

func (m *msg) Ack() error                         { return m.tell("ack") }
func (m *msg) Nak() error                         { return m.tell("nak") }
func (m *msg) NakWithDelay(d time.Duration) error { return m.tell("nak in " + d.String()) }
func (m *msg) InProgress() error                  { return m.tell("in progress") }
func (m *msg) TermWithReason(reason string) error { return m.tell("term: " + reason) }

type consumer jetstream.ConsumerConfig

func (c consumer) CachedInfo() *jetstream.ConsumerInfo {
	return &jetstream.ConsumerInfo{Config: jetstream.ConsumerConfig(c)}
}

type unknown struct{}

func (unknown) CachedInfo() *jetstream.ConsumerInfo { return nil }

func TestMessage(t *testing.T) {
	t.Parallel()
	stored := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	full := &msg{
		header: nats.Header{"Nats-Msg-Id": {"id-1"}, "Order": {"order-1"}},
		meta:   &jetstream.MsgMetadata{Timestamp: stored, NumDelivered: 3},
	}
	for _, tt := range []struct {
		name string
		msg  *msg
		opts []idemnats.Option
		want idemmq.Message
	}{
		{"its id is Nats-Msg-Id", full, nil,
			idemmq.Message{ID: "id-1", Published: stored, Deliveries: 3}},
		{"or another header", full, []idemnats.Option{idemnats.WithIDHeader("Order")},
			idemmq.Message{ID: "order-1", Published: stored, Deliveries: 3}},
		{"no headers, no metadata", &msg{}, nil, idemmq.Message{}},
		{"the consumer's AckWait", &msg{}, []idemnats.Option{idemnats.WithConsumer(consumer{AckWait: time.Minute})},
			idemmq.Message{AckWait: time.Minute}},
		{"the shortest of its backoff", &msg{}, []idemnats.Option{idemnats.WithConsumer(consumer{
			AckWait: time.Minute, BackOff: []time.Duration{2 * time.Second, time.Second, time.Hour},
		})}, idemmq.Message{AckWait: time.Second}},
		{"a consumer that nobody has asked about", &msg{}, []idemnats.Option{idemnats.WithConsumer(unknown{})}, idemmq.Message{}},
	} {
		tt.want.Body = []byte("body")
		if diff := cmp.Diff(tt.want, idemnats.New(tt.msg, tt.opts...).Message()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestDecisions(t *testing.T) {
	t.Parallel()
	m := &msg{}
	d := idemnats.New(m)
	if err := errors.Join(
		d.Extend(t.Context()),
		d.Nak(t.Context(), 0),
		d.Nak(t.Context(), time.Second),
		d.DeadLetter(t.Context(), idemmq.ReasonMismatch),
		d.Ack(t.Context()),
	); err != nil {
		t.Error(err)
	}
	want := []string{"in progress", "nak", "nak in 1s", "term: payload_mismatch", "ack"}
	if diff := cmp.Diff(want, m.told); diff != "" {
		t.Errorf("the message was told (-want +got):\n%s", diff)
	}
}
