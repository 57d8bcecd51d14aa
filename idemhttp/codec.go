package idemhttp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/idem-go/idem/codec"
)

// Codec encodes recorded answers: the body as it is, without base64, followed
// by the status and the headers. It is what [Middleware] records with. To
// encrypt answers at rest, wrap it and pass the result on:
//
//	sealed, err := codec.NewSealed(idemhttp.Codec{}, "2026-01", keys)
//	idemhttp.Middleware(store, userOf, idemhttp.WithDo(idem.WithCodec(sealed)))
//
// Any other codec refuses answers, which then are not kept.
type Codec struct{}

var _ codec.Codec = Codec{}

// Name returns "http".
func (Codec) Name() string { return "http" }

// Version returns 1.
func (Codec) Version() int { return 1 }

var (
	errNotKept  = errors.New("idemhttp: the answer is too large, was vetoed, or is not one that can be recorded")
	errNotHTTP  = errors.New("idemhttp: Codec is for a *Response only")
	errDamaged  = errors.New("idemhttp: the stored answer is damaged")
	errNoStatus = errors.New("idemhttp: the answer has no status between 200 and 599")
)

// Encode encodes a *Response. The associated data is ignored.
func (Codec) Encode(v any, _ []byte) ([]byte, error) {
	resp, ok := v.(*Response)
	switch {
	case !ok:
		return nil, errNotHTTP
	case resp.notKept:
		return nil, errNotKept
	case resp.Status < 200 || resp.Status > 599: // a handler that panicked has none
		return nil, errNoStatus
	case resp.encoded != nil:
		return resp.encoded, nil
	}
	return slices.Concat(resp.Body, encodeHead(resp)), nil
}

// encodeHead encodes the status and the headers, and their length:
//
//	head   = status { name count { value } }
//	name   = value = length bytes
//	length = count = status = uvarint
//
// The head is behind the body so that the recorder can append it to its buffer.
func encodeHead(resp *Response) []byte {
	b := binary.AppendUvarint(make([]byte, 0, headSize), uint64(resp.Status))
	for _, name := range slices.Sorted(maps.Keys(resp.Header)) {
		b = appendString(b, name)
		b = binary.AppendUvarint(b, uint64(len(resp.Header[name])))
		for _, value := range resp.Header[name] {
			b = appendString(b, value)
		}
	}
	return binary.BigEndian.AppendUint32(b, uint32(len(b)))
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Decode decodes into a *Response.
func (Codec) Decode(data []byte, version int, v any, _ []byte) error {
	resp, ok := v.(*Response)
	if !ok {
		return errNotHTTP
	}
	if version != 1 {
		return fmt.Errorf("idemhttp: answers of version %d are unknown", version)
	}
	const tail = 4
	if len(data) < tail {
		return errDamaged
	}
	rest, size := data[:len(data)-tail], binary.BigEndian.Uint32(data[len(data)-tail:])
	if uint64(size) > uint64(len(rest)) {
		return errDamaged
	}
	body, head := rest[:len(rest)-int(size)], reader{data: rest[len(rest)-int(size):]}
	decoded := Response{Status: int(head.uvarint(599)), Header: http.Header{}}
	for len(head.data) > 0 && !head.damaged {
		name := head.string()
		values := make([]string, 0, head.uvarint(uint64(len(head.data))))
		for range cap(values) {
			values = append(values, head.string())
		}
		decoded.Header[name] = values
	}
	if head.damaged || decoded.Status < 200 {
		return errDamaged
	}
	decoded.Body = slices.Clone(body)
	*resp = decoded
	return nil
}

// reader reads the head of a stored answer, which may hold anything.
type reader struct {
	data    []byte
	damaged bool
}

func (r *reader) uvarint(limit uint64) uint64 {
	n, size := binary.Uvarint(r.data)
	if size <= 0 || n > limit {
		r.data, r.damaged = nil, true
		return 0
	}
	r.data = r.data[size:]
	return n
}

func (r *reader) string() string {
	n := r.uvarint(uint64(len(r.data)))
	if n > uint64(len(r.data)) {
		r.data, r.damaged = nil, true
		return ""
	}
	s := string(r.data[:n])
	r.data = r.data[n:]
	return s
}
