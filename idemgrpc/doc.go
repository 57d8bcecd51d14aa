// Package idemgrpc runs each unary RPC once per key and replays its answer, the
// response or the status with all its details, to every retry. It is a gRPC
// server interceptor over [idem.Do], and a client interceptor that sets the key.
//
//	once, err := idemgrpc.New(store, principal, idemgrpc.Methods{
//		pb.Payments_Charge_FullMethodName: nil,
//		pb.Payments_Refund_FullMethodName: {idemgrpc.OptionalKey()},
//	})
//	...
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(recovery, logging, authentication, once.Unary),
//		grpc.ChainStreamInterceptor(once.Stream),
//	)
//	pb.RegisterPaymentsServer(server, payments)
//	if err := once.Check(server); err != nil { // a listed method that streams, or is not there
//		...
//	}
//
// The key comes from the request's field request_id ([AIP-155]) or from the
// metadata idempotency-key. The handler finds [idem.ExecutionID] and its like in
// its context. What it may not find there is the caller's hanging up: see
// [CallerCancels].
//
// # Guarantees
//
// Those of package idem: while a lease is alive a key has one owner, and no
// handler starts after an outcome is recorded, until retention ends. Requests
// are compared by a hash that the order of fields and of map entries does not
// change, see [Payload]. A handler that crashes between its effect and the
// record runs again; its [idem.ExecutionID] is then the same.
//
// Response headers and trailers that a handler sets are not recorded.
//
// # What is kept
//
//	OK, INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS,
//	FAILED_PRECONDITION, OUT_OF_RANGE                    replayed
//	all other codes                                      the next call runs again
//	a panic, a context error, idem.Unknown(err)          held until the lease ends
//
// A replay has the header idempotent-replayed: true.
//
// # Errors
//
// Every refusal carries an ErrorInfo of the domain [Domain]; [ReasonOf] reads it.
//
//	in flight            ABORTED              RetryInfo, grpc-retry-pushback-ms
//	other request        FAILED_PRECONDITION  no retry helps: pushback -1
//	no key, a bad key    INVALID_ARGUMENT     BadRequest
//	no principal         UNAUTHENTICATED
//	store down           UNAVAILABLE          RetryInfo; the handler did not run
//	outcome unknown      ABORTED              pushback -1
//	lease lost           ABORTED              RetryInfo, pushback; the handler ran
//	record unreadable    INTERNAL             pushback -1; the handler does not run
//	answer not kept      DATA_LOSS            pushback -1; the work is done
//
// A handler that ran but whose answer could not be recorded is answered with
// that answer and the trailer idempotent-not-recorded: true, since an error would
// invite a second effect.
//
// [AIP-155]: https://google.aip.dev/155
package idemgrpc
