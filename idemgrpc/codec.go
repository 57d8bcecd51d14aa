package idemgrpc

import (
	"errors"
	"fmt"
	"reflect"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/idem-go/idem/codec"
)

// Codec keeps protocol buffers for [github.com/idem-go/idem.Do], whose T is then
// a message type such as *pb.Order, or proto.Message. It writes a
// google.protobuf.Any, so a value never decodes as a message of another type;
// an *anypb.Any is written as it is, and nil as nothing. The associated data is
// ignored. The zero value is ready to use.
//
// Fields that were added since decode to their default, and those that were
// removed are kept as unknown ones: a message can change as protocol buffers
// may. It is the default of [New].
type Codec struct{}

var _ codec.Codec = Codec{}

// Name returns "protobuf-any".
func (Codec) Name() string { return "protobuf-any" }

// Version returns 1.
func (Codec) Version() int { return 1 }

var errNotMessage = errors.New("idemgrpc: the value is not a protocol buffer")

// Encode returns an error if v does not point to a message, or to one that has
// no encoding: a string that is not UTF-8, an Any without a type.
func (Codec) Encode(v any, _ []byte) ([]byte, error) {
	p := reflect.ValueOf(v)
	if p.Kind() != reflect.Pointer || p.IsNil() {
		return nil, errNotMessage
	}
	if k := p.Elem().Kind(); k != reflect.Pointer && k != reflect.Interface {
		return nil, errNotMessage
	}
	if p.Elem().IsNil() {
		return []byte{}, nil
	}
	m, ok := p.Elem().Interface().(proto.Message)
	if !ok {
		return nil, errNotMessage
	}
	a, ok := m.(*anypb.Any)
	if !ok {
		a = new(anypb.Any)
		if err := a.MarshalFrom(m); err != nil {
			return nil, fmt.Errorf("idemgrpc: encoding %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
		}
	}
	if a.GetTypeUrl() == "" {
		return nil, errors.New("idemgrpc: an Any without a type")
	}
	return proto.Marshal(a)
}

// Decode returns an error for another version, for a message that is not of the
// type that v points to, and, if that is an interface, for one whose type is not
// linked into the program.
func (Codec) Decode(data []byte, version int, v any, _ []byte) error {
	if version != 1 {
		return fmt.Errorf("idemgrpc: version %d of the encoding is unknown", version)
	}
	p := reflect.ValueOf(v)
	if p.Kind() != reflect.Pointer || p.IsNil() {
		return errNotMessage
	}
	if len(data) == 0 {
		p.Elem().SetZero()
		return nil
	}
	a := new(anypb.Any)
	if err := proto.Unmarshal(data, a); err != nil || a.GetTypeUrl() == "" {
		return errors.New("idemgrpc: the stored value is not an Any")
	}
	m, err := open(a, p.Elem().Type())
	if err != nil {
		return err
	}
	p.Elem().Set(reflect.ValueOf(m))
	return nil
}

// open returns the message in a as a value of type t.
func open(a *anypb.Any, t reflect.Type) (proto.Message, error) {
	switch {
	case t == reflect.TypeFor[*anypb.Any]():
		return a, nil
	case t.Kind() == reflect.Pointer:
		m, ok := reflect.New(t.Elem()).Interface().(proto.Message)
		if !ok {
			return nil, errNotMessage
		}
		if !a.MessageIs(m) {
			return nil, fmt.Errorf("idemgrpc: the stored value is a %s, not a %s", a.MessageName(), m.ProtoReflect().Descriptor().FullName())
		}
		return m, a.UnmarshalTo(m)
	}
	m, err := a.UnmarshalNew()
	if err == nil && !reflect.TypeOf(m).AssignableTo(t) {
		err = errNotMessage
	}
	return m, err
}

// packed returns a message as it is recorded. One that has no encoding becomes
// an Any that Codec refuses: the work is done, so its outcome must be recorded.
func packed(v any) *anypb.Any {
	a := new(anypb.Any)
	if m := reflected(v); m != nil && a.MarshalFrom(m.Interface()) != nil {
		a.Reset()
	}
	return a
}

// statusIn returns the recorded status, or nil if a holds something else.
func statusIn(a *anypb.Any) *status.Status {
	st := new(spb.Status)
	if a.UnmarshalTo(st) != nil {
		return nil
	}
	return status.FromProto(st)
}
