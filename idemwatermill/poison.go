package idemwatermill

import (
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemmq"
)

// ReasonOutputLost is the [PoisonError.Reason] of a duplicate whose handler had
// run, but produced more than could be kept: see [idem.WithMaxResultBytes].
const ReasonOutputLost idemmq.Reason = "output_not_kept"

// PoisonError is returned for a message that no redelivery can mend. It matches
// the error that it wraps.
type PoisonError struct {
	Reason idemmq.Reason
	Err    error // nil for a recorded failure that had no error
}

func (e *PoisonError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("idemwatermill: %s", e.Reason)
	}
	return fmt.Sprintf("idemwatermill: %s: %v", e.Reason, e.Err)
}

func (e *PoisonError) Unwrap() error { return e.Err }

// IsPoison is the filter for [middleware.PoisonQueueWithFilter]: it reports
// whether err is a [*PoisonError].
func IsPoison(err error) bool {
	_, ok := errors.AsType[*PoisonError](err)
	return ok
}

// ShouldRetry is for [middleware.Retry]: it reports whether a retry may end
// differently. That is not so for poison, nor for a message that is being handled
// elsewhere and was waited for already.
func ShouldRetry(p middleware.RetryParams) bool {
	return !IsPoison(p.Err) && !errors.Is(p.Err, idem.ErrInProgress)
}
