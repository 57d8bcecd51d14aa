package idemgrpc_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemgrpc"
	"github.com/idem-go/idem/idemgrpc/internal/testpb"
	"github.com/idem-go/idem/memstore"
)

func encode(t *testing.T, v any) []byte {
	t.Helper()
	data, err := idemgrpc.Codec{}.Encode(v, nil)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestCodecKeepsMessages(t *testing.T) {
	t.Parallel()
	want := &testpb.Receipt{Id: "r", Amount: 3, Labels: map[string]string{"a": "1", "b": "2"}}
	want.ProtoReflect().SetUnknown(unknown(1000, "from the future"))
	data := encode(t, &want)

	var typed *testpb.Receipt
	if err := (idemgrpc.Codec{}).Decode(data, 1, &typed, nil); err != nil {
		t.Fatal(err)
	}
	wantEqual(t, typed, want)

	var message proto.Message
	if err := (idemgrpc.Codec{}).Decode(data, 1, &message, nil); err != nil {
		t.Fatal(err)
	}
	wantEqual(t, message, want)

	var packed *anypb.Any
	if err := (idemgrpc.Codec{}).Decode(data, 1, &packed, nil); err != nil {
		t.Fatal(err)
	}
	if string(encode(t, &packed)) == "" || !packed.MessageIs(want) {
		t.Errorf("got %v", packed)
	}

	var empty *testpb.Receipt
	if err := (idemgrpc.Codec{}).Decode(encode(t, &empty), 1, &typed, nil); err != nil || typed != nil {
		t.Errorf("nil came back as %v, %v", typed, err)
	}
}

func TestCodecRefuses(t *testing.T) {
	t.Parallel()
	receipt, text, untyped := &testpb.Receipt{Id: "secret"}, "text", &anypb.Any{}
	invalid := &testpb.Receipt{Id: "\xffsecret"}
	for name, v := range map[string]any{
		"no pointer to a message pointer": receipt,
		"a value":                         *new(int),
		"nothing":                         nil,
		"another type":                    &text,
		"a string without UTF-8":          &invalid,
		"an Any without a type":           &untyped,
	} {
		if _, err := (idemgrpc.Codec{}).Encode(v, nil); err == nil {
			t.Errorf("encodes %s", name)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error quotes the value: %v", name, err)
		}
	}
	data := encode(t, &receipt)
	var line *testpb.Line
	var number *int
	for name, err := range map[string]error{
		"another message's type": idemgrpc.Codec{}.Decode(data, 1, &line, nil),
		"another version":        idemgrpc.Codec{}.Decode(data, 2, &receipt, nil),
		"no Any":                 idemgrpc.Codec{}.Decode([]byte{0xff}, 1, &receipt, nil),
		"half an Any":            idemgrpc.Codec{}.Decode(data[:len(data)-3], 1, &receipt, nil),
		"no message type":        idemgrpc.Codec{}.Decode(data, 1, &number, nil),
		"no pointer":             idemgrpc.Codec{}.Decode(data, 1, nil, nil),
	} {
		if err == nil {
			t.Errorf("decodes %s", name)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error quotes the value: %v", name, err)
		}
	}
}

// Programs that call Do themselves, a worker for example, keep messages too.
func TestDoWithMessages(t *testing.T) {
	t.Parallel()
	store, key := memstore.New(), idem.Key{User: idem.NoUser, Scope: "s", Key: "k"}
	runs := 0
	for i := range 2 {
		res, err := idem.Do(t.Context(), store, key, idemgrpc.Payload(full()), func(context.Context) (*testpb.Receipt, idem.Status, error) {
			runs++
			return &testpb.Receipt{Id: "r"}, 0, nil
		}, idem.WithCodec(idemgrpc.Codec{}))
		if err != nil || res.Replayed != (i > 0) {
			t.Fatal(res, err)
		}
		wantEqual(t, res.Value, &testpb.Receipt{Id: "r"})
	}
	if runs != 1 {
		t.Errorf("%d runs", runs)
	}
}

func FuzzCodecDecode(f *testing.F) {
	receipt := &testpb.Receipt{Id: "r"}
	data, err := idemgrpc.Codec{}.Encode(&receipt, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		var typed *testpb.Receipt
		var message proto.Message
		_ = idemgrpc.Codec{}.Decode(data, 1, &typed, nil)
		if err := (idemgrpc.Codec{}).Decode(data, 1, &message, nil); err == nil && message != nil {
			if _, err := (idemgrpc.Codec{}).Encode(&message, nil); err != nil {
				t.Errorf("what was decoded does not encode: %v", err)
			}
		}
	})
}
