package kafka

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemmq"
	"github.com/idem-go/idem/memstore"
)

const (
	seedsVariable = "IDEM_TEST_KAFKA_SEEDS" // host:port,…
	topic         = "idem-test-orders"
)

var errFlaky = errors.New("connection reset")

// brokers returns those that the variable names or, if it is not set, franz-go's
// own in this process. Of a real one the topics must be new, with two partitions.
func brokers(t *testing.T) []string {
	t.Helper()
	if seeds := os.Getenv(seedsVariable); seeds != "" {
		t.Logf("broker: Kafka at %s", seeds)
		return strings.Split(seeds, ",")
	}
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, topic, topic+".retry", topic+".dead"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	t.Logf("broker: franz-go's kfake in this process (%s names a real one)", seedsVariable)
	return c.ListenAddrs()
}

func client(t *testing.T, seeds []string, topics ...string) *kgo.Client {
	t.Helper()
	opts := []kgo.Opt{kgo.SeedBrokers(seeds...), kgo.ConsumeTopics(topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}
	if len(topics) > 0 && topics[0] != topic+".dead" {
		opts = append(opts, kgo.ConsumerGroup("billing-"+topics[0]), kgo.AutoCommitMarks())
	}
	c, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// Twenty orders, each sent twice: every fourth fails at first, every fourth is
// claimed by a worker that dies, and one id comes with another body.
func TestDelivery(t *testing.T) {
	t.Parallel()
	seeds := brokers(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()

	sent := time.Now().Truncate(time.Millisecond).Add(-time.Minute)
	publish := func(id, body string) *kgo.Record {
		return &kgo.Record{
			Topic: topic, Key: []byte(id), Value: []byte(body), Timestamp: sent,
			Headers: []kgo.RecordHeader{{Key: "message-id", Value: []byte(id)}, {Key: "tenant", Value: []byte("a")}},
		}
	}
	store, lease := memstore.New(), idem.WithLease(1500*time.Millisecond)
	var records []*kgo.Record
	want := map[string]int{}
	for i := range 20 {
		id := fmt.Sprint("order-", i)
		records = append(records, publish(id, "body"), publish(id, "body"))
		want[id] = 1
		if i%4 == 1 { // a worker that dies with its claim
			_, _ = idem.Do(ctx, store, idem.Key{User: idem.NoUser, Scope: "billing", Key: id}, []byte("body"),
				func(context.Context) (int, idem.Status, error) { return 0, 0, idem.Unknown(nil) }, lease)
		}
	}
	records = append(records, publish("order-0", "another body"))
	if err := client(t, seeds).ProduceSync(ctx, records...).FirstErr(); err != nil {
		t.Fatal(err)
	}

	var (
		mu      sync.Mutex
		pending = len(records)
		failed  = map[string]bool{}
		effects = map[string]int{}
		wg      sync.WaitGroup
	)
	work, stop := context.WithCancel(ctx)
	defer stop()
	handle := func(d Delivery) {
		m := d.Message()
		if !m.Published.Equal(sent) || d.header("tenant") != "a" {
			t.Errorf("delivery %d: published %v, headers %v", m.Deliveries, m.Published, d.Headers)
		}
		dec, err := idemmq.Handle(ctx, store, "billing", d, func(context.Context) error {
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
		}, idemmq.WithIdem(lease), idemmq.WithBackoff(500*time.Millisecond, time.Second))
		mu.Lock()
		defer mu.Unlock()
		if dec.Action != idemmq.Nak {
			if pending--; pending == 0 {
				stop()
			}
		} else if m.Deliveries > 2 {
			t.Errorf("%s: nak of delivery %d: %v", m.ID, m.Deliveries, err)
		}
	}
	for _, from := range []string{topic, topic + ".retry"} {
		c := client(t, seeds, from)
		wg.Go(func() {
			Consume(work, c, topic, handle)
			if err := c.CommitMarkedOffsets(t.Context()); err != nil {
				t.Errorf("commit: %v", err)
			}
			c.Close()
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		t.Fatalf("%d messages were not decided in time", pending)
	}
	if diff := cmp.Diff(want, effects); diff != "" {
		t.Errorf("effects (-want +got):\n%s", diff)
	}

	letters := client(t, seeds, topic+".dead").PollFetches(ctx).Records()
	if len(letters) != 1 {
		t.Fatalf("%d dead letters, want 1", len(letters))
	}
	letter := Delivery{Record: letters[0]}
	if letter.Message().ID != "order-0" || string(letter.Value) != "another body" || letter.header("idem-reason") != "payload_mismatch" {
		t.Errorf("dead letter %q %v", letter.Value, letter.Headers)
	}
	last := publish("last", "body")
	if err := client(t, seeds).ProduceSync(ctx, last).FirstErr(); err != nil {
		t.Fatal(err)
	}
	got := client(t, seeds, topic).PollFetches(ctx).Records()
	if len(got) != 1 || string(got[0].Key) != "last" {
		t.Errorf("a new member of the group got %d records, want only the last: all others were marked", len(got))
	}
}
