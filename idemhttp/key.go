package idemhttp

import (
	"errors"
	"net/http"
	"strings"

	"github.com/idem-go/idem"
)

// DefaultKeyHeader is the header that carries the key unless [WithKeyHeader]
// says otherwise.
const DefaultKeyHeader = "Idempotency-Key"

// ErrNoKey is returned by [ParseKey] for a request without a key header. Other
// errors mean that there is one and that it is wrong.
var ErrNoKey = errors.New("idemhttp: no idempotency key")

var (
	errTwoKeys   = errors.New("idemhttp: more than one idempotency key")
	errEmptyKey  = errors.New("idemhttp: the idempotency key is empty")
	errLongKey   = errors.New("idemhttp: the idempotency key is longer than 255 characters")
	errKeyText   = errors.New("idemhttp: the idempotency key has a character that is not printable ASCII")
	errKeySyntax = errors.New("idemhttp: the idempotency key is not a structured field string")
	errKeyComma  = errors.New("idemhttp: an idempotency key with a comma or a quote must be quoted")
)

// ParseKey returns the idempotency key of a request, from the first of the
// headers that it has; without any, [DefaultKeyHeader] is meant.
//
// The key is a structured field string (RFC 8941, section 3.3.3), as the IETF
// draft has it: "abc". Bare keys, as most clients send them, mean the same: abc.
// Both are 1 to 255 characters of printable ASCII. A bare key has no quote and
// no comma, since a comma may mean that a proxy joined two headers into one.
// Parameters are refused: the draft defines none.
func ParseKey(r *http.Request, headers ...string) (string, error) {
	if len(headers) == 0 {
		headers = []string{DefaultKeyHeader}
	}
	var lines []string
	for _, name := range headers {
		lines = append(lines, r.Header.Values(name)...)
	}
	switch len(lines) {
	case 0:
		return "", ErrNoKey
	case 1:
		return parseKey(lines[0])
	}
	return "", errTwoKeys
}

func parseKey(line string) (string, error) {
	key := strings.Trim(line, " \t")
	if quoted, ok := strings.CutPrefix(key, `"`); ok {
		var err error
		if key, err = unquote(quoted); err != nil {
			return "", err
		}
	} else if strings.ContainsAny(key, `",`) {
		return "", errKeyComma
	}
	key = strings.Trim(key, " ") // as idem.Key.Normalize does
	switch {
	case key == "":
		return "", errEmptyKey
	case len(key) > idem.MaxKeyLength:
		return "", errLongKey
	case strings.ContainsFunc(key, func(c rune) bool { return c < ' ' || c > '~' }):
		return "", errKeyText
	}
	return key, nil
}

// unquote returns the string that follows an opening quote, which a closing one
// must end.
func unquote(s string) (string, error) {
	inner, rest, found := strings.Cut(s, `"`)
	if found && rest == "" && !strings.Contains(inner, `\`) {
		return inner, nil
	}
	if len(s) > 2*idem.MaxKeyLength+1 {
		return "", errLongKey
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"':
			if i != len(s)-1 {
				return "", errKeySyntax
			}
			return b.String(), nil
		case '\\':
			i++
			if i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", errKeySyntax
			}
		}
		b.WriteByte(s[i])
	}
	return "", errKeySyntax
}
