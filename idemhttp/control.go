package idemhttp

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"time"
)

// control reaches what the underlying writer offers, however wrapped.
func (rec *recorder) control() *http.ResponseController { return http.NewResponseController(rec.w) }

// Flush implements [http.Flusher].
func (rec *recorder) Flush() { _ = rec.FlushError() }

// FlushError sends what was written so far, and makes the rest stream. It is
// still recorded, up to the limit. It returns [http.ErrNotSupported] if the
// underlying writer cannot flush.
func (rec *recorder) FlushError() error {
	if !canFlush(rec.w) { // then there is no reason to stop buffering
		return http.ErrNotSupported
	}
	if err := rec.begin(0); err != nil {
		return err
	}
	rec.send(false)
	err := rec.control().Flush()
	if !rec.overflown {
		return nil // as in write: a client that is gone does not end the recording
	}
	return err
}

// canFlush reports whether [http.ResponseController] can flush w.
func canFlush(w http.ResponseWriter) bool {
	for {
		switch t := w.(type) {
		case http.Flusher, interface{ FlushError() error }:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return false
		}
	}
}

// Hijack gives the connection to the handler. What it does there is not
// recorded: repetitions learn that the request has been carried out, and no
// more. It returns [http.ErrNotSupported] if the underlying writer cannot do it,
// as over HTTP/2.
func (rec *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if rec.hijacked {
		return nil, nil, http.ErrHijacked
	}
	if rec.status != 0 {
		rec.send(false)
	}
	conn, rw, err := rec.control().Hijack()
	if err == nil {
		rec.hijacked, rec.body = true, buffer{}
	}
	return conn, rw, err
}

// SetReadDeadline is that of [http.ResponseController].
func (rec *recorder) SetReadDeadline(t time.Time) error { return rec.control().SetReadDeadline(t) }

// SetWriteDeadline is that of [http.ResponseController].
func (rec *recorder) SetWriteDeadline(t time.Time) error { return rec.control().SetWriteDeadline(t) }

// EnableFullDuplex is that of [http.ResponseController].
func (rec *recorder) EnableFullDuplex() error { return rec.control().EnableFullDuplex() }

// ReadFrom is what [io.Copy] uses. It reads into the recording, and hands the
// rest of an answer that is too large to the underlying writer, which may have a
// fast path for files.
func (rec *recorder) ReadFrom(src io.Reader) (n int64, err error) {
	if err := rec.begin(0); err != nil {
		return 0, err
	}
	// An answer of known length beyond the limit is not worth buffering.
	if !rec.overflown && rec.declared > int64(rec.limit) {
		rec.overflow()
	}
	for !rec.overflown {
		free := rec.body.free(0)
		read, readErr := src.Read(free)
		written, writeErr := rec.Write(free[:read]) // where it is already
		n += int64(written)
		switch {
		case writeErr != nil:
			return n, writeErr
		case readErr == io.EOF:
			return n, nil
		case readErr != nil:
			return n, readErr
		}
	}
	rest, err := io.Copy(rec.w, src)
	rec.written += rest
	return n + rest, err
}
