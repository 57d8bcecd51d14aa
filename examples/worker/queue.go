package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// idHeader has the producer's name of an order. It is not Nats-Msg-Id, by which
// JetStream itself would drop the duplicates that come within two minutes.
const idHeader = "Order-Id"

type order struct {
	Number int   `json:"number"`
	Cents  int64 `json:"cents"`
}

// A queue is a stream of orders, one of dead letters, and a consumer.
type queue struct {
	js         jetstream.JetStream
	name, dead string
	consumer   jetstream.Consumer
	published  int

	mu     sync.Mutex
	struck map[int]bool
}

// connect returns a client of the server at url, or of one in this process that
// listens on no port.
func connect(url string) (jetstream.JetStream, func(), error) {
	var (
		opts []nats.Option
		stop = func() {}
	)
	if url == "" {
		dir, err := os.MkdirTemp("", "idem-worker-")
		if err != nil {
			return nil, nil, err
		}
		s, err := server.NewServer(&server.Options{DontListen: true, JetStream: true, StoreDir: dir, NoSigs: true})
		if err != nil {
			return nil, nil, err
		}
		s.Start()
		stop = func() {
			s.Shutdown()
			s.WaitForShutdown()
			_ = os.RemoveAll(dir)
		}
		opts = append(opts, nats.InProcessServer(s))
	}
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		stop()
		return nil, nil, err
	}
	js, err := jetstream.New(nc)
	return js, func() { nc.Close(); stop() }, err
}

func newQueue(ctx context.Context, js jetstream.JetStream, run string) (*queue, error) {
	q := &queue{js: js, name: "orders-" + run, dead: "dead-" + run, struck: map[int]bool{}}
	for _, name := range []string{q.name, q.dead} {
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{
			Name: name, Subjects: []string{name}, Storage: jetstream.MemoryStorage,
		})
		if err != nil {
			return nil, err
		}
	}
	var err error
	q.consumer, err = js.CreateConsumer(ctx, q.name, jetstream.ConsumerConfig{AckWait: ackWait})
	return q, err
}

func (q *queue) String() string {
	nc := q.js.Conn()
	where := "at " + nc.ConnectedAddr()
	if nc.ConnectedAddr() == "pipe" {
		where = "in this process"
	}
	return "nats-server " + nc.ConnectedServerVersion() + " " + where
}

// publish sends every order, every second one twice, every tenth a third time
// when all is sent, and then what can only be put aside: five ids with another
// sum, and two orders without an id.
func (q *queue) publish(ctx context.Context) error {
	send := func(o order, id string) error {
		msg := nats.NewMsg(q.name)
		msg.Data, _ = json.Marshal(o)
		if id != "" {
			msg.Header.Set(idHeader, id)
		}
		q.published++
		_, err := q.js.PublishMsg(ctx, msg)
		return err
	}
	var plan []order
	for n := range orders {
		plan = append(plan, order{n, 999})
		if n%2 == 1 {
			plan = append(plan, order{n, 999})
		}
	}
	for n := 0; n < orders; n += 10 {
		plan = append(plan, order{n, 999})
	}
	for n := 0; n < orders; n += orders / mismatches {
		plan = append(plan, order{n, 999_00})
	}
	for _, o := range plan {
		if err := send(o, fmt.Sprintf("%s/%d", q.name, o.Number)); err != nil {
			return err
		}
	}
	for range nameless {
		if err := send(order{}, ""); err != nil {
			return err
		}
	}
	return nil
}

const mismatches, nameless = 5, 2

// strike returns what befalls an order, once.
func (q *queue) strike(o order) fault {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.struck[o.Number] {
		return none
	}
	q.struck[o.Number] = true
	return faults[o.Number%20]
}

// drained returns when every message has been acknowledged or put aside.
func (q *queue) drained(ctx context.Context) error {
	for {
		info, err := q.consumer.Info(ctx)
		if err != nil {
			return fmt.Errorf("the queue was not drained: %w", err)
		}
		if info.NumPending == 0 && info.NumAckPending == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the queue was not drained: %w", ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// deadLetters is the number of those that were put aside.
func (q *queue) deadLetters(ctx context.Context) (int, error) {
	s, err := q.js.Stream(ctx, q.dead)
	if err != nil {
		return 0, err
	}
	return int(s.CachedInfo().State.Msgs), nil
}

func (q *queue) remove() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = q.js.DeleteStream(ctx, q.name)
	_ = q.js.DeleteStream(ctx, q.dead)
}
