package idemgrpc_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemgrpc"
	"github.com/idem-go/idem/idemgrpc/internal/testpb"
)

// recovery is what a recovery interceptor does. It belongs outside.
func recovery(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (_ any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = status.Error(codes.Internal, "panic")
		}
	}()
	return handler(ctx, req)
}

func TestPanicHoldsTheKeyAndGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.outside = []grpc.UnaryServerInterceptor{recovery}
	w.service.handle = func(context.Context, *testpb.ChargeRequest) (*testpb.Receipt, error) { panic("half done") }
	client := w.start(t)
	_, err := client.Charge(keyed(t, "k"), &testpb.ChargeRequest{})
	wantCode(t, err, codes.Internal, "") // from the recovery
	_, err = client.Charge(keyed(t, "k"), &testpb.ChargeRequest{})
	wantCode(t, err, codes.Aborted, idemgrpc.ReasonInFlight)
	w.service.wantRuns(t, 1)
}

func TestAfterAPanicTheLeaseEndsAndTheHandlerKnows(t *testing.T) {
	t.Parallel()
	w := newWorld(idemgrpc.WithIdem(idem.WithLease(50*time.Millisecond), idem.WithWait(time.Minute)))
	w.outside = []grpc.UnaryServerInterceptor{recovery}
	var ids []string
	w.service.handle = func(ctx context.Context, _ *testpb.ChargeRequest) (*testpb.Receipt, error) {
		ids = append(ids, idem.ExecutionID(ctx))
		if !idem.Reclaimed(ctx) {
			panic("half done")
		}
		return &testpb.Receipt{Id: "reconciled"}, nil
	}
	client := w.start(t)
	_, err := client.Charge(keyed(t, "k"), &testpb.ChargeRequest{})
	wantCode(t, err, codes.Internal, "")
	r, err := client.Charge(keyed(t, "k"), &testpb.ChargeRequest{}) // waits for the lease to end
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, r, &testpb.Receipt{Id: "reconciled"})
	if len(ids) != 2 || ids[0] != ids[1] {
		t.Errorf("execution ids %q, want the same one twice", ids)
	}
}

func TestGoexitHoldsTheKey(t *testing.T) {
	t.Parallel()
	w := newWorld()
	once, err := idemgrpc.New(w.store, userFrom, w.methods)
	if err != nil {
		t.Fatal(err)
	}
	call := func(handler grpc.UnaryHandler) error {
		_, err := once.Unary(t.Context(), cancelRequest("k"), &grpc.UnaryServerInfo{FullMethod: testpb.Payments_Cancel_FullMethodName}, handler)
		return err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = call(func(context.Context, any) (any, error) { runtime.Goexit(); return nil, nil })
		t.Error("the goroutine went on")
	}()
	<-done
	err = call(func(context.Context, any) (any, error) { t.Error("the handler ran again"); return nil, nil })
	wantCode(t, err, codes.Aborted, idemgrpc.ReasonInFlight)
}

func TestStoreAllKeepsPanics(t *testing.T) {
	t.Parallel()
	w := newWorld(idemgrpc.WithIdem(idem.WithDisposition(idem.StoreAll)))
	w.outside = []grpc.UnaryServerInterceptor{recovery}
	w.service.handle = func(context.Context, *testpb.ChargeRequest) (*testpb.Receipt, error) { panic("half done") }
	client := w.start(t)
	_, err := client.Charge(keyed(t, "k"), &testpb.ChargeRequest{})
	wantCode(t, err, codes.Internal, "")
	_, err = client.Charge(keyed(t, "k"), &testpb.ChargeRequest{})
	wantCode(t, err, codes.Internal, idemgrpc.ReasonNotKept)
	w.service.wantRuns(t, 1)
}

