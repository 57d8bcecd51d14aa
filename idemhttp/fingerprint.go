package idemhttp

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/idem-go/idem"
)

// routeScope is the default of [WithScope].
func routeScope(r *http.Request) string {
	scope := r.Method
	if strings.HasPrefix(r.Pattern, r.Method+" ") {
		scope = r.Pattern
	} else if r.Pattern != "" {
		scope += " " + r.Pattern
	}
	if utf8.RuneCountInString(scope) > idem.MaxScopeLength {
		sum := sha256.Sum256([]byte(scope))
		return "sha256:" + hex.EncodeToString(sum[:])
	}
	return scope
}

// fingerprint is the payload of a request: what must be the same for it to be
// a repetition. It is hashed as JSON, so its fields must not change.
type fingerprint struct {
	Method string
	Path   string // escaped: a slash and %2F differ
	Query  string
	Media  string          `json:",omitempty"` // the body's media type, without parameters
	JSON   json.RawMessage `json:",omitempty"` // the body, if it is JSON; or
	Digest string          `json:",omitempty"` // of its parts, or of its bytes
}

// newFingerprint returns the fingerprint of a request. If the body is JSON, it
// may yet turn out to be none that can be compared; see [fingerprint.raw].
func newFingerprint(r *http.Request, body []byte) (*fingerprint, error) {
	f := &fingerprint{Method: r.Method, Path: r.URL.EscapedPath(), Query: r.URL.RawQuery}
	if len(body) == 0 {
		return f, nil
	}
	media, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err != nil || r.Header.Get("Content-Encoding") != "":
		f.raw(body)
	case media == "application/json" || strings.HasSuffix(media, "+json"):
		f.Media, f.JSON = media, body
	case strings.HasPrefix(media, "multipart/"):
		f.Media = media
		f.Digest, err = digestParts(body, params["boundary"])
		return f, err
	default:
		f.Media = media
		f.raw(body)
	}
	return f, nil
}

// raw makes the fingerprint one of the body's bytes.
func (f *fingerprint) raw(body []byte) {
	sum := sha256.Sum256(body)
	f.JSON, f.Digest = nil, hex.EncodeToString(sum[:])
}

var errMultipart = errors.New("idemhttp: malformed multipart body")

// digestParts returns a digest of a multipart body that does not depend on the
// boundary, which clients choose anew for every attempt: the headers and the
// content of each part, in order.
func digestParts(body []byte, boundary string) (string, error) {
	if boundary == "" {
		return "", errMultipart
	}
	sum := sha256.New()
	parts := multipart.NewReader(bytes.NewReader(body), boundary)
	for {
		part, err := parts.NextRawPart()
		if err == io.EOF {
			return hex.EncodeToString(sum.Sum(nil)), nil
		}
		if err != nil {
			return "", fmt.Errorf("%w: %w", errMultipart, err)
		}
		for _, name := range slices.Sorted(maps.Keys(part.Header)) {
			for _, value := range part.Header[name] {
				writeField(sum, []byte(name))
				writeField(sum, []byte(value))
			}
		}
		writeField(sum, nil) // no header has an empty name
		content := sha256.New()
		if _, err := io.Copy(content, part); err != nil {
			return "", fmt.Errorf("%w: %w", errMultipart, err)
		}
		sum.Write(content.Sum(nil))
	}
}

// writeField writes a field behind its length, so that no two lists of fields
// are written alike.
func writeField(sum hash.Hash, field []byte) {
	sum.Write(binary.AppendUvarint(nil, uint64(len(field))))
	sum.Write(field)
}
