package idemmq_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemmq"
	"github.com/idem-go/idem/memstore"
)

// printed is a delivery of a broker that prints what it is told.
type printed struct{ msg idemmq.Message }

func (p printed) Message() idemmq.Message          { return p.msg }
func (p printed) Extend(ctx context.Context) error { return nil }

func (p printed) Ack(context.Context) error {
	fmt.Println("ack")
	return nil
}

func (p printed) Nak(context.Context, time.Duration) error {
	fmt.Println("nak")
	return nil
}

func (p printed) DeadLetter(_ context.Context, reason idemmq.Reason) error {
	fmt.Println("dead letter:", reason)
	return nil
}

func Example() {
	store := memstore.New() // pg.New in production
	charge := func(ctx context.Context) error {
		fmt.Println("charging", idemmq.KeyFrom(ctx).Key)
		return nil
	}
	order := idemmq.Message{ID: "order-1", Body: []byte(`{"sum": 5}`)}
	for range 2 { // the broker delivers it twice
		_, _ = idemmq.Handle(context.Background(), store, "billing", printed{order}, charge)
	}
	order.Body = []byte(`{"sum": 500}`)
	_, err := idemmq.Handle(context.Background(), store, "billing", printed{order}, charge)
	fmt.Println(errors.Is(err, idem.ErrPayloadMismatch))
	// Output:
	// charging order-1
	// ack
	// ack
	// dead letter: payload_mismatch
	// true
}

// A message that can never be handled is rejected: it is dead-lettered, and its
// duplicates too.
func ExampleReject() {
	_, err := idemmq.Handle(context.Background(), memstore.New(), "billing", printed{idemmq.Message{ID: "order-1"}},
		func(context.Context) error { return idemmq.Reject(errors.New("no such account")) })
	fmt.Println(err)
	// Output:
	// dead letter: rejected
	// no such account
}

// A consumer that answers its messages sends the answer before it acknowledges,
// and sends it again when a duplicate comes: it calls Do and Decide itself.
func ExampleDecide() {
	store, d := memstore.New(), printed{idemmq.Message{ID: "question-1"}}
	for range 2 {
		res, err := idem.Do(context.Background(), store, idem.Key{User: idem.NoUser, Scope: "answers", Key: d.msg.ID}, d.msg.Body,
			func(context.Context) (int, idem.Status, error) { return 42, 0, nil })
		switch dec := idemmq.Decide(res.Status, err); dec.Action {
		case idemmq.Ack:
			fmt.Println("the answer is", res.Value)
			_ = d.Ack(context.Background())
		case idemmq.Nak:
			_ = d.Nak(context.Background(), max(dec.Delay, time.Second))
		case idemmq.DeadLetter:
			_ = d.DeadLetter(context.Background(), dec.Reason)
		}
	}
	// Output:
	// the answer is 42
	// ack
	// the answer is 42
	// ack
}
