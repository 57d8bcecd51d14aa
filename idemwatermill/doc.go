// Package idemwatermill is a middleware for [Watermill] that runs a handler once
// for each message. The messages that the handler produces are part of the
// recorded result: a duplicate does not run the handler, but publishes the same
// messages again, with the same ids. So none is lost if publishing failed after
// the handler had run.
//
//	once, err := idemwatermill.Middleware(store)
//	…
//	poison, err := middleware.PoisonQueueWithFilter(pub, "poison", idemwatermill.IsPoison)
//	…
//	router.AddMiddleware(
//		poison,                                   // 1. outermost
//		middleware.Retry{…, ShouldRetry: idemwatermill.ShouldRetry}.Middleware,
//		middleware.Recoverer,
//		once,
//		middleware.Timeout(30*time.Second),       // 5. innermost
//	)
//
// # Order
//
// The first middleware added is the outermost.
//
//   - PoisonQueue goes outside. Inside, it would turn a failure into a success
//     that is recorded, and the poisoned message would never run again. The
//     filter [IsPoison] takes what no redelivery can mend; without a filter the
//     duplicates of a running message and all failures go there too, which is
//     safe: whoever sends them again gets the outcome.
//   - Retry goes outside: each try is a call of its own, and a failed one has
//     freed the message. [ShouldRetry] spares it the errors that it cannot mend.
//   - Recoverer goes outside. A panic then passes the middleware, which holds the
//     message until its lease is over, since nobody knows what was done. Inside,
//     a panic is an error like any other, and the handler may run again at once.
//   - Timeout goes inside. Its error holds the message too. (Outside it bounds
//     waiting as well, but then Retry needs ResetContextOnRetry.)
//   - CorrelationID, Throttle and the like may go anywhere.
//   - Deduplicator and InstantAck do not go with it. They mark or acknowledge a
//     message before it was handled: if its handler then fails, it is lost.
//
// # Decisions
//
// Watermill knows ack and nack, without a delay, and when a nacked message comes
// again is the subscriber's affair. So a message that is being handled elsewhere
// waits for the outcome, see [WithWait], before it is nacked with
// [idem.ErrInProgress]. A handler's own error is returned as it is. What no
// redelivery can mend is a [*PoisonError]; without a PoisonQueue the router nacks
// it like the rest. Watermill cannot extend a delivery: let the subscriber's
// acknowledgement deadline be longer than the handler takes.
//
// # Keys
//
// The scope of a message's key is the name of the router's handler, its key the
// message's UUID, or what [WithKey] says. The UUID has to be the producer's and
// the same in each delivery, as it is with Watermill's own publishers.
//
// [Watermill]: https://watermill.io
package idemwatermill
