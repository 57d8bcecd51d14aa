package codec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"strings"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/idem-go/idem/internal/within"
)

// JSON encodes as encoding/json does. The zero value is ready to use.
//
// Unlike encoding/json it returns an error for a string that is not valid
// UTF-8, instead of replacing bytes, and decodes a number into an interface as
// [json.Number], so that large ids keep their digits. A panic in a marshal or
// unmarshal method is an error too. What encoding/json does not see, such as
// unexported fields, is not kept.
//
// A [json.RawMessage] comes back with its names in order, repeated ones
// included, and its numbers and escapes as they were, but without spaces. Use
// []byte or string for bytes that must come back exactly.
//
// # Versions
//
// Records outlive deploys. New fields need no new version: records without them
// decode to zero. A change that would misread old records does:
//
//	codec.JSON{SchemaVersion: 2, Upcast: func(version int, data []byte) ([]byte, error) {
//		// rewrite data, written under version 1, to what version 2 looks like
//	}}
//
// Roll out such a change in two steps, or let a few calls fail for a while:
// processes that run the old code cannot read the new version.
type JSON struct {
	// SchemaVersion is the version of the shape of the values. It grows by one
	// with every incompatible change. Zero means 1; negative is an error.
	SchemaVersion int

	// Upcast rewrites data of an older version, from 1 on, to SchemaVersion. It
	// must be safe for concurrent use and must not change data. If it is nil,
	// older versions are an error: they were given a version of their own
	// because they cannot be read as they are.
	Upcast func(version int, data []byte) ([]byte, error)
}

var _ Codec = JSON{}

// Name returns "json".
func (JSON) Name() string { return "json" }

// Version returns SchemaVersion, or 1 if that is zero.
func (c JSON) Version() int {
	if c.SchemaVersion == 0 {
		return 1
	}
	return c.SchemaVersion
}

// jsonOptions are those of encoding/json but for invalid UTF-8, and without the
// escapes that only matter to JSON inside HTML or JavaScript.
var jsonOptions = jsonv2.JoinOptions(
	jsonv1.DefaultOptionsV1(),
	jsontext.AllowInvalidUTF8(false),
	jsontext.EscapeForHTML(false),
	jsontext.EscapeForJS(false),
	jsonv2.WithMarshalers(jsonv2.MarshalToFunc(marshalNumber)),
)

// marshalNumber is needed because jsonv1 has a Number of its own and takes
// encoding/json's for any other string.
func marshalNumber(enc *jsontext.Encoder, n json.Number) error {
	return jsonv1.Number(n).MarshalJSONTo(enc)
}

// Encode returns v as JSON. It returns an error if v has no JSON (NaN, infinity,
// channels, functions, cycles), holds invalid UTF-8, or has a marshal method
// that fails or panics. The associated data is ignored.
func (c JSON) Encode(v any, _ []byte) (_ []byte, err error) {
	defer recoverTo(&err, "encode", v)
	if c.SchemaVersion < 0 {
		return nil, fmt.Errorf("codec: negative SchemaVersion %d", c.SchemaVersion)
	}
	data, err := jsonv2.Marshal(v, jsonOptions)
	if err != nil {
		return nil, jsonError("encode", v, err)
	}
	return data, nil
}

// Decode decodes data into v. It returns an error if version is newer than the
// codec's own, or is older and cannot be upcast, if data is not exactly one JSON
// value in valid UTF-8, or if it does not fit v.
func (c JSON) Decode(data []byte, version int, v any, _ []byte) (err error) {
	defer recoverTo(&err, "decode", v)
	switch current := c.Version(); {
	case version < 1 || version > current:
		return fmt.Errorf("codec: JSON of version %d is unknown to a codec of version %d", version, current)
	case version < current && c.Upcast == nil:
		return fmt.Errorf("codec: JSON of version %d needs Upcast to become version %d", version, current)
	case version < current:
		if data, err = c.Upcast(version, data); err != nil {
			return &jsonFailure{fmt.Sprintf("codec: upcasting JSON of version %d failed", version), err}
		}
	}
	if !utf8.Valid(data) {
		return errors.New("codec: stored JSON is not valid UTF-8")
	}
	if t := reflect.TypeOf(v); t != nil && !numbers.In(t) { // then this does the same, in half the time
		err := jsonv2.Unmarshal(data, v, jsonOptions)
		switch {
		case err == nil:
			return nil
		case strings.Contains(err.Error(), "after top-level value"):
			return errFollowed
		}
		return jsonError("decode", v, err)
	}
	// This is encoding/json itself because that yields its own json.Number.
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(v); err != nil {
		return jsonError("decode", v, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return errFollowed
	}
	return nil
}

var errFollowed = errors.New("codec: stored JSON is followed by more data")

// jsonFailure keeps values out of logs: its text is safe to print, its cause may
// quote the value.
type jsonFailure struct {
	text  string
	cause error
}

func (f *jsonFailure) Error() string { return f.text }
func (f *jsonFailure) Unwrap() error { return f.cause }

func jsonError(verb string, v any, cause error) error {
	text := fmt.Sprintf("codec: cannot %s %T as JSON", verb, v)
	if e, ok := errors.AsType[*jsonv1.UnsupportedTypeError](cause); ok {
		text += ": unsupported type " + e.Type.String()
	} else if e, ok := errors.AsType[*jsonv1.UnsupportedValueError](cause); ok {
		text += ": unsupported value: " + e.Str // NaN, ±Inf, or a cycle with its type
	} else if e, ok := errors.AsType[*json.UnmarshalTypeError](cause); ok {
		text += ": stored value does not fit " + e.Type.String()
	} else if e, ok := errors.AsType[*jsonv1.UnmarshalTypeError](cause); ok {
		text += ": stored value does not fit " + e.Type.String()
	}
	return &jsonFailure{text, cause}
}

func recoverTo(err *error, verb string, v any) {
	r := recover()
	if r == nil {
		return
	}
	text := fmt.Sprintf("codec: a method called to %s %T as JSON panicked", verb, v)
	cause, ok := r.(error)
	if !ok {
		cause = fmt.Errorf("panic: %v", r)
	}
	if e, ok := r.(runtime.Error); ok {
		text += ": " + e.Error() // written by the runtime: types and indexes, no data
	}
	*err = &jsonFailure{text, cause}
}

// numbers are what decoding can yield a [json.Number] for.
var numbers = within.Finder{Wanted: func(t reflect.Type) bool {
	return t.Kind() == reflect.Interface || t == reflect.TypeFor[json.Number]()
}}
