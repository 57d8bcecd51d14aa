package natstest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemmq"
	"github.com/idem-go/idem/idemnats"
	"github.com/idem-go/idem/idemnats/natstest"
	"github.com/idem-go/idem/memstore"
)

var errFlaky = errors.New("connection reset")

// A queue is a stream with n published orders and a consumer of it.
type queue struct {
	js   jetstream.JetStream
	cons jetstream.Consumer
	ids  []string

	mu    sync.Mutex
	tries map[string]int // of the handler, by id
	done  map[string]int // likewise, without an error
}

func newQueue(t *testing.T, n int, cfg jetstream.ConsumerConfig) *queue {
	t.Helper()
	q := &queue{js: natstest.Run(t), tries: map[string]int{}, done: map[string]int{}}
	_, err := q.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders"}})
	if err != nil {
		t.Fatal(err)
	}
	if q.cons, err = q.js.CreateConsumer(t.Context(), "ORDERS", cfg); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		q.ids = append(q.ids, fmt.Sprintf("order-%d", i))
		q.publish(t, q.ids[i], "body", jetstream.WithMsgID(q.ids[i]))
	}
	return q
}

func (q *queue) publish(t *testing.T, id, body string, opts ...jetstream.PublishOpt) {
	t.Helper()
	if _, err := q.js.Publish(t.Context(), "orders", []byte(body), opts...); err != nil {
		t.Fatalf("publish %s: %v", id, err)
	}
}

// try counts one more try of the handler, and done one that had no error.
func (q *queue) try(id string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tries[id]++
	return q.tries[id]
}

func (q *queue) succeed(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.done[id]++
}

// consume starts n consumers of the same name and waits until the server has
// nothing left for them.
func (q *queue) consume(t *testing.T, n int, handle func(jetstream.Msg), opts ...jetstream.PullConsumeOpt) {
	t.Helper()
	for range n {
		c, err := q.cons.Consume(handle, opts...)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			c.Stop()
			<-c.Closed()
		}()
	}
	for tick := time.Tick(20 * time.Millisecond); ; {
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-tick:
		}
		info, err := q.cons.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if info.NumPending == 0 && info.NumAckPending == 0 {
			return
		}
	}
}

// wantEachOnce checks that each order was handled once.
func (q *queue) wantEachOnce(t *testing.T) {
	t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	want := map[string]int{}
	for _, id := range q.ids {
		want[id] = 1
	}
	if diff := cmp.Diff(want, q.done); diff != "" {
		t.Errorf("orders handled (-want +got):\n%s", diff)
	}
}

// A dead process's store: what it sends after its claim does not arrive.
type dead struct{ idem.Store }

func (dead) Complete(context.Context, idem.CompleteRequest) (time.Time, error) {
	return time.Now(), nil
}

// Each of 20 orders is claimed by an owner that crashes. With a lease of 3 s and
// MaxDeliver 5, a nak without the right delay would use the deliveries up.
func TestB01CrashedOwnersLoseNoMessage(t *testing.T) {
	t.Parallel()
	q := newQueue(t, 20, jetstream.ConsumerConfig{AckWait: 500 * time.Millisecond, MaxDeliver: 5})
	store := memstore.New()
	q.consume(t, 1, func(msg jetstream.Msg) {
		d := idemnats.New(msg, idemnats.WithConsumer(q.cons))
		m, lease := d.Message(), idem.WithLease(3*time.Second)
		if m.Deliveries == 1 { // it crashes: no decision, no outcome
			key := idem.Key{User: idem.NoUser, Scope: "billing", Key: m.ID}
			_, _ = idem.Do(t.Context(), dead{store}, key, m.Body, func(context.Context) (int, idem.Status, error) {
				return 0, 0, nil
			}, lease)
			return
		}
		_, err := idemmq.Handle(t.Context(), store, "billing", d, func(context.Context) error {
			q.succeed(m.ID)
			return nil
		}, idemmq.WithIdem(lease))
		if err != nil && !errors.Is(err, idem.ErrInProgress) {
			t.Error(err)
		}
		if m.Deliveries > 3 {
			t.Errorf("delivery %d of a message: the nak was too short", m.Deliveries)
		}
	})
	q.wantEachOnce(t)
}

func TestB118EachMessageFailsOnceAndNoneIsLost(t *testing.T) {
	t.Parallel()
	q := newQueue(t, 100, jetstream.ConsumerConfig{MaxDeliver: 3})
	store := memstore.New()
	q.consume(t, 1, func(msg jetstream.Msg) {
		d := idemnats.New(msg)
		_, err := idemmq.Handle(t.Context(), store, "billing", d, func(context.Context) error {
			id := d.Message().ID
			if q.try(id) == 1 {
				return errFlaky
			}
			q.succeed(id)
			return nil
		}, idemmq.WithBackoff(100*time.Millisecond, time.Second))
		if err != nil && !errors.Is(err, errFlaky) {
			t.Error(err)
		}
	})
	q.wantEachOnce(t)
}

// Handlers of 200 ms, a broker that waits 300 ms, and two consumers that fetch
// 10 messages ahead: most of them come again while they wait in the client.
func TestB124PrefetchedMessagesRunOnce(t *testing.T) {
	t.Parallel()
	q := newQueue(t, 20, jetstream.ConsumerConfig{AckWait: 300 * time.Millisecond})
	store, deliveries := memstore.New(), 0
	q.consume(t, 2, func(msg jetstream.Msg) {
		d := idemnats.New(msg, idemnats.WithConsumer(q.cons))
		_, err := idemmq.Handle(t.Context(), store, "billing", d, func(context.Context) error {
			<-time.After(200 * time.Millisecond)
			q.succeed(d.Message().ID)
			return nil
		}, idemmq.WithIdem(idem.WithLease(2*time.Second)))
		if err != nil && !errors.Is(err, idem.ErrInProgress) {
			t.Error(err)
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		deliveries++
	}, jetstream.PullMaxMessages(10))
	q.wantEachOnce(t)
	t.Logf("20 messages, %d deliveries", deliveries)
}

// A handler of 1.5 s keeps its delivery although the broker waits 300 ms.
func TestB124ASlowHandlerKeepsItsDelivery(t *testing.T) {
	t.Parallel()
	q := newQueue(t, 1, jetstream.ConsumerConfig{AckWait: 300 * time.Millisecond})
	store := memstore.New()
	q.consume(t, 2, func(msg jetstream.Msg) {
		d := idemnats.New(msg, idemnats.WithConsumer(q.cons))
		if n := d.Message().Deliveries; n != 1 {
			t.Errorf("delivery %d, want only one", n)
		}
		_, err := idemmq.Handle(t.Context(), store, "billing", d, func(context.Context) error {
			<-time.After(1500 * time.Millisecond)
			q.succeed(d.Message().ID)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	q.wantEachOnce(t)
}
