// Package idemnats handles messages of NATS JetStream once: [New] makes a
// [jetstream.Msg] a delivery for [idemmq.Handle].
//
//	cons.Consume(func(msg jetstream.Msg) {
//		d := idemnats.New(msg, idemnats.WithConsumer(cons), idemnats.WithDeadLetter(js, "dead.orders"))
//		_, err := idemmq.Handle(ctx, store, "billing", d, func(ctx context.Context) error {
//			return charge(ctx, msg.Data(), idem.ExecutionID(ctx))
//		})
//		…
//	})
//
// # Setting up a consumer
//
// Acks must be explicit ([jetstream.AckExplicitPolicy], the default of pull
// consumers). JetStream stops delivering a message after MaxDeliver deliveries
// and tells nobody but an advisory, so leave MaxDeliver unlimited and let
// [idemmq.WithMaxDeliveries] dead-letter, or set it higher than that.
//
// AckWait is how long a message of a crashed consumer waits, and starts when the
// message is sent: with prefetch (PullMaxMessages, MaxAckPending) messages wait
// in the client and may come again before they were begun. They are handled once
// all the same, but each such delivery counts.
//
// # Ids
//
// The id of a message is its Nats-Msg-Id header, which the producer sets with
// [jetstream.WithMsgID]. JetStream itself drops a second message with that id
// within the stream's duplicate window (two minutes by default); what comes
// later, and every redelivery, is for idem. [WithIDHeader] names another header,
// and [idemmq.WithKey] makes keys of the body.
package idemnats
