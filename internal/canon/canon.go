// Package canon writes JSON in one canonical form: two payloads have the same
// bytes exactly if they mean the same.
//
// The form is that of RFC 8785: no spaces, strings with the fewest escapes,
// object members sorted by the UTF-16 code units of their names. It departs
// from the RFC in one thing. RFC 8785 reads every number as a float64 and so
// merges 9007199254740993 with 9007199254740992; here a number keeps every
// digit, see [appendNumber].
//
// A payload hash is only as stable as these bytes: whatever changes them needs
// a new version of the hash.
package canon

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// options encode as encoding/json does, which is what tags and marshal methods
// were written for, and are strict where that would let two payloads become
// one: encoding/json replaces invalid UTF-8 by U+FFFD.
var options = jsonv2.JoinOptions(
	jsonv1.DefaultOptionsV1(),
	jsontext.AllowInvalidUTF8(false),
	jsontext.AllowDuplicateNames(false),
	jsontext.EscapeForHTML(false), // as format would have it
	jsontext.EscapeForJS(false),
	jsontext.PreserveRawStrings(false),
	jsonv2.WithMarshalers(jsonv2.MarshalToFunc(marshalNumber)),
)

// marshalNumber is needed because jsonv1 has a Number of its own and takes
// encoding/json's for any other string.
func marshalNumber(enc *jsontext.Encoder, n json.Number) error {
	return jsonv1.Number(n).MarshalJSONTo(enc)
}

// JSON returns the canonical JSON of v. A [json.RawMessage] is JSON already; any
// other value is encoded as encoding/json encodes it, except that invalid UTF-8
// and repeated object names are errors.
//
// It is also an error if v has no JSON (channels, functions, NaN, cycles), if a
// marshal method fails or panics, if a number's exponent has more than 18
// digits, or if v is a struct of which JSON sees no field, see [silent]. The
// text of an error does not quote v; its cause may.
func JSON(v any) (_ []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = panicked(v, r)
		}
	}()
	var text []byte
	switch raw, ok := v.(json.RawMessage); {
	case !ok:
		text, err = encode(v)
	case raw == nil: // encoding/json takes it for null too
		return []byte("null"), nil
	default:
		text, err = format(nil, raw)
	}
	if err != nil {
		return nil, err
	}
	return normalizeNumbers(text)
}

func encode(v any) ([]byte, error) {
	if t := silent(v); t != nil {
		return nil, fmt.Errorf("JSON sees no field of %v: every value would be {}", t)
	}
	text, err := jsonv2.Marshal(v, options)
	if err != nil {
		return nil, newFailure(fmt.Sprintf("%T cannot be encoded as JSON", v), err)
	}
	if sortObjects(text) {
		return text, nil
	}
	return format(text[:0], text)
}

// format appends text to dst without spaces and needless escapes, the objects
// sorted. It is strict about UTF-8 and repeated names, and leaves numbers alone.
func format(dst, text []byte) ([]byte, error) {
	dst, err := jsontext.AppendFormat(dst, text, jsontext.ReorderRawObjects(true))
	if err != nil {
		reason := "invalid JSON"
		if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
			reason = fmt.Sprintf("invalid JSON at byte %d", e.ByteOffset)
		}
		return nil, newFailure(reason, err)
	}
	return dst, nil
}

// failure keeps payloads out of logs: its text is safe to print, its cause may
// quote the payload.
type failure struct {
	text  string
	cause error
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.cause }

func newFailure(text string, cause error) error {
	if d := detail(cause); d != "" {
		text += ": " + d
	}
	return &failure{text, cause}
}

// detail says what err is about in words that hold nothing of the payload, or
// returns "". Partly it goes by the text of err, since the options for
// encoding/json keep the text of a syntax error but not the error.
func detail(err error) string {
	if strings.Contains(err.Error(), jsontext.ErrDuplicateName.Error()) {
		return "an object repeats a name"
	}
	if strings.Contains(err.Error(), "invalid UTF-8") {
		return "a string is not valid UTF-8"
	}
	if e, ok := errors.AsType[*jsonv1.MarshalerError](err); ok && e.Type != nil {
		return fmt.Sprintf("the marshal method of %v failed", e.Type)
	}
	if e, ok := errors.AsType[*jsonv1.UnsupportedTypeError](err); ok {
		return "unsupported type " + e.Type.String()
	}
	if e, ok := errors.AsType[*jsonv1.UnsupportedValueError](err); ok {
		return "unsupported value: " + e.Str // NaN, ±Inf, or a cycle with its type
	}
	return ""
}

func panicked(v, r any) error {
	text := fmt.Sprintf("a marshal method called for %T panicked", v)
	if e, ok := r.(runtime.Error); ok {
		return &failure{text + ": " + e.Error(), e} // types and indexes, no data
	}
	return &failure{text, fmt.Errorf("panic: %v", r)}
}
