package idemmq

import (
	"context"
	"time"
)

// A Delivery is one delivery of a message by a broker, and the ways to end it.
// [Handle] calls exactly one of Ack, Nak and DeadLetter, once, on the caller's
// goroutine; only if DeadLetter fails it calls Nak as well. Until then it may
// call Extend, from another goroutine, never two at a time and never after one
// of the others has begun. All must return soon after ctx ends.
type Delivery interface {
	// Message returns what was delivered. It returns the same each time.
	Message() Message

	// Ack tells the broker that the message is done.
	Ack(ctx context.Context) error

	// Nak tells the broker to deliver the message again, not before delay has
	// passed. A delay of zero means at once.
	Nak(ctx context.Context, delay time.Duration) error

	// DeadLetter puts the message aside, for a person to look at, and tells the
	// broker not to deliver it again. If it cannot be put aside, it must return
	// an error and leave the delivery undecided.
	DeadLetter(ctx context.Context, reason Reason) error

	// Extend tells the broker that the message is being worked on, so that it
	// waits longer before it delivers the message again. A broker without such a
	// thing returns [errors.ErrUnsupported], and is not asked again; any other
	// error is ignored.
	Extend(ctx context.Context) error
}

// Message is what [Handle] needs to know of a message. Only Body and an id, or
// [WithKey] in its place, are needed; the zero value of the others means that
// the broker does not tell.
type Message struct {
	// ID is what the producer calls the message: the same whenever it is
	// published again, because an answer got lost or a job was repeated. It must
	// not be of the broker's making, such as a sequence number, an offset or a
	// receipt handle: those tell deliveries or copies apart, not messages.
	ID string

	// Body is compared with that of earlier deliveries under the same id.
	Body []byte

	// Published is when the broker took the message, by its clock.
	Published time.Time

	// Deliveries is how often the message has been delivered, this time
	// included.
	Deliveries int

	// AckWait is how long the broker waits for a decision or a sign of life
	// before it delivers the message again.
	AckWait time.Duration
}
