//go:build services && unix

package rabbitmq

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemmq"
	"github.com/idem-go/idem/memstore"
)

var errFlaky = errors.New("connection reset")

// Twenty orders, each sent twice: every fourth fails at first, every fourth is
// claimed by a worker that dies, and one id comes with another body.
func TestDelivery(t *testing.T) {
	conn := dial(t)
	channel := openChannel(t, conn)
	queue := "orders-" + rand.Text()
	if _, err := channel.QueueDeclare(queue, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, name := range []string{queue, queue + ".dead", queue + ".retry.1s", queue + ".retry.2s"} {
			_, _ = channel.QueueDelete(name, false, false, false)
		}
	})
	sent := time.Now().Truncate(time.Second)
	publish := func(id, body string) {
		t.Helper()
		confirm, err := channel.PublishWithDeferredConfirm("", queue, false, false, amqp.Publishing{
			MessageId: id, Body: []byte(body), Timestamp: sent, Headers: amqp.Table{"tenant": "a"},
		})
		if err != nil || !confirm.Wait() {
			t.Fatalf("publish: %v", err)
		}
	}
	want := map[string]int{}
	for i := range 20 {
		id := fmt.Sprint("order-", i)
		publish(id, "body")
		publish(id, "body")
		want[id] = 1
	}
	publish("order-0", "another body")
	pending := 41

	var (
		store   = memstore.New()
		lease   = idem.WithLease(1500 * time.Millisecond)
		mu      sync.Mutex
		failed  = map[string]bool{}
		effects = map[string]int{}
		done    = make(chan struct{})

		decisions []string
	)
	for i := range 20 {
		if i%4 == 1 { // a worker that dies with its claim
			key := idem.Key{User: idem.NoUser, Scope: "billing", Key: fmt.Sprint("order-", i)}
			_, _ = idem.Do(t.Context(), store, key, []byte("body"), func(context.Context) (int, idem.Status, error) {
				return 0, 0, idem.Unknown(nil)
			}, lease)
		}
	}
	for range 2 {
		channel := openChannel(t, conn) // each worker's own
		messages, err := channel.Consume(queue, "", false, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for msg := range messages {
				d := Delivery{Delivery: msg, Channel: channel, Queue: queue}
				m := d.Message()
				if !m.Published.Equal(sent) || msg.Headers["tenant"] != "a" {
					t.Errorf("delivery %d: published %v, headers %v", m.Deliveries, m.Published, msg.Headers)
				}
				dec, err := idemmq.Handle(t.Context(), store, "billing", d, func(context.Context) error {
					mu.Lock()
					defer mu.Unlock()
					var i int
					_, _ = fmt.Sscanf(m.ID, "order-%d", &i)
					if i%4 == 2 && !failed[m.ID] {
						failed[m.ID] = true
						return errFlaky
					}
					effects[m.ID]++
					return nil
				}, idemmq.WithIdem(lease), idemmq.WithBackoff(time.Second, 2*time.Second))
				mu.Lock()
				decisions = append(decisions, fmt.Sprintf("%s, delivery %d: %v, %v", m.ID, m.Deliveries, dec, err))
				if dec.Action != idemmq.Nak {
					if pending--; pending == 0 {
						close(done)
					}
				} else if m.Deliveries > 3 {
					t.Errorf("%s: nak of delivery %d: %v", m.ID, m.Deliveries, err)
				}
				mu.Unlock()
			}
		}()
	}
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		mu.Lock()
		defer mu.Unlock()
		t.Fatalf("%d messages were not decided in time; connection closed: %v; decided:\n%s",
			pending, conn.IsClosed(), strings.Join(decisions, "\n"))
	}
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff(want, effects); diff != "" {
		t.Errorf("effects (-want +got):\n%s", diff)
	}
	letter, ok, err := channel.Get(queue+".dead", true)
	if err != nil || !ok {
		t.Fatalf("no dead letter: %v", err)
	}
	if letter.MessageId != "order-0" || string(letter.Body) != "another body" || letter.Headers["x-idem-reason"] != "payload_mismatch" {
		t.Errorf("dead letter %q %q %v", letter.MessageId, letter.Body, letter.Headers)
	}
}

func openChannel(t *testing.T, conn *amqp.Connection) *amqp.Channel {
	t.Helper()
	channel, err := conn.Channel()
	if err == nil {
		err = channel.Confirm(false)
	}
	if err != nil {
		t.Fatal(err)
	}
	return channel
}
