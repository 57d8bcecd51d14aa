package idemgrpc

import (
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Payload returns the form in which a message is compared with earlier ones, as
// the payload of [github.com/idem-go/idem.Do]: a version, the message's full name,
// and its fields in wire format and in one fixed order. Two messages have the
// same form if and only if they say the same, on every build of the program:
//
//   - fields are in order of their numbers, map entries in order of their keys;
//   - a field that is not set differs from one that is set to its default, if
//     the field knows the difference;
//   - floats are compared by their bits;
//   - unknown fields count, in any order between different fields, so a field
//     is compared before and after a server learns its name: a client may be
//     ahead of some of its servers;
//   - a message in an Any is compared as a message if its type is known, in an
//     Any within that by its bytes.
//
// proto.Marshal promises none of this, not even with Deterministic, and protojson
// neither. Fields of the message itself whose names are in without are left out;
// the server interceptor leaves out the field that holds the key.
func Payload(m proto.Message, without ...protoreflect.Name) []byte {
	var skip []protoreflect.FieldDescriptor
	for _, name := range without {
		skip = append(skip, m.ProtoReflect().Descriptor().Fields().ByName(name))
	}
	return payload(m.ProtoReflect(), skip...)
}

// payload is never to change what it returns for a message: records last longer
// than releases. Another form needs another version.
func payload(m protoreflect.Message, without ...protoreflect.FieldDescriptor) []byte {
	w := &wire{without: without}
	w.message(m)
	w.reversed(func(b []byte) []byte {
		return append(b, "idemgrpc/1 "+string(m.Descriptor().FullName())+"\n"...)
	})
	slices.Reverse(w.b)
	return w.b
}

// A wire holds wire format that is written from its end, back to front, so that
// the length of a message is known when it is written before it. That makes the
// time linear, however deep messages are nested.
type wire struct {
	b       []byte
	without []protoreflect.FieldDescriptor
	inAny   bool
}

// A field is a known one with its value, or an unknown one as it came.
type field struct {
	number protowire.Number
	fd     protoreflect.FieldDescriptor
	value  protoreflect.Value
	raw    []byte
}

func (w *wire) message(m protoreflect.Message) {
	fields := make([]field, 0, 8)
	without := w.without
	w.without = nil // the messages within are whole
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if !slices.Contains(without, fd) {
			fields = append(fields, field{number: fd.Number(), fd: fd, value: v})
		}
		return true
	})
	for rest := []byte(m.GetUnknown()); len(rest) > 0; {
		number, _, n := protowire.ConsumeField(rest)
		if n < 0 { // not what a parser has let through
			number, n = 0, len(rest)
		}
		fields = append(fields, field{number: number, raw: rest[:n]})
		rest = rest[n:]
	}
	slices.SortStableFunc(fields, func(a, b field) int { return int(a.number) - int(b.number) })
	inside := w.open(m)
	for _, f := range slices.Backward(fields) {
		switch {
		case f.fd == nil:
			w.reversed(func(b []byte) []byte { return append(b, f.raw...) })
		case inside != nil && f.number == anyValue:
			w.inAny = true
			w.delimited(f.number, func() { w.message(inside) })
			w.inAny = false
		default:
			w.field(f.fd, f.value)
		}
	}
}

// The fields of google.protobuf.Any.
const (
	anyName  = "google.protobuf.Any"
	anyURL   = 1
	anyValue = 2
)

// open returns the message in m if that is an Any of a known type.
func (w *wire) open(m protoreflect.Message) protoreflect.Message {
	if w.inAny || m.Descriptor().FullName() != anyName {
		return nil
	}
	fields := m.Descriptor().Fields()
	t, err := protoregistry.GlobalTypes.FindMessageByURL(m.Get(fields.ByNumber(anyURL)).String())
	if err != nil {
		return nil
	}
	inside := t.New()
	parse := proto.UnmarshalOptions{AllowPartial: true}
	if parse.Unmarshal(m.Get(fields.ByNumber(anyValue)).Bytes(), inside.Interface()) != nil {
		return nil
	}
	return inside
}

