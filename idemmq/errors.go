package idemmq

import "errors"

// Errors that [Handle] makes itself. It returns those of [idem.Do] as well.
var (
	// ErrNoID is returned by [Handle] for a message without an id when there is
	// no [WithKey]. The message was dead-lettered.
	ErrNoID = errors.New("idemmq: the message has no id")

	// ErrTooOld is returned by [Handle] for a message that was published longer
	// ago than outcomes are retained: it may have been handled already, and
	// nobody would know. The message was dead-lettered.
	ErrTooOld = errors.New("idemmq: the message is older than the retention of outcomes")
)

// Reject marks a handler's error as final: no redelivery of the message would
// end differently. The failure is recorded and the message dead-lettered. The
// result matches err; Reject(nil) is nil.
func Reject(err error) error {
	if err == nil {
		return nil
	}
	return &rejected{err}
}

// Rejected reports whether err was marked with [Reject].
func Rejected(err error) bool {
	_, ok := errors.AsType[*rejected](err)
	return ok
}

type rejected struct{ err error }

func (r *rejected) Error() string { return r.err.Error() }
func (r *rejected) Unwrap() error { return r.err }
