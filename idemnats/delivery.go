package idemnats

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/idem-go/idem/idemmq"
)

// Headers that a dead letter has besides those of the message.
const (
	HeaderReason     = "Idem-Reason"       // an idemmq.Reason
	HeaderMsgID      = "Idem-Msg-Id"       // the message's Nats-Msg-Id
	HeaderSubject    = "Idem-Subject"      // the message's subject
	HeaderConsumer   = "Idem-Consumer"     // the JetStream consumer that gave up
	HeaderDeliveries = "Idem-Deliveries"   // how often it was delivered
	HeaderPublished  = "Idem-Publish-Time" // when the stream took it, in RFC 3339
)

// Delivery is a [jetstream.Msg] as an [idemmq.Delivery].
type Delivery struct {
	msg      jetstream.Msg
	meta     jetstream.MsgMetadata
	idHeader string
	ackWait  time.Duration
	letters  jetstream.Publisher // nil if there are none
	subject  string              // of letters
}

var _ idemmq.Delivery = (*Delivery)(nil)

// New returns msg as a delivery. It is cheap: one for each message.
func New(msg jetstream.Msg, opts ...Option) *Delivery {
	d := &Delivery{msg: msg, idHeader: jetstream.MsgIDHeader}
	if meta, err := msg.Metadata(); err == nil { // else it is not from a stream, and nobody knows
		d.meta = *meta
	}
	for _, o := range opts {
		o(d)
	}
	return d
}

// An Option changes how [New] makes a delivery.
type Option func(*Delivery)

// WithIDHeader names the header that has the id of a message.
// Default: Nats-Msg-Id.
func WithIDHeader(name string) Option {
	return func(d *Delivery) { d.idHeader = name }
}

// WithDeadLetter publishes dead letters, with their headers and those of this
// package, to a subject that a stream listens on. That must not be a subject of
// the consumer's own. Default: none. The message is then terminated only: the
// server tells the reason in an advisory, and the message stays in its stream
// until the stream's limits take it, or, in a work queue, is gone.
func WithDeadLetter(js jetstream.Publisher, subject string) Option {
	return func(d *Delivery) { d.letters, d.subject = js, subject }
}

// WithConsumer tells what the consumer's AckWait is, as far as its cached info
// knows, so that the delivery is extended in time. Default: the server's 30 s.
func WithConsumer(c interface {
	CachedInfo() *jetstream.ConsumerInfo
}) Option {
	return func(d *Delivery) {
		if info := c.CachedInfo(); info != nil {
			d.ackWait = info.Config.AckWait
			if waits := info.Config.BackOff; len(waits) > 0 { // they replace AckWait
				d.ackWait = slices.Min(waits)
			}
		}
	}
}

// Message implements [idemmq.Delivery].
func (d *Delivery) Message() idemmq.Message {
	return idemmq.Message{
		ID:         d.msg.Headers().Get(d.idHeader),
		Body:       d.msg.Data(),
		Published:  d.meta.Timestamp,
		Deliveries: int(d.meta.NumDelivered),
		AckWait:    d.ackWait,
	}
}

// Ack implements [idemmq.Delivery]. It does not wait for the server: if the
// acknowledgement gets lost, the message comes again and is acknowledged again.
func (d *Delivery) Ack(context.Context) error { return d.msg.Ack() }

// Nak implements [idemmq.Delivery].
func (d *Delivery) Nak(_ context.Context, delay time.Duration) error {
	if delay <= 0 {
		return d.msg.Nak()
	}
	return d.msg.NakWithDelay(delay)
}

// Extend implements [idemmq.Delivery].
func (d *Delivery) Extend(context.Context) error { return d.msg.InProgress() }

// DeadLetter implements [idemmq.Delivery].
func (d *Delivery) DeadLetter(ctx context.Context, reason idemmq.Reason) error {
	if d.letters != nil {
		if _, err := d.letters.PublishMsg(ctx, d.letter(reason)); err != nil {
			return fmt.Errorf("idemnats: publish the dead letter: %w", err)
		}
	}
	return d.msg.TermWithReason(string(reason))
}

// letter is the message as it is put aside. Its Nats-Msg-Id is its place in the
// stream: published again after a lost answer it is a duplicate, but two
// messages under one id are two letters.
func (d *Delivery) letter(reason idemmq.Reason) *nats.Msg {
	h := maps.Clone(d.msg.Headers())
	if h == nil {
		h = nats.Header{}
	}
	if id := h.Get(jetstream.MsgIDHeader); id != "" {
		h.Set(HeaderMsgID, id)
	}
	h.Set(jetstream.MsgIDHeader, fmt.Sprintf("%s.%d.%s", d.meta.Stream, d.meta.Sequence.Stream, d.meta.Consumer))
	h.Set(HeaderReason, string(reason))
	h.Set(HeaderSubject, d.msg.Subject())
	h.Set(HeaderConsumer, d.meta.Consumer)
	h.Set(HeaderDeliveries, fmt.Sprint(d.meta.NumDelivered))
	h.Set(HeaderPublished, d.meta.Timestamp.UTC().Format(time.RFC3339Nano))
	return &nats.Msg{Subject: d.subject, Header: h, Data: d.msg.Data()}
}
