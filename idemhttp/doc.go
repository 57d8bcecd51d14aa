// Package idemhttp makes HTTP handlers safe to call again: a request that comes
// with an Idempotency-Key header runs once, and every repetition gets the first
// answer, byte for byte.
//
//	once := idemhttp.Middleware(store, userOf)
//	mux.Handle("POST /payments", once(http.HandlerFunc(createPayment)))
//
// [Middleware] is for any net/http handler and records what the handler wrote.
// [Handler] is for handlers that return typed values: it decodes, calls
// [idem.Do], encodes. [ParseKey] and [ProblemFor] are for handlers that call Do
// themselves.
//
// # What is recorded
//
// The status, the body, and those headers that describe them; see
// [DefaultHeaders]. Never a cookie, a credential or a date. Which answers are
// kept is the rule of [idem.DefaultDisposition]: 5xx, 401, 403, 408, 425 and 429
// free the key, everything else is replayed.
//
// The answer is held back until it is recorded: a client that has seen a 201
// can rely on its replay, whatever crashes next. A handler that flushes, or
// writes more than [WithMaxResponseBytes], streams from there on.
//
// # Contexts
//
// The handler's context is that of a closure of Do: [idem.ExecutionID] and
// pg.Begin work with it. It does not end when the client hangs up
// ([idem.WithDetached]), or a hang-up would leave the outcome unknown; it ends
// when the lease is lost. So a stream that only its client ends does not belong
// behind the middleware.
//
// What clients need to know is in docs/http.md.
package idemhttp
