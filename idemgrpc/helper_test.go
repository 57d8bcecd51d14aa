package idemgrpc_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemgrpc"
	"github.com/idem-go/idem/idemgrpc/internal/testpb"
	"github.com/idem-go/idem/memstore"
)

// A service counts the runs of its handlers, which all do the same.
type service struct {
	testpb.UnimplementedPaymentsServer
	runs   atomic.Int32
	handle func(context.Context, *testpb.ChargeRequest) (*testpb.Receipt, error)
}

func (s *service) Charge(ctx context.Context, req *testpb.ChargeRequest) (*testpb.Receipt, error) {
	n := s.runs.Add(1)
	if s.handle != nil {
		return s.handle(ctx, req)
	}
	return &testpb.Receipt{Id: req.GetAccount(), Amount: int64(n)}, nil
}

func (s *service) Refund(ctx context.Context, req *testpb.RefundRequest) (*testpb.Receipt, error) {
	return s.Charge(ctx, &testpb.ChargeRequest{Account: req.GetChargeId()})
}

func (s *service) Cancel(ctx context.Context, req *testpb.CancelRequest) (*testpb.Receipt, error) {
	return s.Charge(ctx, &testpb.ChargeRequest{Account: req.GetChargeId()})
}

func (s *service) wantRuns(t *testing.T, want int) {
	t.Helper()
	if got := int(s.runs.Load()); got != want {
		t.Errorf("the handler ran %d times, want %d", got, want)
	}
}

// A spy is a memstore whose answers a test can change.
type spy struct {
	idem.Store
	onClaim    func(next func() (idem.Record, error)) (idem.Record, error)
	onComplete func(next func() (time.Time, error)) (time.Time, error)
}

func (s *spy) Claim(ctx context.Context, req idem.ClaimRequest) (idem.Record, error) {
	next := func() (idem.Record, error) { return s.Store.Claim(ctx, req) }
	if s.onClaim == nil {
		return next()
	}
	return s.onClaim(next)
}

func (s *spy) Complete(ctx context.Context, req idem.CompleteRequest) (time.Time, error) {
	next := func() (time.Time, error) { return s.Store.Complete(ctx, req) }
	if s.onComplete == nil {
		return next()
	}
	return s.onComplete(next)
}

// A world is a server on a loopback connection. Its fields can be changed until
// start.
type world struct {
	store   *spy
	service *service
	methods idemgrpc.Methods
	opts    []idemgrpc.Option
	outside []grpc.UnaryServerInterceptor

	listener *listener
}

func newWorld(opts ...idemgrpc.Option) *world {
	return &world{
		store: &spy{Store: memstore.New()}, service: &service{}, opts: opts,
		methods: idemgrpc.Methods{
			testpb.Payments_Charge_FullMethodName: nil,
			testpb.Payments_Refund_FullMethodName: nil,
			testpb.Payments_Cancel_FullMethodName: nil,
		},
	}
}

// userFrom trusts what it is told, as only a test may.
func userFrom(ctx context.Context) (string, error) {
	if v := metadata.ValueFromIncomingContext(ctx, "user"); len(v) > 0 {
		return v[0], nil
	}
	return "alice", nil
}

func (w *world) start(t testing.TB, dial ...grpc.DialOption) testpb.PaymentsClient {
	t.Helper()
	once, err := idemgrpc.New(w.store, userFrom, w.methods, w.opts...)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(append(w.outside, once.Unary)...),
		grpc.ChainStreamInterceptor(once.Stream),
	)
	testpb.RegisterPaymentsServer(server, w.service)
	if err := once.Check(server); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.listener = &listener{Listener: l}
	go func() { _ = server.Serve(w.listener) }()
	t.Cleanup(server.Stop)
	dial = append(dial, grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient(l.Addr().String(), dial...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return testpb.NewPaymentsClient(conn)
}

// A listener can cut the connections that it has accepted.
type listener struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.conns = append(l.conns, c)
	}
	return c, err
}

func (l *listener) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.conns = nil
}

func keyed(t testing.TB, key string) context.Context {
	return idemgrpc.WithKey(t.Context(), key)
}

func wantCode(t *testing.T, err error, code codes.Code, reason string) {
	t.Helper()
	if got := status.Code(err); got != code {
		t.Errorf("code %v (%v), want %v", got, err, code)
	}
	if got := idemgrpc.ReasonOf(err); got != reason {
		t.Errorf("reason %q, want %q", got, reason)
	}
}

func wantEqual(t *testing.T, got, want proto.Message) {
	t.Helper()
	if !proto.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func isReplay(md metadata.MD) bool {
	v := md.Get(idemgrpc.ReplayedMetadata)
	return len(v) == 1 && v[0] == "true"
}
