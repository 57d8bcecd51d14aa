package idemhttp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/idem-go/idem"
)

// Codes of problems: what a client should branch on.
const (
	CodeInProgress      = "idempotency_request_in_progress"
	CodePayloadMismatch = "idempotency_key_payload_mismatch"
	CodeInvalidKey      = "invalid_idempotency_key"
	CodeUnavailable     = "idempotency_unavailable"
	CodeOutcomeUnknown  = "idempotency_outcome_unknown"
	CodeLeaseLost       = "idempotency_lease_lost"
	CodeResultNotKept   = "idempotency_result_not_kept"
	CodeUnreadable      = "idempotency_record_unreadable"
	CodeMisconfigured   = "idempotency_misconfigured"
	CodeExecutionFailed = idem.CodeExecutionFailed
	CodeUnauthenticated = "unauthenticated"
	CodeForbidden       = "forbidden"
	CodePayloadTooLarge = "payload_too_large"
	CodeInvalidRequest  = "invalid_request"
	CodeRequestFailed   = "request_failed" // of a Handler's error without a code of its own
	CodeInternalError   = "internal_error"
)

// docs is the page that the types of problems point to.
const docs = "https://github.com/idem-go/idem/blob/main/docs/http.md#"

// A Problem is an answer that the package gives itself: a problem document of
// RFC 9457. [WithRender] may change and replace it.
type Problem struct {
	Type     string         `json:"type"`
	Title    string         `json:"title"`
	Status   int            `json:"status"`
	Detail   string         `json:"detail,omitempty"`
	Code     string         `json:"code"`
	Metadata map[string]any `json:"metadata,omitempty"`

	RetryAfter time.Duration `json:"-"` // the Retry-After header, rounded up to seconds; zero for none
	Err        error         `json:"-"` // the cause, for logs: nothing of it is sent
}

// newProblem returns the problem of a code, whose description is the anchor of
// the same name in docs/http.md.
func newProblem(status int, code, title, detail string) *Problem {
	return &Problem{Type: docs + code, Title: title, Status: status, Detail: detail, Code: code}
}

// Write answers with the problem.
func (p *Problem) Write(w http.ResponseWriter) {
	body, err := json.Marshal(p)
	if err != nil { // only metadata can be at fault
		without := *p
		without.Metadata = nil
		body, _ = json.Marshal(without)
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64(math.Ceil(p.RetryAfter.Seconds())), 10))
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // a client that is gone needs no problem
}

// maxRetryAfter bounds the hint for a key that is in progress. The time left on
// the lease bounds how long a crashed owner blocks the key; one that is alive
// will mostly be done long before.
const maxRetryAfter = 2 * time.Second

// ProblemFor returns the problem that stands for an error of [idem.Do] or of
// [ParseKey]. An error that it does not know is an internal one: nothing of its
// text is shown.
func ProblemFor(err error) *Problem {
	p := problemFor(err)
	p.Err = err
	return p
}

func problemFor(err error) *Problem {
	if key := (*idem.KeyError)(nil); errors.As(err, &key) {
		switch {
		case key.Part == "key":
			return newProblem(400, CodeInvalidKey, "Invalid idempotency key", "The idempotency key "+key.Reason+".")
		case key.Part == "user" && key.Reason == "is empty":
			return newProblem(401, CodeUnauthenticated, "Unauthenticated", "The request needs an authenticated user.")
		}
	}
	if busy := (*idem.InProgressError)(nil); errors.As(err, &busy) {
		p := newProblem(409, CodeInProgress, "Request in progress",
			"A request with this idempotency key is being processed. Retry with the same key.")
		p.RetryAfter = max(min(busy.RetryAfter, maxRetryAfter), time.Second)
		return p
	}
	if failure := (*idem.RecordedError)(nil); errors.As(err, &failure) && failure.Code == CodeExecutionFailed {
		return newProblem(500, CodeExecutionFailed, "Execution failed",
			"The first request with this idempotency key failed while it was processed. Use a new key for another attempt.")
	}
	switch {
	case errors.Is(err, ErrNoKey):
		return newProblem(400, CodeInvalidKey, "Idempotency key missing", "This request needs an idempotency key.")
	case errors.Is(err, errTwoKeys):
		return newProblem(400, CodeInvalidKey, "Invalid idempotency key", "There is more than one idempotency key.")
	case errors.Is(err, errEmptyKey):
		return newProblem(400, CodeInvalidKey, "Invalid idempotency key", "The idempotency key is empty.")
	case errors.Is(err, errLongKey):
		return newProblem(400, CodeInvalidKey, "Invalid idempotency key",
			fmt.Sprintf("The idempotency key is longer than %d characters.", idem.MaxKeyLength))
	case errors.Is(err, errKeyText), errors.Is(err, errKeySyntax), errors.Is(err, errKeyComma):
		return newProblem(400, CodeInvalidKey, "Invalid idempotency key",
			"The idempotency key must be printable ASCII, and quoted if it has a comma or a quote.")
	case errors.Is(err, idem.ErrPayloadMismatch):
		return newProblem(422, CodePayloadMismatch, "Idempotency key reused",
			"This idempotency key was used with another request. Use a new key for a new request.")
	case errors.Is(err, idem.ErrInvalidPayload):
		return newProblem(400, CodeInvalidRequest, "Invalid request", "The request cannot be read.")
	case errors.Is(err, idem.ErrResultNotKept):
		return newProblem(410, CodeResultNotKept, "Done, answer not kept",
			"The request with this idempotency key has been carried out, but its answer was not kept. Do not send it again.")
	case errors.Is(err, idem.ErrCorruptRecord):
		return newProblem(500, CodeUnreadable, "Record unreadable",
			"The record of this idempotency key cannot be read. The request was not carried out again.")
	case errors.Is(err, idem.ErrOutcomeUnknown):
		return newProblem(409, CodeOutcomeUnknown, "Outcome unknown",
			"Whether the request with this idempotency key was carried out is not known yet. Do not send it with another key.")
	case errors.Is(err, idem.ErrUnavailable):
		return unavailable()
	case errors.Is(err, idem.ErrLeaseLost):
		p := newProblem(409, CodeLeaseLost, "Request taken over",
			"Another request with this idempotency key has taken over. Retry with the same key for its answer.")
		p.RetryAfter = time.Second
		return p
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return unavailable() // it ended before the handler started
	case errors.Is(err, idem.ErrInvalidKey), errors.Is(err, idem.ErrInvalidOption):
		return newProblem(500, CodeMisconfigured, "Server misconfigured", "The request was not carried out.")
	}
	return newProblem(500, CodeInternalError, "Internal error", "The request failed.")
}

func unavailable() *Problem {
	p := newProblem(503, CodeUnavailable, "Temporarily unavailable",
		"The request was not carried out. Retry with the same idempotency key.")
	p.RetryAfter = time.Second
	return p
}
