package idemgrpc_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemgrpc"
	"github.com/idem-go/idem/idemgrpc/internal/testpb"
	"github.com/idem-go/idem/memstore"
)

// cancelRequest has a field for the key that knows whether it is set.
func cancelRequest(key ...string) *testpb.CancelRequest {
	r := &testpb.CancelRequest{ChargeId: "c"}
	if len(key) > 0 {
		r.RequestId = proto.String(key[0])
	}
	return r
}

func TestKeyIsFoundOrRefused(t *testing.T) {
	t.Parallel()
	const ok = codes.OK
	for name, tc := range map[string]struct {
		md       []string
		req      *testpb.CancelRequest
		required codes.Code // without OptionalKey
		optional codes.Code // with it
		runs     int        // of the handler in both worlds, two calls each
	}{
		"in metadata":              {[]string{"idempotency-key", "k"}, cancelRequest(), ok, ok, 2},
		"in binary metadata":       {[]string{"idempotency-key-bin", "ключ"}, cancelRequest(), ok, ok, 2},
		"in the field":             {nil, cancelRequest("k"), ok, ok, 2},
		"in the field, Unicode":    {nil, cancelRequest("ключ"), ok, ok, 2},
		"in both, the same":        {[]string{"idempotency-key", "k"}, cancelRequest("k"), ok, ok, 2},
		"in both, spaces differ":   {[]string{"idempotency-key", "k"}, cancelRequest(" k "), ok, ok, 2},
		"nowhere":                  {nil, cancelRequest(), codes.InvalidArgument, ok, 2},
		"in both, different":       {[]string{"idempotency-key", "k"}, cancelRequest("l"), codes.InvalidArgument, codes.InvalidArgument, 0},
		"doubled":                  {[]string{"idempotency-key", "k", "idempotency-key", "k"}, cancelRequest(), codes.InvalidArgument, codes.InvalidArgument, 0},
		"doubled as binary":        {[]string{"idempotency-key", "k", "idempotency-key-bin", "k"}, cancelRequest(), codes.InvalidArgument, codes.InvalidArgument, 0},
		"empty metadata":           {[]string{"idempotency-key", ""}, cancelRequest(), codes.InvalidArgument, codes.InvalidArgument, 0},
		"blank metadata":           {[]string{"idempotency-key", "  "}, cancelRequest(), codes.InvalidArgument, codes.InvalidArgument, 0},
		"empty metadata and field": {[]string{"idempotency-key", ""}, cancelRequest("k"), codes.InvalidArgument, codes.InvalidArgument, 0},
		"empty field":              {nil, cancelRequest(""), codes.InvalidArgument, codes.InvalidArgument, 0},
		"too long":                 {[]string{"idempotency-key", strings.Repeat("k", 256)}, cancelRequest(), codes.InvalidArgument, codes.InvalidArgument, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runs := 0
			for optional, want := range map[bool]codes.Code{false: tc.required, true: tc.optional} {
				var opts []idemgrpc.Option
				if optional {
					opts = append(opts, idemgrpc.OptionalKey())
				}
				w := newWorld(opts...)
				client := w.start(t)
				ctx := metadata.AppendToOutgoingContext(t.Context(), tc.md...)
				for range 2 {
					_, err := client.Cancel(ctx, tc.req)
					if got := status.Code(err); got != want {
						t.Errorf("optional %t: %v, want %v", optional, err, want)
					}
					if want == codes.InvalidArgument {
						wantBadRequest(t, err)
					}
				}
				runs += int(w.service.runs.Load())
			}
			if runs != tc.runs {
				t.Errorf("the handler ran %d times in all, want %d", runs, tc.runs)
			}
		})
	}
}

func wantBadRequest(t *testing.T, err error) {
	t.Helper()
	for _, d := range status.Convert(err).Details() {
		if b, ok := d.(*errdetails.BadRequest); ok && len(b.GetFieldViolations()) == 1 && b.GetFieldViolations()[0].GetField() != "" {
			return
		}
	}
	t.Errorf("no BadRequest that names a field in %v", status.Convert(err).Proto())
}

