package idemgrpc_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/idem-go/idem/idemgrpc"
	"github.com/idem-go/idem/idemgrpc/internal/testpb"
)

// full returns a message that has something in every field.
func full() *testpb.ChargeRequest {
	m := &testpb.ChargeRequest{
		RequestId: "k", Account: "acc", Amount: -5, Priority: proto.Int32(0), Rate: 0.1,
		Labels: map[string]string{}, BySlot: map[int32]*testpb.Line{},
		Lines:  []*testpb.Line{{Sku: "a", Count: 1}, {}},
		Source: &testpb.ChargeRequest_Card{Card: "4242"},
		Blob:   []byte{0, 1, 0xff}, Codes: []int32{-1, 0, 1},
		Parent: &testpb.ChargeRequest{RequestId: "not the key", Rate: math.NaN()},
		Share:  float32(math.Copysign(0, -1)), Kind: testpb.Kind_KIND_ONCE,
		F32: 1, S32: -1, F64: 1 << 40, S64: -1 << 40, U64: math.MaxUint64, Flag: true,
	}
	for i := range 20 {
		m.Labels[fmt.Sprint("label ", i)] = fmt.Sprint(i)
		m.BySlot[int32(i)] = &testpb.Line{Sku: fmt.Sprint(i)}
	}
	m.ProtoReflect().SetUnknown(slice(unknown(1000, "x"), unknown(1001, "y")))
	return m
}

func unknown(number protowire.Number, v string) []byte {
	return protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), v)
}