func (w *wire) field(fd protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch {
	case fd.IsMap():
		entries := v.Map()
		keys := make([]protoreflect.MapKey, 0, entries.Len())
		entries.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
			keys = append(keys, k)
			return true
		})
		slices.SortFunc(keys, func(a, b protoreflect.MapKey) int { return strings.Compare(a.String(), b.String()) })
		for _, k := range slices.Backward(keys) {
			w.delimited(fd.Number(), func() {
				w.single(2, fd.MapValue(), entries.Get(k))
				w.single(1, fd.MapKey(), k.Value())
			})
		}
	case fd.IsList() && fd.IsPacked():
		list := v.List()
		w.delimited(fd.Number(), func() {
			for i := range list.Len() {
				w.scalar(fd.Kind(), list.Get(list.Len()-1-i))
			}
		})
	case fd.IsList():
		list := v.List()
		for i := range list.Len() {
			w.single(fd.Number(), fd, list.Get(list.Len()-1-i))
		}
	default:
		w.single(fd.Number(), fd, v)
	}
}

func (w *wire) single(number protowire.Number, fd protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch fd.Kind() {
	case protoreflect.MessageKind:
		w.delimited(number, func() { w.message(v.Message()) })
	case protoreflect.GroupKind:
		w.tag(number, protowire.EndGroupType)
		w.message(v.Message())
		w.tag(number, protowire.StartGroupType)
	default:
		w.tag(number, w.scalar(fd.Kind(), v))
	}
}

// scalar writes a value and returns its type on the wire.
func (w *wire) scalar(kind protoreflect.Kind, v protoreflect.Value) protowire.Type {
	switch kind {
	case protoreflect.BoolKind:
		return w.varint(protowire.EncodeBool(v.Bool()))
	case protoreflect.EnumKind:
		return w.varint(uint64(v.Enum()))
	case protoreflect.Int32Kind, protoreflect.Int64Kind:
		return w.varint(uint64(v.Int()))
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		return w.varint(v.Uint())
	case protoreflect.Sint32Kind, protoreflect.Sint64Kind:
		return w.varint(protowire.EncodeZigZag(v.Int()))
	case protoreflect.Fixed32Kind:
		return w.fixed32(uint32(v.Uint()))
	case protoreflect.Sfixed32Kind:
		return w.fixed32(uint32(v.Int()))
	case protoreflect.FloatKind:
		return w.fixed32(math.Float32bits(float32(v.Float())))
	case protoreflect.Fixed64Kind:
		return w.fixed64(v.Uint())
	case protoreflect.Sfixed64Kind:
		return w.fixed64(uint64(v.Int()))
	case protoreflect.DoubleKind:
		return w.fixed64(math.Float64bits(v.Float()))
	case protoreflect.StringKind:
		w.reversed(func(b []byte) []byte { return protowire.AppendString(b, v.String()) })
	default: // bytes
		w.reversed(func(b []byte) []byte { return protowire.AppendBytes(b, v.Bytes()) })
	}
	return protowire.BytesType
}

// reversed writes what write appends.
func (w *wire) reversed(write func([]byte) []byte) {
	n := len(w.b)
	w.b = write(w.b)
	slices.Reverse(w.b[n:])
}

// delimited writes what write writes, behind its number and length.
func (w *wire) delimited(number protowire.Number, write func()) {
	n := len(w.b)
	write()
	w.varint(uint64(len(w.b) - n))
	w.tag(number, protowire.BytesType)
}

func (w *wire) tag(number protowire.Number, t protowire.Type) {
	w.reversed(func(b []byte) []byte { return protowire.AppendTag(b, number, t) })
}

func (w *wire) varint(v uint64) protowire.Type {
	w.reversed(func(b []byte) []byte { return protowire.AppendVarint(b, v) })
	return protowire.VarintType
}

func (w *wire) fixed32(v uint32) protowire.Type {
	w.reversed(func(b []byte) []byte { return protowire.AppendFixed32(b, v) })
	return protowire.Fixed32Type
}

func (w *wire) fixed64(v uint64) protowire.Type {
	w.reversed(func(b []byte) []byte { return protowire.AppendFixed64(b, v) })
	return protowire.Fixed64Type
}
