package idemhttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// A snapshot is a request's body as it was before the first attempt.
type snapshot struct {
	length int64 // for http.Request.ContentLength
	bytes  []byte
	none   bool

	// The rest is of a body that is too large to copy.
	first io.ReadCloser                 // the caller's, for the first attempt
	again func() (io.ReadCloser, error) // nil if it can be read once only
}

// newSnapshot reads the body, if it is not larger than the limit. It ends with
// the context, even if the body's Read does not.
func newSnapshot(req *http.Request, limit int64) (*snapshot, error) {
	s := &snapshot{length: req.ContentLength, first: req.Body, again: req.GetBody}
	switch {
	case req.Body == nil || req.Body == http.NoBody:
		s.none, s.first = true, nil
		return s, nil
	case limit < 0 || req.ContentLength > limit:
		return s, nil
	}
	stop := context.AfterFunc(req.Context(), func() { req.Body.Close() })
	head, err := io.ReadAll(io.LimitReader(req.Body, limit+1))
	if !stop() {
		err = context.Cause(req.Context())
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("idemhttp: reading the request's body: %w", err)
	case int64(len(head)) > limit:
		s.first = readCloser{io.MultiReader(bytes.NewReader(head), req.Body), req.Body}
		return s, nil
	case req.ContentLength > 0 && int64(len(head)) != req.ContentLength:
		return nil, fmt.Errorf("idemhttp: the request's body has %d bytes, its ContentLength is %d", len(head), req.ContentLength)
	}
	req.Body.Close()
	s.bytes, s.first = head, nil
	if len(req.Trailer) == 0 { // trailers need a body of unknown length
		s.length, s.none = int64(len(head)), len(head) == 0
	}
	return s, nil
}

type readCloser struct {
	io.Reader
	io.Closer
}

func (s *snapshot) open() (io.ReadCloser, error) {
	switch {
	case s.none:
		return http.NoBody, nil
	case s.bytes != nil:
		return io.NopCloser(bytes.NewReader(s.bytes)), nil
	case s.again != nil:
		return s.again()
	}
	return nil, errors.New("idemhttp: the request's body cannot be read again")
}

func (s *snapshot) repeatable() bool { return s.none || s.bytes != nil || s.again != nil }

// attach gives an attempt its body.
func (s *snapshot) attach(req *http.Request, first bool) (_ *http.Request, err error) {
	req.ContentLength, req.GetBody = s.length, nil
	if s.repeatable() {
		req.GetBody = s.open // net/http repeats requests, too, on connections that turn out to be dead
	}
	if first && s.first != nil {
		req.Body, s.first = s.first, nil
		return req, nil
	}
	req.Body, err = s.open()
	return req, err
}

// close closes the caller's body if no attempt has done so.
func (s *snapshot) close() {
	if s.first != nil {
		s.first.Close()
	}
}
