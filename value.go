package idem

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"

	"github.com/idem-go/idem/internal/within"
)

var errTooLarge = errors.New("result is larger than the limit of WithMaxResultBytes")

// encode returns the bytes to keep of v. Where T contains an interface, decoding
// may give other types than fn put in (a json.Number for an int64), so v then
// becomes its own replay: all callers see equal types.
func encode[T any](c *call, v *T) (body []byte, err error) {
	defer recovered(&err)
	if body, err = c.cfg.codec.Encode(v, c.associatedData()); err != nil {
		return nil, err
	}
	if len(body) > c.cfg.maxResult {
		return nil, errTooLarge
	}
	if interfaces.In(reflect.TypeFor[T]()) {
		var decoded T
		if err := c.cfg.codec.Decode(body, c.cfg.codec.Version(), &decoded, c.associatedData()); err != nil {
			return nil, err
		}
		*v = decoded
	}
	if body == nil {
		body = []byte{} // nil means that nothing was kept
	}
	return body, nil
}

func decode[T any](c *call, r Response, v *T) error {
	var decoded T
	err := func() (err error) {
		defer recovered(&err)
		if r.Codec != c.cfg.codec.Name() {
			return fmt.Errorf("this call's codec is %q", c.cfg.codec.Name())
		}
		return c.cfg.codec.Decode(r.Body, r.CodecVersion, &decoded, c.associatedData())
	}()
	if err != nil {
		return &DecodeError{Codec: r.Codec, Version: r.CodecVersion, Err: err}
	}
	*v = decoded
	return nil
}

// recovered turns a panic of a codec, or of the methods of what it encodes, into
// an error: fn has run, so its outcome must still be settled. The error's text
// leaves out what was panicked with, which may quote a value.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = &panicError{p}
	}
}

type panicError struct{ value any }

func (*panicError) Error() string { return "a codec, or a method that it called, panicked" }

func (e *panicError) Unwrap() error {
	err, _ := e.value.(error)
	return err
}

// associatedData binds a sealed value to its record: the parts of the key, each
// behind its length.
func (c *call) associatedData() []byte {
	b := c.identity[:0]
	for _, part := range [...]string{c.key.User, c.key.Scope, c.key.Key} {
		b = binary.AppendUvarint(b, uint64(len(part)))
		b = append(b, part...)
	}
	return b
}

var interfaces = within.Finder{Wanted: func(t reflect.Type) bool { return t.Kind() == reflect.Interface }}
