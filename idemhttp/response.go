package idemhttp

import (
	"errors"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
)

// A Response is a recorded answer.
type Response struct {
	Status int
	Header http.Header // those on the allow-list; a name without values keeps net/http from inventing one
	Body   []byte

	encoded []byte // by the recorder, which owns Body's memory and so need not copy it; nil otherwise
	notKept bool   // there is no answer that could be replayed
}

// MarshalJSON returns an error: recorded answers need [Codec].
//
// Without it a JSON codec would see fields enough to write, and would replay
// half an answer.
func (Response) MarshalJSON() ([]byte, error) {
	return nil, errors.New("idemhttp: a Response is encoded by idemhttp.Codec")
}

// DefaultHeaders returns the names of the headers that are recorded: those that
// describe the body and what came of the request. [WithResponseHeaders] adds to
// them.
func DefaultHeaders() []string {
	return []string{
		"Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Location",
		"Content-Type", "Etag", "Last-Modified", "Link", "Location", "Vary",
		"X-Content-Type-Options",
	}
}

// neverRecorded reports whether a header must not be recorded: it was made for
// one exchange, holds a secret, or is the connection's.
func neverRecorded(name string) bool {
	switch name {
	case "Set-Cookie", "Set-Cookie2", "Cookie", "Authorization", "Www-Authenticate", "Authentication-Info",
		"Date", "Age", "Content-Length", "Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		ReplayedHeader, RecordedHeader:
		return true
	}
	return strings.HasPrefix(name, "Proxy-")
}

// Headers that the middleware adds.
const (
	ReplayedHeader = "Idempotent-Replayed"  // "true" on every replay, and on nothing else
	RecordedHeader = "Idempotency-Recorded" // "false" if the handler ran but its answer could not be recorded
	compatHeader   = "X-Idempotency-Status"
)

// recordable returns what is recorded of the headers that were sent. There is
// always an entry for Content-Type: without one net/http would guess.
func recordable(sent http.Header, allowed map[string]bool) http.Header {
	kept := http.Header{"Content-Type": nil}
	for name, values := range sent {
		if name := textproto.CanonicalMIMEHeaderKey(name); allowed[name] {
			kept[name] = slices.Clone(values)
		}
	}
	return kept
}

// write answers with the recorded response.
func (resp *Response) write(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	for name, values := range resp.Header {
		h[name] = values
	}
	if mustDecode(resp.Header, r) && bodyAllowed(resp.Status) {
		resp.writeDecoded(w)
		return
	}
	if bodyAllowed(resp.Status) {
		h.Set("Content-Length", strconv.Itoa(len(resp.Body)))
	}
	w.WriteHeader(resp.Status)
	if bodyAllowed(resp.Status) {
		_, _ = w.Write(resp.Body) // a client that is gone may ask again
	}
}

func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}
