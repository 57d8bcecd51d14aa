// Package idemmq handles each message of a queue once. Brokers deliver at least
// once: after a crash, a lost acknowledgement or a slow handler the same message
// comes again. [Handle] runs the handler under the message's id with [idem.Do]
// and ends each delivery in exactly one decision.
//
//	for d := range deliveries {
//		decision, err := idemmq.Handle(ctx, store, "billing", d, func(ctx context.Context) error {
//			return charge(ctx, d.Message().Body, idem.ExecutionID(ctx))
//		})
//		log.Debug("delivery", "decision", decision, "err", err)
//	}
//
// The package knows no broker. A [Delivery] is what it needs of one: module
// idemnats has it for NATS JetStream, and examples/worker has one for RabbitMQ
// and one for Kafka, made to be copied.
//
// # Decisions
//
//	the handler ran, or had run, without an error   ack
//	it ran, but that could not be recorded          ack
//	another delivery of the message is running      nak for the rest of its lease
//	a retryable error                               nak with backoff
//	a panic, an interrupted or unknown run          nak for the rest of the lease
//	the store is down, the lease was lost           nak
//	the id came with another body, no or a bad id   dead-letter
//	an error marked with Reject, now or earlier     dead-letter
//	nobody knows whether it ran, record unreadable  dead-letter
//	older than retention                            dead-letter
//
// A message that cannot be dead-lettered is nak'd. [WithMaxDeliveries] turns the
// nak of the last delivery into a dead letter, so that no message is lost to a
// broker's own limit.
//
// # Guarantees
//
// Those of package idem: one owner at a time, and no run starts after an outcome
// is recorded, until retention ends. A message is acknowledged only after that.
// With [HandleTx] the handler's writes, the claim and the outcome commit
// together. With Handle a crash between effect and record runs the handler
// again; [idem.ExecutionID] is then the same. What a handler publishes needs ids
// of its own: see [OutputID].
package idemmq
