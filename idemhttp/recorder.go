package idemhttp

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// recorder is the handler's [http.ResponseWriter]. It buffers the answer until
// the outcome is recorded; then [recorder.send] sends it. A handler that flushes
// or exceeds the limit makes it send what there is and stream from then on.
//
// There is no Unwrap: what is written past the recorder would be missing from
// the replay. What [http.ResponseController] can do, the recorder does itself.
type recorder struct {
	w     http.ResponseWriter
	limit int

	status   int         // 0 before WriteHeader
	header   http.Header // as it was at WriteHeader: what is sent and recorded
	declared int64       // Content-Length as set by the handler, or -1
	written  int64       // bytes of body that the handler wrote

	body      buffer // recorded so far
	sent      bool   // the header and everything written are on their way
	overflown bool   // beyond the limit: nothing is recorded any more
	hijacked  bool
}

func newRecorder(w http.ResponseWriter, limit int) *recorder {
	return &recorder{w: w, limit: limit, declared: -1}
}

// Header returns the header map of the underlying writer, so that the handler
// sees what was set in front of it.
func (rec *recorder) Header() http.Header { return rec.w.Header() }

// WriteHeader fixes the status and the headers. 1xx pass through.
func (rec *recorder) WriteHeader(status int) {
	switch {
	case rec.hijacked || rec.status != 0:
		return
	case status < 100 || status > 999:
		panic(fmt.Sprintf("invalid WriteHeader code %v", status)) // as net/http does, before anything is recorded
	case status < 200 && status != http.StatusSwitchingProtocols:
		rec.w.WriteHeader(status)
		return
	}
	rec.status = status
	rec.header = rec.w.Header().Clone()
	if rec.header == nil {
		rec.header = http.Header{}
	}
	if n, err := strconv.ParseInt(rec.header.Get("Content-Length"), 10, 64); err == nil && n >= 0 {
		rec.declared = n
		if n <= int64(rec.limit) {
			rec.body.free(int(n) + headSize)
		}
	}
}

// headSize is room for the status and the headers behind the body, as most are.
const headSize = 256

func (rec *recorder) Write(p []byte) (int, error) { return rec.write(len(p), p, "") }

// WriteString spares the copy of a string.
func (rec *recorder) WriteString(s string) (int, error) { return rec.write(len(s), nil, s) }

// write writes p, or s if p is nil.
func (rec *recorder) write(n int, p []byte, s string) (int, error) {
	if err := rec.begin(n); err != nil {
		return 0, err
	}
	if !rec.overflown && rec.body.size+n > rec.limit {
		rec.overflow()
	}
	if !rec.overflown {
		fill(&rec.body, p)
		fill(&rec.body, s)
		if rec.sent {
			// A client that is gone does not end the recording: it will ask again.
			_, _ = rec.pass(p, s)
		}
		rec.written += int64(n)
		return n, nil
	}
	n, err := rec.pass(p, s)
	rec.written += int64(n)
	return n, err
}

func (rec *recorder) pass(p []byte, s string) (int, error) {
	if p == nil && s != "" {
		if w, ok := rec.w.(interface{ WriteString(string) (int, error) }); ok {
			return w.WriteString(s)
		}
		p = []byte(s)
	}
	return rec.w.Write(p)
}

// begin checks that n more bytes of body may be written.
func (rec *recorder) begin(n int) error {
	if rec.hijacked {
		return http.ErrHijacked
	}
	if rec.status == 0 {
		rec.WriteHeader(http.StatusOK)
	}
	switch {
	case !bodyAllowed(rec.status) && n > 0:
		return http.ErrBodyNotAllowed
	case rec.declared >= 0 && rec.written+int64(n) > rec.declared:
		return http.ErrContentLength
	}
	return nil
}

// overflow ends the recording: the answer is too large to be kept.
func (rec *recorder) overflow() {
	rec.send(false)
	rec.overflown, rec.body = true, buffer{}
}

// send sends the header and what was written so far, unless that was done
// before. If the answer is complete, its length is sent along.
func (rec *recorder) send(complete bool) {
	if rec.sent || rec.hijacked {
		return
	}
	rec.sent = true
	rec.sniff()
	live := rec.w.Header()
	if complete && rec.declared < 0 && bodyAllowed(rec.status) && !trailers(rec.header, live) {
		rec.header.Set("Content-Length", strconv.Itoa(rec.body.size))
	}
	if maps.EqualFunc(live, rec.header, slices.Equal) {
		rec.w.WriteHeader(rec.status)
	} else {
		// What was set since WriteHeader is not sent, but may hold trailers.
		later := maps.Clone(live)
		replace(live, rec.header)
		rec.w.WriteHeader(rec.status)
		replace(live, later)
	}
	_ = rec.body.send(rec.w)
}

func replace(h, by http.Header) {
	clear(h)
	maps.Copy(h, by)
}

// sniff does now what net/http does when it sends the header, so that what is
// sent and what is recorded are the same.
func (rec *recorder) sniff() {
	if _, set := rec.header["Content-Type"]; set || rec.body.size == 0 ||
		rec.header.Get("Content-Encoding") != "" || rec.header.Get("Transfer-Encoding") != "" {
		return
	}
	rec.header.Set("Content-Type", http.DetectContentType(rec.body.start()))
}

// trailers reports whether the handler sends trailers, which an answer of known
// length cannot have.
func trailers(sent, live http.Header) bool {
	if len(sent["Trailer"]) > 0 || sent.Get("Transfer-Encoding") != "" {
		return true
	}
	for name := range live {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			return true
		}
	}
	return false
}

// finish returns the answer to record, once the handler has returned.
func (rec *recorder) finish(allowed map[string]bool) Response {
	if rec.hijacked {
		return Response{Status: http.StatusSwitchingProtocols, notKept: true}
	}
	if rec.status == 0 {
		rec.WriteHeader(http.StatusOK)
	}
	if !rec.sent {
		rec.sniff()
	}
	resp := Response{Status: rec.status, Header: recordable(rec.header, allowed), notKept: rec.overflown}
	if !rec.overflown {
		n, head := rec.body.size, encodeHead(&resp)
		resp.encoded = append(rec.body.join(len(head)), head...)
		resp.Body = resp.encoded[:n:n]
		rec.body = buffer{last: resp.Body, size: n}
	}
	return resp
}

// notRecorded tells the client that its answer has not been recorded: in the
// header, or, if that has been sent, in a trailer.
func (rec *recorder) notRecorded() {
	switch {
	case rec.hijacked:
	case rec.sent:
		rec.w.Header().Set(http.TrailerPrefix+RecordedHeader, "false")
	default:
		rec.header.Set(RecordedHeader, "false")
	}
}
