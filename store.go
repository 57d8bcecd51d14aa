package idem

import (
	"context"
	"encoding/hex"
	"errors"
	"time"
)

// A Store keeps one record for each [Key] and is the only authority on who
// owns it. Every rule below is a named test of package storetest; a store is
// right when it passes that suite.
//
// All methods are atomic and safe for concurrent use, from any number of
// processes if the store is shared by them. All times are by the store's own
// clock, never the caller's. Durations are not rounded to zero. Keys come
// normalized (see [Key.Normalize]); NoUser comes as the empty string. Methods
// return soon after ctx ends.
//
// An error means that the request may or may not have been carried out: [Do]
// sends it again, with the same token, so every method must recognise its own
// earlier success by the token. An error that no repetition can mend is marked
// with [Permanent].
type Store interface {
	// Claim returns the record that the key has after it; the caller owns it
	// if the record's token is req.Token. It never waits for another claim.
	//
	// Without req.Replace it inserts a processing record if the key has none.
	// If there is one, expired or not, it changes and locks nothing.
	//
	// With req.Replace it takes over that very record, if it still has the same
	// state, token and attempt and is still free (expired, or processing with
	// its lease over), all checked in one atomic step. Otherwise it changes
	// nothing, and returns the zero Record if the key has none.
	//
	// If what keeps it from claiming is a transaction that has not published
	// anything yet, it returns req.Busy().
	Claim(ctx context.Context, req ClaimRequest) (Record, error)

	// Complete settles the claim that holds req.Token and returns the time of
	// completion; retention counts from it. The fence is the token, not the
	// time: a claim whose lease is over but which nobody replaced completes.
	// A completion repeated with its token returns the first one's time. If
	// the token does not hold the key, nothing changes: ErrLeaseLost.
	Complete(ctx context.Context, req CompleteRequest) (time.Time, error)

	// Release frees the claim that holds req.Token: the record stays, with
	// its attempt count, without a token and with its lease over, and expires
	// after req.Retention. If the token does not hold a claim, nothing
	// changes: ErrLeaseLost.
	Release(ctx context.Context, req ReleaseRequest) error

	// Renew sets the lease of the claim that holds req.Token to end req.Lease
	// from now. If the token does not hold a claim, nothing changes:
	// ErrLeaseLost.
	Renew(ctx context.Context, req RenewRequest) error

	// Lookup returns the key's record, expired or not, and whether there is
	// one. It changes and locks nothing.
	Lookup(ctx context.Context, key Key) (Record, bool, error)

	// Purge deletes up to req.Limit expired records and never any other. It
	// may run in many processes at once; none waits for another.
	Purge(ctx context.Context, req PurgeRequest) (PurgeResult, error)
}

// ID is a random 128-bit identifier: a claim's token, or an execution's id.
// The zero ID is none.
type ID [16]byte

// String returns the id in the form of a UUID.
func (id ID) String() string {
	var b [36]byte
	hex.Encode(b[0:8], id[0:4])
	hex.Encode(b[9:13], id[4:6])
	hex.Encode(b[14:18], id[6:8])
	hex.Encode(b[19:23], id[8:10])
	hex.Encode(b[24:36], id[10:16])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}

// State is where a record stands in its life. See docs/state_machine.md.
type State string

// The states. A released record is Processing without a token.
const (
	Processing State = "processing"
	Succeeded  State = "succeeded"
	Failed     State = "failed"
)

// Hash is a payload's hash and the version of the algorithm that made it.
type Hash struct {
	Version int
	Sum     string // 64 lower-case hex digits
}

// Record is what a store keeps for a key.
type Record struct {
	State       State
	Hash        Hash
	Token       ID // of the claim that owns or settled the record; zero once released
	ExecutionID ID
	Attempt     int  // 1 for the first claim; every later claim of the key adds one
	Reclaimed   bool // an earlier run ended without an outcome

	LeaseLeft time.Duration // of a processing record; zero or less when the lease is over
	ExpiresIn time.Duration // until ExpiresAt; zero or less when retention is over: the record counts as absent

	Response    Response  // of a settled record
	CompletedAt time.Time // of a settled record
	ExpiresAt   time.Time
}

