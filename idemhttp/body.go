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
	var body buffer
	body.free(int(min(r.ContentLength, trusted)) + 1) // room to meet the end in
	for src := http.MaxBytesReader(w, r.Body, limit); ; {
		free := body.free(int(min(r.ContentLength+1-int64(body.size), int64(body.size))))
		n, err := src.Read(free)
		body.used(n)
		switch err {
		case nil:
		case io.EOF:
			return body.join(0), nil
		default:
			return nil, err
		}
	}
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
