// Package kafka is a delivery of Kafka for idemmq, made to be copied.
//
// A Kafka consumer has one decision: how far it has come in a partition. Ack marks
// a record for that. Nak and DeadLetter are copies, in the topics "….retry" and
// "….dead", after which the record is marked: if the mark gets lost the record
// comes twice, which idem is there for. A second consumer takes the retry topic
// and lets each record wait until it is due, so a record may come later than its
// delay, behind one with a longer delay, never earlier. And it comes after records
// that were behind it: where the order within a key matters, handle again in place
// and copy only to the dead letters.
//
// Records of a partition are handled one after the other, since a mark covers all
// before it. There is nothing to extend: the client keeps its place in the group
// by itself while a handler runs.
package kafka

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem/idemmq"
)

// Delivery is a record as an idemmq.Delivery. Its id is the header message-id: not
// the record's key, which names what the message is about, nor its offset. Client
// produces copies and must have been made with kgo.AutoCommitMarks.
type Delivery struct {
	*kgo.Record
	Client *kgo.Client
	Topic  string // where the record was first, also if it is a copy
}

func (d Delivery) Message() idemmq.Message {
	copies, _ := strconv.Atoi(d.header("idem-copies"))
	return idemmq.Message{ID: d.header("message-id"), Body: d.Value, Published: d.Timestamp, Deliveries: copies + 1}
}

func (d Delivery) Ack(context.Context) error {
	d.Client.MarkCommitRecords(d.Record)
	return nil
}

func (d Delivery) Extend(context.Context) error { return errors.ErrUnsupported }

func (d Delivery) Nak(ctx context.Context, delay time.Duration) error {
	return d.move(ctx, d.Topic+".retry", map[string]string{
		"idem-copies": strconv.Itoa(d.Message().Deliveries),
		"idem-due":    time.Now().Add(delay).Format(time.RFC3339Nano),
	})
}

func (d Delivery) DeadLetter(ctx context.Context, reason idemmq.Reason) error {
	return d.move(ctx, d.Topic+".dead", map[string]string{"idem-reason": string(reason)})
}

// move puts a copy into the topic and marks the record.
func (d Delivery) move(ctx context.Context, topic string, headers map[string]string) error {
	c := &kgo.Record{Topic: topic, Key: d.Key, Value: d.Value, Timestamp: d.Timestamp}
	c.Headers = slices.DeleteFunc(slices.Clone(d.Headers), func(h kgo.RecordHeader) bool { return headers[h.Key] != "" })
	for k, v := range headers {
		c.Headers = append(c.Headers, kgo.RecordHeader{Key: k, Value: []byte(v)})
	}
	if err := d.Client.ProduceSync(ctx, c).FirstErr(); err != nil {
		return err
	}
	return d.Ack(ctx)
}

func (d Delivery) header(name string) string {
	for _, h := range d.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// Consume handles the records that client gets, partitions beside each other and
// each in order, until ctx ends. It waits for copies to be due, so the retry topic
// needs a client of its own.
func Consume(ctx context.Context, client *kgo.Client, topic string, handle func(Delivery)) {
	for ctx.Err() == nil {
		var wg sync.WaitGroup
		client.PollFetches(ctx).EachPartition(func(p kgo.FetchTopicPartition) {
			wg.Go(func() {
				for _, r := range p.Records {
					d := Delivery{r, client, topic}
					due, _ := time.Parse(time.RFC3339Nano, d.header("idem-due"))
					select {
					case <-ctx.Done():
						return
					case <-time.After(time.Until(due)):
						handle(d)
					}
				}
			})
		})
		wg.Wait()
	}
}