// Expired reports whether the record's retention is over.
func (r *Record) Expired() bool { return r.ExpiresIn <= 0 }

// released reports whether the claim was given up: the key is free for any
// payload.
func (r *Record) released() bool { return r.State == Processing && r.Token == ID{} }

// readable reports whether the record is one that Do can have made.
func (r *Record) readable() bool {
	switch r.State {
	case Processing:
		return true
	case Succeeded, Failed:
		return !r.CompletedAt.IsZero() && (r.Response.Codec == "" || r.Response.Body != nil)
	}
	return false
}

// Response is the recorded answer of a run.
type Response struct {
	Status       Status      // 0 if the run's status was not one that can be kept
	Codec        string      // name of the codec of Body; empty if the value was not kept
	CodecVersion int         // version of the codec of Body
	Body         []byte      // not nil if Codec is set
	Error        *ErrorValue // nil if the run returned no error
}

// ErrorValue is what is kept of an error.
type ErrorValue struct{ Code, Message string }

// ClaimRequest is the argument of [Store.Claim].
type ClaimRequest struct {
	Key              Key
	Hash             Hash
	Token            ID // never zero
	ExecutionID      ID
	Reclaimed        bool
	Lease, Retention time.Duration // the record expires Lease + Retention from now
	Replace          *Record       // the record to take over, as it was seen; nil to claim only an absent key
}

// busyRetryAfter is the hint for callers that find a transaction at work.
const busyRetryAfter = time.Second

// Busy returns the record that stands for a key at which a transaction is at
// work: another owner's, with a lease that is only a hint, and with the
// request's own hash, since nobody can tell yet whether the payloads differ.
func (r *ClaimRequest) Busy() Record {
	return Record{State: Processing, Hash: r.Hash, Token: ID{0xff}, Attempt: 1, LeaseLeft: busyRetryAfter, ExpiresIn: busyRetryAfter}
}

// CompleteRequest is the argument of [Store.Complete].
type CompleteRequest struct {
	Key       Key
	Token     ID
	State     State // Succeeded or Failed
	Response  Response
	Retention time.Duration
}

// ReleaseRequest is the argument of [Store.Release].
type ReleaseRequest struct {
	Key       Key
	Token     ID
	Retention time.Duration
}

// RenewRequest is the argument of [Store.Renew].
type RenewRequest struct {
	Key              Key
	Token            ID
	Lease, Retention time.Duration // the record expires Lease + Retention from now
}

// PurgeRequest is the argument of [Store.Purge].
type PurgeRequest struct {
	Limit int // the most records to delete; positive
}

// PurgeResult is what [Store.Purge] did.
type PurgeResult struct {
	Deleted int
	Overdue time.Duration // for how long the oldest deleted record had been expired: the backlog
}

// Permanent marks an error of a store that no repetition can mend: a missing
// table, a wrong password, a broken transaction. nil stays nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

// worthRepeating reports whether a store's error may be gone the next time.
func worthRepeating(err error) bool {
	return !errors.Is(err, ErrLeaseLost) && !errors.Is(err, ErrCorruptRecord) &&
		!errors.As(err, new(*permanentError))
}

// Bound is implemented by stores that may work over one connection or one
// transaction of the caller's instead of a pool.
type Bound interface {
	Bound() Binding
}

// Binding says what a store works over.
type Binding int

// The bindings. Over a connection, [Do] does not renew leases: the closure
// may be using the connection. Over a transaction it does not wait either,
// and its promises hold only from the commit on.
const (
	BoundToNothing Binding = iota
	BoundToConn
	BoundToTx
)

func bindingOf(s Store) Binding {
	if b, ok := s.(Bound); ok {
		return b.Bound()
	}
	return BoundToNothing
}
