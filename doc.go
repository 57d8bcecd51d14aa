// Package idem runs a closure once per key and replays its typed result to
// every later caller. [Do] is the whole API for most programs: the same call
// inside an HTTP handler, a gRPC method or a queue consumer answers "the client
// timed out, did it happen?".
//
//	res, err := idem.Do(ctx, store, idem.Key{User: user, Scope: "payments.create", Key: key}, request,
//		func(ctx context.Context) (Payment, idem.Status, error) {
//			p, err := charge(ctx, request, idem.ExecutionID(ctx))
//			return p, 201, err
//		})
//
// # Guarantees
//
// One owner: while a lease is alive a key has at most one owner, and duplicates
// never start. A closure whose lease has ended may still be running; its context
// is cancelled.
//
// Recorded once: after an outcome is recorded no closure starts for the key
// until retention ends.
//
// Fenced: completing, releasing and renewing carry the claim's own token. An
// owner that was replaced changes nothing and gets [ErrLeaseLost]. The fence is
// the token, not the time: an owner whose lease ran out but whom nobody replaced
// still records its outcome.
//
// Exactly once in the same Postgres with pg.DoTx: the claim, the closure's
// writes and the outcome commit together.
//
// # What is not guaranteed
//
// Do alone is at least once towards the outside world: after a crash between
// the effect and the record, or when an owner outlives its lease, the closure
// runs again. [ExecutionID] stays the same then: pass it downstream as their
// idempotency key. [Attempt] is a fence to hand on, and [Reclaimed] tells that
// an earlier run's outcome is unknown.
//
// Nothing is retried for you: the client or the broker retries. No promise
// outlives retention. Keys are for the retries of one attempt; lasting
// uniqueness ("one account per customer") needs a constraint in the database.
//
// # Errors
//
// An error that is met before the closure starts means that it did not run:
// [ErrInProgress], [ErrPayloadMismatch], [ErrOutcomeUnknown],
// [ErrCorruptRecord], [ErrUnavailable], [ErrInvalidKey], [ErrInvalidPayload],
// [ErrInvalidOption], or the error of a context that had ended. The closure's
// own errors come back as they are, joined with [ErrNotRecorded] or
// [ErrLeaseLost] if its outcome could not be kept. A replayed failure is a
// [*RecordedError]; a replay without its value is [ErrResultNotKept].
//
// # Stores
//
// A [Store] keeps the records. Package pg keeps them in Postgres, memstore in
// memory for tests and examples; others are modules of their own. Package
// storetest is the suite that a store has to pass.
package idem
