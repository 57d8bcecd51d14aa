package idemgrpc_test

import (
	"context"
	"regexp"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/idem-go/idem/idemgrpc"
	"github.com/idem-go/idem/idemgrpc/internal/testpb"
)

// sentKeys runs a call through the client interceptor and returns the keys that
// it sends.
func sentKeys(t *testing.T, ctx context.Context, method string, req proto.Message, opts ...idemgrpc.ClientOption) (md []string, field string) {
	t.Helper()
	err := idemgrpc.UnaryClientInterceptor(opts...)(ctx, method, req, nil, nil,
		func(ctx context.Context, _ string, req, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
			out, _ := metadata.FromOutgoingContext(ctx)
			md = out.Get(idemgrpc.KeyMetadata)
			if r, ok := req.(interface{ GetRequestId() string }); ok {
				field = r.GetRequestId()
			}
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	return md, field
}

var uuid4 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

func TestClientSetsAKeyOfItsOwnPerCall(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 100 {
		md, field := sentKeys(t, t.Context(), testpb.Payments_Charge_FullMethodName, &testpb.ChargeRequest{})
		if len(md) != 1 || !uuid4.MatchString(md[0]) || field != "" || seen[md[0]] {
			t.Fatalf("sent %q in metadata, %q in the field", md, field)
		}
		seen[md[0]] = true
	}
}

func TestClientKeepsAnExistingKey(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		ctx   context.Context
		req   proto.Message
		md    []string
		field string
	}{
		"metadata":        {keyed(t, "mine"), &testpb.ChargeRequest{}, []string{"mine"}, ""},
		"binary metadata": {metadata.AppendToOutgoingContext(t.Context(), "Idempotency-Key-Bin", "ключ"), &testpb.ChargeRequest{}, nil, ""},
		"field":           {t.Context(), &testpb.ChargeRequest{RequestId: "mine"}, nil, "mine"},
		"empty field":     {t.Context(), &testpb.CancelRequest{RequestId: proto.String("")}, nil, ""},
		"empty metadata":  {keyed(t, ""), &testpb.ChargeRequest{}, []string{""}, ""},
	} {
		for _, opts := range [][]idemgrpc.ClientOption{nil, {idemgrpc.InRequest()}} {
			md, field := sentKeys(t, tc.ctx, "/x/y", tc.req, opts...)
			if len(md) != len(tc.md) || len(md) > 0 && md[0] != tc.md[0] || field != tc.field {
				t.Errorf("%s: sent %q in metadata, %q in the field", name, md, field)
			}
		}
	}
}

func TestClientPutsTheKeyIntoACopyOfTheRequest(t *testing.T) {
	t.Parallel()
	for _, req := range []proto.Message{&testpb.ChargeRequest{Account: "a"}, &testpb.CancelRequest{ChargeId: "c"}} {
		before := proto.Clone(req)
		md, field := sentKeys(t, t.Context(), "/x/y", req, idemgrpc.InRequest())
		if len(md) != 0 || !uuid4.MatchString(field) {
			t.Errorf("sent %q in metadata, %q in the field", md, field)
		}
		wantEqual(t, req, before)
	}
	if md, _ := sentKeys(t, t.Context(), "/x/y", &testpb.RefundRequest{}, idemgrpc.InRequest()); len(md) != 1 {
		t.Errorf("a request without the field has %q in its metadata", md)
	}
}

func TestClientLeavesOtherMethodsAlone(t *testing.T) {
	t.Parallel()
	only := idemgrpc.ForMethods("/x/a", "/x/b")
	for method, want := range map[string]int{"/x/a": 1, "/x/b": 1, "/x/c": 0} {
		if md, _ := sentKeys(t, t.Context(), method, &testpb.RefundRequest{}, only); len(md) != want {
			t.Errorf("%s was sent with %q", method, md)
		}
	}
}

func TestWithKeyReplaces(t *testing.T) {
	t.Parallel()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "idempotency-key", "old", "idempotency-key-bin", "old", "other", "kept")
	md, _ := metadata.FromOutgoingContext(idemgrpc.WithKey(ctx, "new"))
	if len(md.Get("idempotency-key")) != 1 || md.Get("idempotency-key")[0] != "new" || len(md.Get("idempotency-key-bin")) != 0 || len(md.Get("other")) != 1 {
		t.Errorf("got %v", md)
	}
	before, _ := metadata.FromOutgoingContext(ctx)
	if before.Get("idempotency-key")[0] != "old" {
		t.Error("the caller's metadata was changed")
	}
}

func TestClientAndServerAgree(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]idemgrpc.ClientOption{"in metadata": nil, "in the request": {idemgrpc.InRequest()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			client := w.start(t, grpc.WithUnaryInterceptor(idemgrpc.UnaryClientInterceptor(opts...)))
			for range 2 { // two calls, not one that is repeated
				if _, err := client.Charge(t.Context(), &testpb.ChargeRequest{}); err != nil {
					t.Fatal(err)
				}
				if _, err := client.Refund(t.Context(), &testpb.RefundRequest{}); err != nil {
					t.Fatal(err)
				}
			}
			w.service.wantRuns(t, 4)
		})
	}
}
