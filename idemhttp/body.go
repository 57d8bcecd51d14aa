package idemhttp

import (
	"bytes"
	"errors"
	"io"
	"net/http"
)

// readBody returns the whole body of a request, or an [*http.MaxBytesError].
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	switch {
	case r.Body == nil || r.Body == http.NoBody:
		return nil, nil
	case r.ContentLength > limit:
		return nil, &http.MaxBytesError{Limit: limit}
	}
	// A length that a client only announces is not worth much memory.
	const trusted = 1 << 20
	body := bytes.NewBuffer(make([]byte, 0, min(max(r.ContentLength, 0), trusted)+bytes.MinRead))
	_, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, limit))
	return body.Bytes(), err
}

// bodyProblem returns the problem of a body that could not be read.
func bodyProblem(err error) *Problem {
	p := newProblem(http.StatusBadRequest, CodeInvalidRequest, "Invalid request", "The body cannot be read.")
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		p = newProblem(http.StatusRequestEntityTooLarge, CodePayloadTooLarge, "Body too large",
			"The body is larger than what a request with an idempotency key may have.")
		p.Metadata = map[string]any{"limit": tooLarge.Limit}
	}
	p.Err = err
	return p
}

// withBody gives the request a body that has been read before.
func withBody(r *http.Request, body []byte) {
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
}
