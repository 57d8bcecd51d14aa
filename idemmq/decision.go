package idemmq

import (
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem"
)

// Action says what becomes of a delivery.
type Action string

// The actions.
const (
	Ack        Action = "ack"         // the message is done
	Nak        Action = "nak"         // it is to be delivered again
	DeadLetter Action = "dead_letter" // it is put aside for a person
)

// Reason says why a message was dead-lettered. It never holds a key, a payload
// or the text of an error.
type Reason string

// The reasons.
const (
	ReasonRejected   Reason = "rejected"             // the handler's error was final, see [Reject]
	ReasonMismatch   Reason = "payload_mismatch"     // the id was used with another body
	ReasonInvalid    Reason = "invalid_id"           // no id, a bad id, or a payload that cannot be compared
	ReasonTooOld     Reason = "older_than_retention" // an earlier run may be forgotten
	ReasonUnknown    Reason = "outcome_unknown"      // an earlier run ended without an outcome, see [idem.Refuse]
	ReasonUnreadable Reason = "record_unreadable"    // the record of an earlier run cannot be read
	ReasonExhausted  Reason = "deliveries_exhausted" // see [WithMaxDeliveries]
)

// Decision is how a delivery ended.
type Decision struct {
	Action Action
	Delay  time.Duration // of Nak
	Reason Reason        // of DeadLetter
}

// String returns for example "ack", "nak in 30s" or "dead_letter: rejected".
func (d Decision) String() string {
	switch d.Action {
	case Nak:
		return fmt.Sprintf("nak in %v", d.Delay)
	case DeadLetter:
		return fmt.Sprintf("dead_letter: %s", d.Reason)
	}
	return string(d.Action)
}

// Decide returns what a delivery comes to whose call of [idem.Do] returned err
// and a result with the given status. [Handle] does this and more; Decide is for
// consumers that call Do themselves, such as one that has to send the replayed
// value somewhere before it acknowledges.
//
// The delay is the rest of the lease for [idem.ErrInProgress]. Otherwise it is
// zero: how long to back off is the caller's to say. Any error that is not one
// of idem's own is taken as retryable.
func Decide(status idem.Status, err error) Decision {
	inProgress, running := errors.AsType[*idem.InProgressError](err)
	_, failed := errors.AsType[*idem.RecordedError](err)
	switch {
	case running:
		return Decision{Action: Nak, Delay: inProgress.RetryAfter}
	case failed:
		return Decision{Action: DeadLetter, Reason: ReasonRejected}
	case err == nil, errors.Is(err, idem.ErrResultNotKept):
		if status >= 400 {
			return Decision{Action: DeadLetter, Reason: ReasonRejected}
		}
		return Decision{Action: Ack}
	case errors.Is(err, idem.ErrNotRecorded) && status >= 200 && status < 400:
		return Decision{Action: Ack} // the work is done: to do it again would be worse
	case errors.Is(err, idem.ErrPayloadMismatch):
		return Decision{Action: DeadLetter, Reason: ReasonMismatch}
	case errors.Is(err, idem.ErrInvalidKey), errors.Is(err, idem.ErrInvalidPayload):
		return Decision{Action: DeadLetter, Reason: ReasonInvalid}
	case errors.Is(err, idem.ErrOutcomeUnknown):
		return Decision{Action: DeadLetter, Reason: ReasonUnknown}
	case errors.Is(err, idem.ErrCorruptRecord):
		return Decision{Action: DeadLetter, Reason: ReasonUnreadable}
	}
	return Decision{Action: Nak}
}
