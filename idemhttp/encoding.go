package idemhttp

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// mustDecode reports whether the recorded body is compressed by gzip and the
// client that asks for it now does not say that it can read that. The one that
// asked first could.
func mustDecode(recorded http.Header, r *http.Request) bool {
	return strings.EqualFold(recorded.Get("Content-Encoding"), "gzip") && !accepts(r.Header.Values("Accept-Encoding"), "gzip")
}

// accepts reports whether the lines of an Accept-Encoding header allow a coding
// (RFC 9110, section 12.5.3).
func accepts(lines []string, coding string) bool {
	any := false
	for _, line := range lines {
		for item := range strings.SplitSeq(line, ",") {
			name, params, _ := strings.Cut(item, ";")
			name = strings.TrimSpace(name)
			if strings.EqualFold(name, coding) {
				return !refused(params)
			}
			any = any || name == "*" && !refused(params)
		}
	}
	return any
}

// refused reports whether the parameters of a coding are q=0.
func refused(params string) bool {
	q, ok := strings.CutPrefix(strings.ToLower(strings.TrimSpace(params)), "q=")
	weight, err := strconv.ParseFloat(q, 64)
	return ok && err == nil && weight == 0
}

// writeDecoded answers with the body as it was before gzip.
func (resp *Response) writeDecoded(w http.ResponseWriter) {
	h := w.Header()
	h.Del("Content-Encoding")
	h.Del("Etag") // of the compressed bytes
	z, err := gzip.NewReader(bytes.NewReader(resp.Body))
	w.WriteHeader(resp.Status)
	if err == nil {
		_, err = io.Copy(w, z)
	}
	if err != nil { // the handler did not write gzip: a cut answer must not look whole
		panic(http.ErrAbortHandler)
	}
}
