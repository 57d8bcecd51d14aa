package idemmq_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemmq"
)

func TestDecide(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		status idem.Status
		err    error
		want   string
	}{
		{"success", 200, nil, "ack"},
		{"a recorded status of failure", 404, nil, "dead_letter: rejected"},
		{"a recorded failure", 422, &idem.RecordedError{Status: 422}, "dead_letter: rejected"},
		{"success, answer not kept", 201, idem.ErrResultNotKept, "ack"},
		{"failure, answer not kept", 422, errors.Join(idem.ErrResultNotKept, &idem.RecordedError{}), "dead_letter: rejected"},
		{"failure by its status, answer not kept", 409, idem.ErrResultNotKept, "dead_letter: rejected"},
		{"ran, but not recorded", 201, fmt.Errorf("%w: timeout", idem.ErrNotRecorded), "ack"},
		{"failed, and not recorded", 0, errors.Join(errFlaky, idem.ErrNotRecorded), "nak in 0s"},
		{"in progress", 0, &idem.InProgressError{RetryAfter: time.Second}, "nak in 1s"},
		{"mismatch", 0, idem.ErrPayloadMismatch, "dead_letter: payload_mismatch"},
		{"bad key", 0, &idem.KeyError{}, "dead_letter: invalid_id"},
		{"bad payload", 0, idem.ErrInvalidPayload, "dead_letter: invalid_id"},
		{"outcome unknown", 0, idem.ErrOutcomeUnknown, "dead_letter: outcome_unknown"},
		{"unreadable record", 0, idem.ErrCorruptRecord, "dead_letter: record_unreadable"},
		{"value that no longer decodes", 0, &idem.DecodeError{}, "dead_letter: record_unreadable"},
		{"store down", 0, idem.ErrUnavailable, "nak in 0s"},
		{"lease lost", 201, idem.ErrLeaseLost, "nak in 0s"},
		{"any other error", 0, errFlaky, "nak in 0s"},
	} {
		if got := idemmq.Decide(tt.status, tt.err).String(); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestReject(t *testing.T) {
	t.Parallel()
	if err := idemmq.Reject(nil); err != nil {
		t.Errorf("Reject(nil) = %v", err)
	}
	err := idemmq.Reject(errFlaky)
	if !errors.Is(err, errFlaky) || err.Error() != errFlaky.Error() {
		t.Errorf("Reject(err) = %v", err)
	}
}
