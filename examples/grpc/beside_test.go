package main

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/retry"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/idem-go/idem/examples/grpc/shop"
	"github.com/idem-go/idem/idemgrpc"
	"github.com/idem-go/idem/memstore"
)

// These tests show idemgrpc beside what else servers and clients have. The order
// is the one that docs/grpc.md tells.

// shopFunc is a service that does what the test says.
type shopFunc struct {
	shop.UnimplementedShopServer
	pay func(context.Context, *shop.PayRequest) (*shop.PayResponse, error)
}

func (s shopFunc) Pay(ctx context.Context, req *shop.PayRequest) (*shop.PayResponse, error) {
	return s.pay(ctx, req)
}

func newOnce(t *testing.T, opts ...idemgrpc.Option) *idemgrpc.Interceptor {
	t.Helper()
	once, err := idemgrpc.New(memstore.New(), caller, idemgrpc.Methods{shop.Shop_Pay_FullMethodName: opts})
	if err != nil {
		t.Fatal(err)
	}
	return once
}

// serve starts a server of the service and returns its client.
func serve(t *testing.T, pay func(context.Context, *shop.PayRequest) (*shop.PayResponse, error), server []grpc.ServerOption, dial ...grpc.DialOption) shop.ShopClient {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(server...)
	shop.RegisterShopServer(s, shopFunc{pay: pay})
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	conn, err := grpc.NewClient(l.Addr().String(), append(dial, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return shop.NewShopClient(conn)
}

// Recovery is outside: the panic has passed idem, which holds the key, before it
// becomes a status. Were it inside, idem would see a passing INTERNAL and let
// half-done work run again at once.
func TestBesideRecovery(t *testing.T) {
	t.Parallel()
	runs := 0
	client := serve(t, func(context.Context, *shop.PayRequest) (*shop.PayResponse, error) {
		runs++
		panic("half done")
	}, []grpc.ServerOption{grpc.ChainUnaryInterceptor(recovery.UnaryServerInterceptor(), newOnce(t).Unary)})
	ctx := idemgrpc.WithKey(t.Context(), "k")
	if _, err := client.Pay(ctx, order(0)); status.Code(err) != codes.Unknown && status.Code(err) != codes.Internal {
		t.Errorf("the panic became %v", err)
	}
	if _, err := client.Pay(ctx, order(0)); idemgrpc.ReasonOf(err) != idemgrpc.ReasonInFlight {
		t.Errorf("after the panic: %v", err)
	}
	if runs != 1 {
		t.Errorf("the handler ran %d times", runs)
	}
}

// Logging is outside, too: it sees replays and refusals as what they are to the
// caller.
func TestBesideLogging(t *testing.T) {
	t.Parallel()
	var out lockedBuffer
	logger := slog.New(slog.NewTextHandler(&out, nil))
	log := logging.LoggerFunc(func(ctx context.Context, level logging.Level, msg string, fields ...any) {
		logger.Log(ctx, slog.Level(level), msg, fields...)
	})
	client := serve(t, func(context.Context, *shop.PayRequest) (*shop.PayResponse, error) {
		return nil, status.Error(codes.FailedPrecondition, "declined")
	}, []grpc.ServerOption{grpc.ChainUnaryInterceptor(
		logging.UnaryServerInterceptor(log, logging.WithLogOnEvents(logging.FinishCall)),
		newOnce(t).Unary,
	)})
	ctx := idemgrpc.WithKey(t.Context(), "the-key")
	for range 2 {
		if _, err := client.Pay(ctx, order(0)); status.Convert(err).Message() != "declined" {
			t.Fatal(err)
		}
	}
	if _, err := client.Pay(t.Context(), order(0)); status.Code(err) != codes.InvalidArgument {
		t.Fatal(err)
	}
	for text, want := range map[string]int{"grpc.code=FailedPrecondition": 2, "grpc.code=InvalidArgument": 1, "the-key": 0} {
		if got := strings.Count(out.String(), text); got != want {
			t.Errorf("%q is logged %d times, want %d:\n%s", text, got, want, out.String())
		}
	}
}

// otelgrpc is a stats handler, so it is around everything: each attempt has a
// span, and what the handler does belongs to the span of the attempt that ran.
func TestBesideOpenTelemetry(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	var inside trace.SpanContext
	client := serve(t, func(ctx context.Context, _ *shop.PayRequest) (*shop.PayResponse, error) {
		inside = trace.SpanContextFromContext(ctx)
		return &shop.PayResponse{}, nil
	}, []grpc.ServerOption{
		grpc.StatsHandler(otelgrpc.NewServerHandler(otelgrpc.WithTracerProvider(provider))),
		grpc.ChainUnaryInterceptor(newOnce(t).Unary),
	}, grpc.WithStatsHandler(otelgrpc.NewClientHandler(otelgrpc.WithTracerProvider(provider))))
	ctx := idemgrpc.WithKey(t.Context(), "k")
	for range 2 {
		if _, err := client.Pay(ctx, order(0)); err != nil {
			t.Fatal(err)
		}
	}
	var servers []trace.SpanContext
	for _, s := range spans.Started() {
		if s.SpanKind() == trace.SpanKindServer {
			servers = append(servers, s.SpanContext())
		}
	}
	if len(servers) != 2 {
		t.Errorf("%d spans on the server's side, want one for each call", len(servers))
	}
	if !inside.IsValid() || !slices.ContainsFunc(servers, inside.Equal) {
		t.Errorf("the handler ran in the span %v, not in its call's", inside)
	}
}

// An interceptor that retries is inside the one that sets the key.
func TestBesideRetryInterceptor(t *testing.T) {
	t.Parallel()
	runs, attempts := 0, 0
	lost := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		attempts++
		resp, err := handler(ctx, req)
		if attempts < 3 {
			return nil, status.Error(codes.Unavailable, "a proxy lost the answer")
		}
		return resp, err
	}
	client := serve(t, func(context.Context, *shop.PayRequest) (*shop.PayResponse, error) {
		runs++
		return &shop.PayResponse{Payment: "pay_1"}, nil
	}, []grpc.ServerOption{grpc.ChainUnaryInterceptor(lost, newOnce(t).Unary)},
		grpc.WithChainUnaryInterceptor(
			idemgrpc.UnaryClientInterceptor(),
			retry.UnaryClientInterceptor(retry.WithCodes(codes.Unavailable, codes.Aborted), retry.WithMax(5)),
		))
	resp, err := client.Pay(t.Context(), order(0))
	if err != nil || resp.GetPayment() != "pay_1" {
		t.Fatal(resp, err)
	}
	if runs != 1 || attempts != 3 {
		t.Errorf("%d runs in %d attempts, want 1 in 3", runs, attempts)
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
