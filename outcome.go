package idem

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
)

// Status is the transport's status code of a result, in HTTP's registry:
// 200–599. Zero means that the closure has none: with a nil error it counts as
// 200, with an error the outcome is not final.
type Status int

// Outcome is how a run of the closure ended.
type Outcome struct {
	Status   Status
	Err      error
	Panicked bool // or ended by runtime.Goexit; Status and Err say nothing then
}

// failed reports whether the run's writes are to be undone where they can be.
func (o Outcome) failed() bool { return o.Panicked || o.Err != nil }

// Disposition says what becomes of a claim when its run has ended.
type Disposition int

const (
	// Keep stores the outcome: later calls replay it.
	Keep Disposition = iota
	// Release frees the key: the next call runs the closure again.
	Release
	// Hold leaves the claim to its lease: nobody can tell whether the work was
	// done. Once the lease is over the key follows [WithStale].
	Hold
)

// DefaultDisposition is the rule of [Do], for all transports:
//
//   - Hold a panic, [runtime.Goexit], [context.Canceled],
//     [context.DeadlineExceeded], [Unknown], and a nested call's
//     [ErrLeaseLost], [ErrNotRecorded] or [ErrOutcomeUnknown].
//   - Release on a passing status (401, 403, 408, 425, 429, 5xx) with or without an
//     error, and an error without a status.
//   - Keep everything else: a nil error, or an error with a final status.
func DefaultDisposition(o Outcome) Disposition {
	switch {
	case o.Panicked, leavesUnknown(o.Err):
		return Hold
	case passing(o.Status), o.Err != nil && o.Status == 0:
		return Release
	}
	return Keep
}

// StoreAll keeps every outcome, crashes and server errors included, as the
// first version of Stripe's API does: what happened once is the answer, until
// retention ends. A panic is kept as status 500 with the code
// [CodeExecutionFailed], an error without a status as status 500.
func StoreAll(Outcome) Disposition { return Keep }

// CodeExecutionFailed is the code that [StoreAll] keeps a panic under.
const CodeExecutionFailed = "idempotency_execution_failed"

func leavesUnknown(err error) bool {
	if err == nil {
		return false
	}
	for _, e := range [...]error{context.Canceled, context.DeadlineExceeded, ErrOutcomeUnknown, ErrLeaseLost, ErrNotRecorded} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// passing reports whether a status may be another one on the next attempt, the
// request being the same.
func passing(s Status) bool {
	switch s {
	case 401, 403, 408, 425, 429:
		return true
	}
	return s >= 500 && s <= 599
}

// answer turns a kept outcome into the state and the response to record,
// without the value.
func (c *config) answer(o Outcome) (State, Response) {
	var r Response
	switch {
	case o.Panicked:
		return Failed, Response{Status: 500, Error: &ErrorValue{Code: CodeExecutionFailed}}
	case o.Status >= 200 && o.Status <= 599:
		r.Status = o.Status
	case o.Status == 0:
		r.Status = 500
	}
	if o.Err != nil {
		r.Error = c.errorValue(o.Err)
	}
	if o.Err != nil || o.Status >= 400 {
		return Failed, r
	}
	return Succeeded, r
}

// errorValue returns what is kept of err: the code that it is registered under
// and the public message that it offers, never its own text.
func (c *config) errorValue(err error) *ErrorValue {
	matches := slices.DeleteFunc(slices.Sorted(maps.Keys(c.errors)), func(code string) bool {
		return !errors.Is(err, c.errors[code])
	})
	var v ErrorValue
	for _, code := range matches {
		general := slices.ContainsFunc(matches, func(other string) bool {
			return errors.Is(c.errors[other], c.errors[code]) && !errors.Is(c.errors[code], c.errors[other])
		})
		if !general {
			v.Code = code
			break
		}
	}
	v.Message = publicMessage(err)
	return &v
}

// publicMessage returns the message that err offers to show to anybody. None is
// no reason to leave the outcome unsettled, nor is one that panics.
func publicMessage(err error) (message string) {
	defer func() { _ = recover() }()
	var public interface{ PublicMessage() string }
	if errors.As(err, &public) {
		message = storable(public.PublicMessage())
	}
	return message
}

const maxMessageLength = 1000 // in characters

// storable makes a message one that every store can keep: fn has run, so there
// is no refusing it any more.
func storable(message string) string {
	runes := []rune(strings.ReplaceAll(message, "\x00", "\uFFFD")) // invalid UTF-8 becomes U+FFFD, too
	return string(runes[:min(len(runes), maxMessageLength)])
}

// recordedError is the reverse of errorValue.
func (c *config) recordedError(r Response) error {
	if r.Error == nil {
		return nil
	}
	return &RecordedError{Code: r.Error.Code, Message: r.Error.Message, Status: r.Status, err: c.errors[r.Error.Code]}
}
