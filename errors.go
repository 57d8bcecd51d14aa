package idem

import (
	"errors"
	"fmt"
	"time"
)

// Errors that callers branch on, with [errors.Is]. No message holds a key, a
// payload or a stored byte.
var (
	// ErrInProgress is returned by [Do] when another caller holds the key and
	// its lease is alive. The error is a [*InProgressError].
	ErrInProgress = errors.New("idem: in progress")

	// ErrPayloadMismatch is returned by [Do] when the key was used with
	// another payload. The client must correct itself: no retry helps.
	ErrPayloadMismatch = errors.New("idem: key was used with another payload")

	// ErrOutcomeUnknown is returned by [Do] with [WithStale]([Refuse]) when an
	// owner's lease ended without an outcome, until [Resolve] settles the key.
	// Errors made by [Unknown] match it too.
	ErrOutcomeUnknown = errors.New("idem: outcome unknown")

	// ErrLeaseLost is returned by [Do], with the value that the closure
	// computed, when another caller took the key over before the outcome was
	// recorded. It is also the [context.Cause] of the closure's context once
	// the lease has ended. Stores return it when a token no longer holds.
	ErrLeaseLost = errors.New("idem: lease lost")

	// ErrNotRecorded is returned by [Do], with the value that the closure
	// computed, when the closure ran but its result could not be kept.
	ErrNotRecorded = errors.New("idem: executed but not recorded")

	// ErrResultNotKept is returned by [Do] on a replay whose value was too
	// large or could not be encoded: the work is done, the answer is gone.
	ErrResultNotKept = errors.New("idem: done, but the result was not kept")

	// ErrCorruptRecord is returned by [Do] when the stored record cannot be
	// understood. The closure does not run: running it could do the work twice.
	ErrCorruptRecord = errors.New("idem: record cannot be read")

	// ErrUnavailable is returned by [Do] when the store did not answer before
	// the closure started. The closure does not run. It wraps the cause.
	ErrUnavailable = errors.New("idem: store unavailable")

	// ErrInvalidKey is returned by [Do] before anything touches the store. The
	// error is a [*KeyError].
	ErrInvalidKey = errors.New("idem: invalid key")

	// ErrInvalidPayload is returned by [Do] before anything touches the store,
	// when the payload cannot be hashed. It wraps the cause.
	ErrInvalidPayload = errors.New("idem: invalid payload")

	// ErrInvalidOption is returned by [Do] before anything touches the store.
	ErrInvalidOption = errors.New("idem: invalid option")

	// ErrNothingToResolve is returned by [Resolve] for a key whose outcome is
	// not unknown: no record, a released one, or one that is settled.
	ErrNothingToResolve = errors.New("idem: no unknown outcome to resolve")
)

// InProgressError is the [ErrInProgress] that [Do] returns.
type InProgressError struct {
	// RetryAfter is the time left on the owner's lease, by the store's clock;
	// always positive. The owner may finish sooner, or renew.
	RetryAfter time.Duration
}

func (e *InProgressError) Error() string {
	return fmt.Sprintf("%v: lease ends in %v", ErrInProgress, e.RetryAfter)
}

// Is reports whether target is [ErrInProgress].
func (e *InProgressError) Is(target error) bool { return target == ErrInProgress }

// RecordedError is returned by [Do] on the replay of a run that ended with an
// error. It matches the error that was registered under its code with
// [WithErrors], so errors.Is gives the replaying caller the first caller's
// answer.
type RecordedError struct {
	Code    string // the code of [WithErrors]; empty if the error was not registered
	Message string // the public message, empty if the error offered none
	Status  Status
	err     error // the registered error, if this process knows the code
}

func (e *RecordedError) Error() string {
	s := fmt.Sprintf("idem: recorded failure, status %d", e.Status)
	if e.Code != "" {
		s += ", code " + e.Code
	}
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

func (e *RecordedError) Unwrap() error { return e.err }

// DecodeError is returned by [Do] on a replay whose stored value no longer
// decodes: its codec is unknown here, or T changed. It matches
// [ErrCorruptRecord]; the closure does not run.
type DecodeError struct {
	Codec   string // the codec's name and version, as stored
	Version int
	Err     error
}

func (e *DecodeError) Error() string {
	return fmt.Sprintf("idem: stored value (codec %q, version %d) does not decode: %v", e.Codec, e.Version, e.Err)
}

// Is reports whether target is [ErrCorruptRecord].
func (e *DecodeError) Is(target error) bool { return target == ErrCorruptRecord }

func (e *DecodeError) Unwrap() error { return e.Err }

// Unknown marks an error of the closure after which nobody can tell whether
// the work was done: an answer that never came, a connection cut after the
// request was sent. The claim is held until its lease ends, as after a crash,
// and then follows [WithStale]. The result matches [ErrOutcomeUnknown] and err.
func Unknown(err error) error {
	if err == nil {
		return ErrOutcomeUnknown
	}
	return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
}
