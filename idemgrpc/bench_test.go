package idemgrpc_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemgrpc"
	"github.com/idem-go/idem/idemgrpc/internal/testpb"
	"github.com/idem-go/idem/memstore"
)

// unary calls the server interceptor as gRPC would.
func unary(t testing.TB, once *idemgrpc.Interceptor, method string, req any, run func()) error {
	t.Helper()
	_, err := once.Unary(t.Context(), req, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) {
		run()
		return &testpb.Receipt{Id: "r"}, nil
	})
	return err
}

func benchRequest() *testpb.ChargeRequest {
	return &testpb.ChargeRequest{
		Account: "acc_1", Amount: 1299, Labels: map[string]string{"order": "1", "shop": "7"},
		Lines: []*testpb.Line{{Sku: "a", Count: 1}, {Sku: "b", Count: 2}},
	}
}

// BenchmarkInterceptor is the interceptor's own cost, without a connection.
func BenchmarkInterceptor(b *testing.B) {
	once, err := idemgrpc.New(memstore.New(memstore.MaxRecords(0)), userFrom,
		idemgrpc.Methods{testpb.Payments_Charge_FullMethodName: nil})
	if err != nil {
		b.Fatal(err)
	}
	req := benchRequest()
	info := &grpc.UnaryServerInfo{FullMethod: testpb.Payments_Charge_FullMethodName}
	handler := func(context.Context, any) (any, error) { return &testpb.Receipt{Id: "r"}, nil }
	calls := func(interceptor grpc.UnaryServerInterceptor, key func() string) func(*testing.B) {
		return func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ctx := metadata.NewIncomingContext(b.Context(), metadata.MD{idemgrpc.KeyMetadata: {key()}})
				if _, err := interceptor(ctx, req, info, handler); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	b.Run("bare", calls(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
		return h(ctx, req)
	}, idemgrpc.NewKey))
	b.Run("first run", calls(once.Unary, idemgrpc.NewKey))
	b.Run("replay", calls(once.Unary, func() string { return "k" }))
}

// BenchmarkCall is whole calls over a loopback connection.
func BenchmarkCall(b *testing.B) {
	w := newWorld()
	w.store = &spy{Store: memstore.New(memstore.MaxRecords(0))}
	w.methods = idemgrpc.Methods{testpb.Payments_Charge_FullMethodName: nil}
	client := w.start(b)
	b.Run("bare", func(b *testing.B) {
		for b.Loop() {
			if _, err := client.Refund(b.Context(), &testpb.RefundRequest{ChargeId: "c"}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("first run", func(b *testing.B) {
		for b.Loop() {
			if _, err := client.Charge(keyed(b, idemgrpc.NewKey()), benchRequest()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("replay", func(b *testing.B) {
		for b.Loop() {
			if _, err := client.Charge(keyed(b, "k"), benchRequest()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkPayload(b *testing.B) {
	for name, m := range map[string]*testpb.ChargeRequest{"small": benchRequest(), "large": full()} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := idem.PayloadHash(idemgrpc.Payload(m)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
