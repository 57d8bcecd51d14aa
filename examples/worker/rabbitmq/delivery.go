// Package rabbitmq is a delivery of RabbitMQ for idemmq, made to be copied.
//
// RabbitMQ has no delayed nak and tells no reason with a dead letter. So both are
// copies of the message, published with confirmation before the original is
// acknowledged: if that gets lost the message comes twice, which idem is there
// for. A copy to be delivered later waits in a queue for its delay, whose TTL
// sends it back where it came from. There is one queue for each power of two
// seconds, because RabbitMQ only looks at the head of a queue: among mixed delays
// a short one would wait for the long one before it. Copies go to the queue's
// end. RabbitMQ cannot extend a delivery: its limit (consumer_timeout, 30 minutes
// by default) has to be longer than the handler takes.
package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/idem-go/idem/idemmq"
)

// Delivery is a message of Queue as an idemmq.Delivery. Its id is the message-id
// property. Channel is in confirm mode, and the one that it came by: a worker has
// its own.
type Delivery struct {
	amqp.Delivery
	Channel *amqp.Channel
	Queue   string
}

const deliveries = "x-idem-deliveries"

func (d Delivery) Message() idemmq.Message {
	before, _ := d.Headers[deliveries].(int32)
	return idemmq.Message{ID: d.MessageId, Body: d.Body, Published: d.Timestamp, Deliveries: int(before) + 1}
}

func (d Delivery) Ack(context.Context) error { return d.Delivery.Ack(false) }

func (d Delivery) Extend(context.Context) error { return errors.ErrUnsupported }

func (d Delivery) Nak(ctx context.Context, delay time.Duration) error {
	if delay <= 0 {
		return d.Nack(false, true)
	}
	wait := time.Second
	for wait < delay {
		wait *= 2
	}
	queue := fmt.Sprintf("%s.retry.%v", d.Queue, wait)
	return d.move(ctx, queue, amqp.Table{deliveries: int32(d.Message().Deliveries)}, amqp.Table{
		"x-message-ttl":             wait.Milliseconds(),
		"x-dead-letter-exchange":    "",
		"x-dead-letter-routing-key": d.Queue,
		"x-expires":                 (wait + time.Hour).Milliseconds(), // since its last use
	})
}

func (d Delivery) DeadLetter(ctx context.Context, reason idemmq.Reason) error {
	return d.move(ctx, d.Queue+".dead", amqp.Table{"x-idem-reason": string(reason)}, nil)
}

// move puts a copy into the queue, which it declares, and acknowledges the message.
func (d Delivery) move(ctx context.Context, queue string, add, args amqp.Table) error {
	if _, err := d.Channel.QueueDeclare(queue, true, false, false, false, args); err != nil {
		return err
	}
	headers := amqp.Table{}
	maps.Copy(headers, d.Headers)
	delete(headers, "CC") // it has been to those queues
	maps.Copy(headers, add)
	confirm, err := d.Channel.PublishWithDeferredConfirmWithContext(ctx, "", queue, false, false, amqp.Publishing{
		Headers: headers, MessageId: d.MessageId, Timestamp: d.Timestamp, Body: d.Body,
		ContentType: d.ContentType, CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, Type: d.Type,
		DeliveryMode: amqp.Persistent,
	})
	if err != nil {
		return err
	}
	if ok, err := confirm.WaitContext(ctx); err != nil || !ok {
		return errors.Join(errors.New("the copy was not confirmed"), err)
	}
	return d.Delivery.Ack(false)
}