func slice(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// golden is what every build has to compute, for as long as records last.
const golden = "893ffa5fce6c325fcbd74f359225ba4a630da7ea87ad4481dd2517b2cf306ae3"

func TestPayloadIsTheSameInEveryRunAndBuild(t *testing.T) {
	t.Parallel()
	for range 1000 {
		sum := sha256.Sum256(idemgrpc.Payload(full(), "request_id"))
		if got := hex.EncodeToString(sum[:]); got != golden {
			t.Fatalf("SHA-256 of the payload is %s, want %s", got, golden)
		}
	}
}

func TestPayloadLayout(t *testing.T) {
	t.Parallel()
	m := &testpb.ChargeRequest{Account: "a", Amount: 300, Labels: map[string]string{"y": "2", "x": ""}, Codes: []int32{-1, 1}}
	want := "idemgrpc/1 idem.test.v1.ChargeRequest\n" +
		"\x12\x01a" + "\x18\xac\x02" + "\x22\x05\x0a\x01x\x12\x00" + "\x22\x06\x0a\x01y\x12\x012" + "\x62\x02\x01\x02"
	if diff := cmp.Diff(want, string(idemgrpc.Payload(m))); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestPayloadTellsMessagesApart(t *testing.T) {
	t.Parallel()
	type pair struct {
		a, b proto.Message
		same bool
	}
	change := func(f func(*testpb.ChargeRequest)) proto.Message { m := full(); f(m); return m }
	anyOf := func(b []byte) *anypb.Any {
		return &anypb.Any{TypeUrl: "type.googleapis.com/idem.test.v1.Receipt", Value: b}
	}
	label := func(k string) []byte {
		entry := slice(unknown(1, k), unknown(2, "v"))
		return protowire.AppendBytes(protowire.AppendTag(nil, 3, protowire.BytesType), entry)
	}
	for name, p := range map[string]pair{
		"unknown fields in another order": {full(), change(func(m *testpb.ChargeRequest) {
			m.ProtoReflect().SetUnknown(slice(unknown(1001, "y"), unknown(1000, "x")))
		}), true},
		"a changed unknown field": {full(), change(func(m *testpb.ChargeRequest) {
			m.ProtoReflect().SetUnknown(slice(unknown(1000, "x"), unknown(1001, "z")))
		}), false},
		"an unknown field less": {full(), change(func(m *testpb.ChargeRequest) { m.ProtoReflect().SetUnknown(unknown(1000, "x")) }), false},
		"one unknown list in another order": {
			change(func(m *testpb.ChargeRequest) {
				m.ProtoReflect().SetUnknown(slice(unknown(1000, "x"), unknown(1000, "y")))
			}),
			change(func(m *testpb.ChargeRequest) {
				m.ProtoReflect().SetUnknown(slice(unknown(1000, "y"), unknown(1000, "x")))
			}), false},
		"an unknown field within": {full(), change(func(m *testpb.ChargeRequest) { m.Lines[0].ProtoReflect().SetUnknown(unknown(9, "x")) }), false},
		"set to default or unset": {full(), change(func(m *testpb.ChargeRequest) { m.Priority = nil }), false},
		"empty or absent message": {full(), change(func(m *testpb.ChargeRequest) { m.Lines = m.Lines[:1] }), false},
		"another of the oneof":    {full(), change(func(m *testpb.ChargeRequest) { m.Source = &testpb.ChargeRequest_Iban{Iban: "4242"} }), false},
		"empty oneof or none":     {&testpb.ChargeRequest{Source: &testpb.ChargeRequest_Card{}}, &testpb.ChargeRequest{}, false},
		"negative zero":           {full(), change(func(m *testpb.ChargeRequest) { m.Share = 0 }), false},
		"another NaN": {full(), change(func(m *testpb.ChargeRequest) {
			m.Parent.Rate = math.Float64frombits(math.Float64bits(math.NaN()) ^ 2)
		}), false},
		"list order":            {full(), change(func(m *testpb.ChargeRequest) { m.Codes[0], m.Codes[1] = m.Codes[1], m.Codes[0] }), false},
		"a map's value":         {full(), change(func(m *testpb.ChargeRequest) { m.Labels["label 3"] = "4" }), false},
		"request_id":            {full(), change(func(m *testpb.ChargeRequest) { m.RequestId = "other" }), true},
		"request_id of a part":  {full(), change(func(m *testpb.ChargeRequest) { m.Parent.RequestId = "other" }), false},
		"nil or empty map":      {&testpb.ChargeRequest{}, &testpb.ChargeRequest{Labels: map[string]string{}}, true},
		"another type":          {&testpb.RefundRequest{}, &testpb.CancelRequest{}, false},
		"Any, map order":        {anyOf(slice(label("a"), label("b"))), anyOf(slice(label("b"), label("a"))), true},
		"Any, another value":    {anyOf(label("a")), anyOf(label("b")), false},
		"Any, another type":     {anyOf(nil), &anypb.Any{TypeUrl: "type.googleapis.com/idem.test.v1.Line"}, false},
		"Any of no known type":  {&anypb.Any{TypeUrl: "x/y", Value: []byte{1}}, &anypb.Any{TypeUrl: "x/y", Value: []byte{2}}, false},
		"Any that does not fit": {anyOf([]byte{0xff}), anyOf([]byte{0xfe}), false},
		"well-known types":      {&timestamppb.Timestamp{Seconds: 1}, &timestamppb.Timestamp{Nanos: 1}, false},
	} {
		same := bytes.Equal(idemgrpc.Payload(p.a, "request_id"), idemgrpc.Payload(p.b, "request_id"))
		if same != p.same {
			t.Errorf("%s: same %t, want %t", name, same, p.same)
		}
	}
}

// without returns the descriptor of a message as an older build has it: without
// some fields.
func without(t *testing.T, m proto.Message, fields ...string) protoreflect.MessageDescriptor {
	t.Helper()
	file := protodesc.ToFileDescriptorProto(m.ProtoReflect().Descriptor().ParentFile())
	for _, d := range file.GetMessageType() {
		if d.GetName() != string(m.ProtoReflect().Descriptor().Name()) {
			continue
		}
		var left []*descriptorpb.FieldDescriptorProto
		for _, f := range d.GetField() {
			if !slices.Contains(fields, f.GetName()) {
				left = append(left, f)
			}
		}
		d.Field = left
	}
	fd, err := protodesc.NewFile(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	return fd.Messages().ByName(m.ProtoReflect().Descriptor().Name())
}

// A client is ahead of a server that does not know its fields yet. The retry
// goes to one that does.
func TestPayloadDoesNotChangeWhenAFieldBecomesKnown(t *testing.T) {
	t.Parallel()
	m := full()
	for k := range m.Labels {
		if k != "label 0" {
			delete(m.Labels, k) // several entries have no order while they are unknown
		}
	}
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	old := dynamicpb.NewMessage(without(t, m, "account", "amount", "labels", "rate", "lines", "blob", "codes", "parent", "share", "kind", "f64", "u64"))
	if err := proto.Unmarshal(data, old); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(idemgrpc.Payload(m, "request_id"), idemgrpc.Payload(old, "request_id")); diff != "" {
		t.Errorf("(-new server +old server)\n%s", diff)
	}
}

// Messages that are nested as deep as a parser lets them must not cost more than
// their size, or one small request could occupy a server for long.
func TestPayloadOfDeepMessages(t *testing.T) {
	t.Parallel()
	m := &testpb.ChargeRequest{Blob: make([]byte, 1<<20)}
	for range 5000 {
		m = &testpb.ChargeRequest{Parent: m}
	}
	if n := len(idemgrpc.Payload(m)); n < 1<<20 || n > 1<<20+50_000 {
		t.Errorf("payload of %d bytes", n)
	}
	nested := &anypb.Any{}
	for range 500 {
		a, err := anypb.New(nested)
		if err != nil {
			t.Fatal(err)
		}
		nested = a
	}
	idemgrpc.Payload(nested)
}

func TestChangedUnknownFieldIsAMismatch(t *testing.T) {
	t.Parallel()
	w := newWorld()
	client := w.start(t)
	req := &testpb.ChargeRequest{Account: "a"}
	req.ProtoReflect().SetUnknown(unknown(1000, "x"))
	if _, err := client.Charge(keyed(t, "k"), req); err != nil {
		t.Fatal(err)
	}
	req.ProtoReflect().SetUnknown(unknown(1000, "y"))
	_, err := client.Charge(keyed(t, "k"), req)
	wantCode(t, err, codes.FailedPrecondition, idemgrpc.ReasonReused)
	w.service.wantRuns(t, 1)
}

// The payload is the message on the wire, so reading it gives the message back:
// no two different messages have one payload.
func FuzzPayload(f *testing.F) {
	data, err := proto.Marshal(full())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(unknown(2, "account"))
	f.Add([]byte("\x18\x05\x10\x05\x1b\x1c"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, back := new(testpb.ChargeRequest), new(testpb.ChargeRequest)
		if proto.Unmarshal(data, m) != nil {
			return // not a message
		}
		p := idemgrpc.Payload(m)
		_, wire, _ := bytes.Cut(p, []byte("\n"))
		if err := proto.Unmarshal(wire, back); err != nil {
			t.Fatalf("the payload is not the message on the wire: %v", err)
		}
		if again := idemgrpc.Payload(back); !bytes.Equal(p, again) {
			t.Errorf("payload %x of a message, %x after it was read", p, again)
		}
	})
}