func TestHangingUpDoesNotInterrupt(t *testing.T) {
	t.Parallel()
	w := newWorld(idemgrpc.WithIdem(idem.WithWait(time.Minute)))
	ctx, hangUp := context.WithCancel(keyed(t, "k"))
	gone := make(chan struct{}, 2)
	w.outside = []grpc.UnaryServerInterceptor{func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		context.AfterFunc(ctx, func() { gone <- struct{}{} })
		return handler(ctx, req)
	}}
	w.service.handle = func(ctx context.Context, _ *testpb.ChargeRequest) (*testpb.Receipt, error) {
		hangUp()
		<-gone // the server knows
		return &testpb.Receipt{Id: "done"}, ctx.Err()
	}
	client := w.start(t)
	_, err := client.Charge(ctx, &testpb.ChargeRequest{})
	wantCode(t, err, codes.Canceled, "")
	r, err := client.Charge(keyed(t, "k"), &testpb.ChargeRequest{})
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, r, &testpb.Receipt{Id: "done"})
	w.service.wantRuns(t, 1)
}

func TestCallerCancels(t *testing.T) {
	t.Parallel()
	w := newWorld(idemgrpc.CallerCancels())
	ended := make(chan error, 1)
	running := make(chan struct{})
	w.service.handle = func(ctx context.Context, _ *testpb.ChargeRequest) (*testpb.Receipt, error) {
		close(running)
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	}
	settled := make(chan struct{})
	w.outside = []grpc.UnaryServerInterceptor{func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		resp, err := handler(ctx, req)
		if status.Code(err) != codes.Aborted {
			close(settled)
		}
		return resp, err
	}}
	client := w.start(t)
	ctx, hangUp := context.WithCancel(keyed(t, "k"))
	go func() { <-running; hangUp() }()
	_, err := client.Charge(ctx, &testpb.ChargeRequest{})
	wantCode(t, err, codes.Canceled, "")
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the handler's context ended with %v", err)
	}
	<-settled
	_, err = client.Charge(keyed(t, "k"), &testpb.ChargeRequest{})
	wantCode(t, err, codes.Aborted, idemgrpc.ReasonInFlight)
	w.service.wantRuns(t, 1)
}

// The caller's deadline ends the handler, and what it leaves is unknown,
// whichever way the handler says so. A code of the handler's own is its word
// that nothing was done.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	const short, long = 300 * time.Millisecond, time.Minute
	for name, tc := range map[string]struct {
		deadline time.Duration
		handle   func(context.Context) error
		again    codes.Code // what the next call gets
		runs     int
	}{
		"context error":              {short, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, codes.Aborted, 1},
		"wrapped context error":      {short, func(ctx context.Context) error { <-ctx.Done(); return errors.Join(errDown, ctx.Err()) }, codes.Aborted, 1},
		"the same as status":         {short, func(ctx context.Context) error { <-ctx.Done(); return status.FromContextError(ctx.Err()).Err() }, codes.Aborted, 1},
		"a status of a live context": {long, func(context.Context) error { return status.Error(codes.DeadlineExceeded, "the bank is slow") }, codes.DeadlineExceeded, 2},
		"unknown, says the handler": {long, func(context.Context) error {
			return idem.Unknown(status.Error(codes.Unavailable, "no answer"))
		}, codes.Aborted, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			settled := make(chan struct{}, 2)
			w.outside = []grpc.UnaryServerInterceptor{func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
				defer func() { settled <- struct{}{} }()
				return handler(ctx, req)
			}}
			w.service.handle = func(ctx context.Context, _ *testpb.ChargeRequest) (*testpb.Receipt, error) {
				return nil, tc.handle(ctx)
			}
			client := w.start(t)
			ctx, cancel := context.WithTimeout(keyed(t, "k"), tc.deadline)
			defer cancel()
			if _, err := client.Charge(ctx, &testpb.ChargeRequest{}); err == nil {
				t.Fatal("no error")
			}
			<-settled
			_, err := client.Charge(keyed(t, "k"), &testpb.ChargeRequest{})
			if got := status.Code(err); got != tc.again {
				t.Errorf("the next call got %v, want %v", err, tc.again)
			}
			w.service.wantRuns(t, tc.runs)
		})
	}
}
