package idem

import (
	"context"
	"sync"
	"time"
)

// Result is the answer of [Do]: computed now, or replayed.
type Result[T any] struct {
	Value    T
	Status   Status // 200 if the closure gave none and no error
	Replayed bool   // the closure did not run: this is the answer of an earlier call

	ExecutionID string // of the run that gave the answer; see [ExecutionID]
	Attempt     int    // likewise; see [Attempt]

	// CompletedAt and ExpiresAt are by the store's clock: until ExpiresAt the
	// key is protected, then it is new again. Both are zero if the outcome was
	// not recorded.
	CompletedAt, ExpiresAt time.Time
}

// execution is the closure's context: it knows the claim that it runs under.
type execution struct {
	context.Context
	key   Key
	rec   Record
	lease time.Duration

	mu   sync.Mutex
	open bool     // for Enlist: the closure is running
	tx   Enlisted // nil if the outcome is recorded on its own
}

func (e *execution) start(ctx context.Context, c *call, rec Record) {
	if c.cfg.detached {
		ctx = context.WithoutCancel(ctx)
	}
	e.Context, e.key, e.rec, e.lease = ctx, c.key, rec, c.cfg.lease
}

type executionKey struct{}

func (e *execution) Value(key any) any {
	if key == (executionKey{}) {
		return e
	}
	return e.Context.Value(key)
}

func recordOf(ctx context.Context) Record {
	if e, ok := ctx.Value(executionKey{}).(*execution); ok {
		return e.rec
	}
	return Record{}
}

// ExecutionID returns the random id of the work that the closure of [Do] is
// doing, in the form of a UUID: pass it downstream as their idempotency key.
// It stays the same when the work is run again, after a crash or a release;
// it is new when the key has expired or was released and comes with another
// payload. Outside a closure it is empty.
func ExecutionID(ctx context.Context) string {
	rec := recordOf(ctx)
	if rec.ExecutionID == (ID{}) {
		return ""
	}
	return rec.ExecutionID.String()
}

// Attempt returns the number of claims that the key has seen, this one
// included. It grows with every claim, so a resource that remembers the highest
// one it saw can refuse a late owner. Outside a closure it is zero.
func Attempt(ctx context.Context) int { return recordOf(ctx).Attempt }

// Reclaimed reports whether an earlier run of the key ended without an outcome:
// its work may have been done, in part or in full. Outside a closure it is
// false.
func Reclaimed(ctx context.Context) bool { return recordOf(ctx).Reclaimed }
