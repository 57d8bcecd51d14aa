package idemhttp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// An UnsettledError is returned by [Transport] for a call that was given up
// without an answer that settles it: it may have been carried out, or be carried
// out later. [errors.As] finds it in the error of [http.Client]:
//
//	resp, err := client.Do(req)
//	if e, ok := errors.AsType[*idemhttp.UnsettledError](err); ok {
//		ctx = e.Context(ctx) // requests with it are attempts of the same call
//	}
//
// It wraps what the last attempt ended with, and why there was no other:
// [idem.ErrInProgress] if the call was being processed to the end;
// [idem.ErrOutcomeUnknown] if the server says so, or if the key's life is over, so
// that another attempt could do the work twice; the context's error.
type UnsettledError struct {
	// Key is the call's key, as its header has it. It is in no message.
	Key string

	// Expires is when the server may have forgotten the key. Zero for never.
	Expires time.Time

	// Attempts is the number of requests that were sent. Zero if the key's life was
	// over before the first.
	Attempts int

	// Response is the last answer, nil if the last attempt got none. Its body is in
	// memory, cut off after 64 KiB, and need not be closed.
	Response *http.Response

	Err error
}

func (e *UnsettledError) Error() string {
	return fmt.Sprintf("idemhttp: unsettled after %d attempts: %v", e.Attempts, e.Err)
}

func (e *UnsettledError) Unwrap() error { return e.Err }

// Timeout reports whether time ran out, as [net.Error] does.
func (e *UnsettledError) Timeout() bool {
	var timeout net.Error
	return errors.As(e.Err, &timeout) && timeout.Timeout()
}

// Context returns a context whose requests are attempts of the same call: they
// have its key, until the key's life is over. The request must be the same.
func (e *UnsettledError) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, keyContext{}, contextKey{key: e.Key, expires: e.Expires})
}

func (c *call) unsettled(resp *http.Response, err error) error {
	return &UnsettledError{Key: c.key, Expires: c.expires, Attempts: c.attempts, Response: resp, Err: err}
}