func TestB95MetadataIsFoundInAnyCase(t *testing.T) {
	t.Parallel()
	w := newWorld()
	client := w.start(t)
	for _, name := range []string{"idempotency-key", "IDEMPOTENCY-KEY", "Idempotency-Key"} {
		if _, err := client.Refund(metadata.AppendToOutgoingContext(t.Context(), name, "k"), &testpb.RefundRequest{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.service.wantRuns(t, 1)

	// A map that did not come over the wire, and so was not lower-cased there.
	once, err := idemgrpc.New(memstore.New(), userFrom, w.methods)
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, name := range []string{"IDEMPOTENCY-KEY", "Idempotency-Key"} {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.MD{name: {"k"}})
		_, err := once.Unary(ctx, &testpb.RefundRequest{}, &grpc.UnaryServerInfo{FullMethod: testpb.Payments_Refund_FullMethodName},
			func(context.Context, any) (any, error) { ran++; return &testpb.Receipt{}, nil })
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if ran != 1 {
		t.Errorf("the handler ran %d times, want 1", ran)
	}
}

func TestB97UsersDoNotMeet(t *testing.T) {
	t.Parallel()
	w := newWorld()
	client := w.start(t)
	as := func(user string) context.Context {
		return metadata.AppendToOutgoingContext(keyed(t, "k"), "user", user)
	}
	a, err := client.Charge(as("alice"), &testpb.ChargeRequest{Account: "a"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := client.Charge(as("bob"), &testpb.ChargeRequest{Account: "another payload"})
	if err != nil {
		t.Fatalf("bob learns of alice's key: %v", err)
	}
	if proto.Equal(a, b) {
		t.Error("bob got alice's answer")
	}
	w.service.wantRuns(t, 2)
}

func TestB103KeysThatStoresCannotHold(t *testing.T) {
	t.Parallel()
	w := newWorld()
	touched := false
	w.store.onClaim = func(next func() (idem.Record, error)) (idem.Record, error) { touched = true; return next() }
	client := w.start(t)
	bin := func(key string) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), idemgrpc.KeyMetadata+"-bin", key)
	}
	for name, call := range map[string]func() error{
		"NUL in the field":             func() error { _, err := client.Cancel(t.Context(), cancelRequest("a\x00b")); return err },
		"newline in the field":         func() error { _, err := client.Cancel(t.Context(), cancelRequest("a\nlevel=error")); return err },
		"lone surrogate in binary":     func() error { _, err := client.Cancel(bin("\xed\xa0\x80"), cancelRequest()); return err },
		"no UTF-8 in binary":           func() error { _, err := client.Cancel(bin("\xff"), cancelRequest()); return err },
		"control character in binary":  func() error { _, err := client.Cancel(bin("a\x1b[31m"), cancelRequest()); return err },
		"newline in binary, no field":  func() error { _, err := client.Refund(bin("a\n"), &testpb.RefundRequest{}); return err },
		"empty binary, required field": func() error { _, err := client.Cancel(bin(""), cancelRequest()); return err },
	} {
		err := call()
		wantCode(t, err, codes.InvalidArgument, idemgrpc.ReasonInvalid)
		if strings.Contains(status.Convert(err).Proto().String(), "level") {
			t.Errorf("%s: the message quotes the key", name)
		}
	}
	if touched {
		t.Error("the store was asked")
	}
	w.service.wantRuns(t, 0)
}

func TestNoPrincipal(t *testing.T) {
	t.Parallel()
	secret := errors.New("token of mallory expired")
	for name, principal := range map[string]idemgrpc.Principal{
		"error":  func(context.Context) (string, error) { return "mallory", secret },
		"empty":  func(context.Context) (string, error) { return "", nil },
		"unfit":  func(context.Context) (string, error) { return strings.Repeat("m", 256), nil },
		"binary": func(context.Context) (string, error) { return "\xff", nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			once, err := idemgrpc.New(memstore.New(), principal, idemgrpc.Methods{testpb.Payments_Cancel_FullMethodName: nil})
			if err != nil {
				t.Fatal(err)
			}
			_, err = once.Unary(t.Context(), cancelRequest("k"), &grpc.UnaryServerInfo{FullMethod: testpb.Payments_Cancel_FullMethodName},
				func(context.Context, any) (any, error) { t.Error("the handler ran"); return nil, nil })
			wantCode(t, err, codes.Unauthenticated, idemgrpc.ReasonNoPrincipal)
			if strings.Contains(err.Error(), "mallory") {
				t.Errorf("the message tells too much: %v", err)
			}
		})
	}
}

func TestKeyFieldOption(t *testing.T) {
	t.Parallel()
	w := newWorld(idemgrpc.WithKeyField("charge_id"))
	client := w.start(t)
	for _, r := range []*testpb.CancelRequest{{ChargeId: "k"}, {ChargeId: "k"}} {
		if _, err := client.Cancel(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	w.service.wantRuns(t, 1)

	w = newWorld(idemgrpc.WithKeyField(""))
	client = w.start(t)
	_, err := client.Cancel(t.Context(), cancelRequest("not a key"))
	wantCode(t, err, codes.InvalidArgument, idemgrpc.ReasonMissing)
	if _, err := client.Cancel(keyed(t, "k"), cancelRequest("one")); err != nil {
		t.Fatal(err)
	}
	_, err = client.Cancel(keyed(t, "k"), cancelRequest("two"))
	wantCode(t, err, codes.FailedPrecondition, idemgrpc.ReasonReused)
}

func TestKeyMovesBetweenFieldAndMetadata(t *testing.T) {
	t.Parallel()
	w := newWorld()
	client := w.start(t)
	if _, err := client.Cancel(keyed(t, "k"), cancelRequest()); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Cancel(t.Context(), cancelRequest("k")); err != nil {
		t.Errorf("the same request with its key in the field: %v", err)
	}
	w.service.wantRuns(t, 1)
}
