package idemgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/codec"
	"github.com/idem-go/idem/idemgrpc"
	"github.com/idem-go/idem/idemgrpc/internal/testpb"
)

// kept are the codes whose answers are replayed. This list is the one in the
// documentation.
var kept = []codes.Code{
	codes.OK, codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.OutOfRange,
}

func TestB91ReplayIsMarkedAndOtherwiseTheSame(t *testing.T) {
	t.Parallel()
	w := newWorld()
	client := w.start(t)
	ctx := keyed(t, "k")
	var first, second metadata.MD
	a, err := client.Charge(ctx, &testpb.ChargeRequest{Account: "a"}, grpc.Header(&first))
	if err != nil {
		t.Fatal(err)
	}
	b, err := client.Charge(ctx, &testpb.ChargeRequest{Account: "a"}, grpc.Header(&second))
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, b, a)
	w.service.wantRuns(t, 1)
	if isReplay(first) || !isReplay(second) {
		t.Errorf("replay header on the first answer %t, on the second %t", isReplay(first), isReplay(second))
	}
}

func TestKeptByCode(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.service.handle = func(_ context.Context, req *testpb.ChargeRequest) (*testpb.Receipt, error) {
		return &testpb.Receipt{Id: "r"}, status.Error(codes.Code(req.GetAmount()), "as asked")
	}
	client := w.start(t)
	for code := codes.OK; code <= codes.Unauthenticated; code++ {
		ran := w.service.runs.Load()
		var replays int
		for range 2 {
			var header metadata.MD
			_, err := client.Charge(keyed(t, code.String()), &testpb.ChargeRequest{Amount: int64(code)}, grpc.Header(&header))
			if status.Code(err) != code {
				t.Errorf("%v: got %v", code, err)
			}
			if isReplay(header) {
				replays++
			}
		}
		want := map[bool]int{true: 1, false: 0}[slices.Contains(kept, code)]
		if got := int(w.service.runs.Load() - ran); got != 2-want || replays != want {
			t.Errorf("%v: the handler ran %d times and was replayed %d times", code, got, replays)
		}
	}
}

func TestReplayedErrorEqualsTheFirst(t *testing.T) {
	t.Parallel()
	detailed, err := status.New(codes.FailedPrecondition, "out of stock: ünïcode").WithDetails(
		protoadapt.MessageV1Of(&errdetails.ErrorInfo{Reason: "STOCK", Domain: "shop", Metadata: map[string]string{"sku": "1", "left": "0"}}),
		protoadapt.MessageV1Of(&errdetails.PreconditionFailure{Violations: []*errdetails.PreconditionFailure_Violation{{Type: "T", Subject: "S"}}}),
		protoadapt.MessageV1Of(&testpb.Line{Sku: "own type", Count: 3}),
	)
	if err != nil {
		t.Fatal(err)
	}
	for name, failure := range map[string]error{
		"with details":    detailed.Err(),
		"without":         status.Error(codes.NotFound, "no such account"),
		"wrapped":         fmt.Errorf("charging: %w", detailed.Err()),
		"without message": status.Error(codes.AlreadyExists, ""),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			w.service.handle = func(context.Context, *testpb.ChargeRequest) (*testpb.Receipt, error) { return nil, failure }
			client := w.start(t)
			_, first := client.Charge(keyed(t, "k"), &testpb.ChargeRequest{})
			for range 3 {
				_, again := client.Charge(keyed(t, "k"), &testpb.ChargeRequest{})
				wantEqual(t, status.Convert(again).Proto(), status.Convert(first).Proto())
			}
			w.service.wantRuns(t, 1)
		})
	}
}

func TestPlainErrorRunsAgain(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.service.handle = func(context.Context, *testpb.ChargeRequest) (*testpb.Receipt, error) {
		return nil, errors.New("broken pipe")
	}
	client := w.start(t)
	for range 2 {
		_, err := client.Charge(keyed(t, "k"), &testpb.ChargeRequest{})
		wantCode(t, err, codes.Unknown, "")
	}
	w.service.wantRuns(t, 2)
}

func TestDispositionSeesTheHandlersCode(t *testing.T) {
	t.Parallel()
	w := newWorld(idemgrpc.WithIdem(idem.WithDisposition(func(o idem.Outcome) idem.Disposition {
		if status.Code(o.Err) == codes.PermissionDenied {
			return idem.Keep
		}
		return idem.DefaultDisposition(o)
	})))
	w.service.handle = func(context.Context, *testpb.ChargeRequest) (*testpb.Receipt, error) {
		return nil, status.Error(codes.PermissionDenied, "for good")
	}
	client := w.start(t)
	for range 2 {
		_, err := client.Charge(keyed(t, "k"), &testpb.ChargeRequest{})
		wantCode(t, err, codes.PermissionDenied, "")
	}
	w.service.wantRuns(t, 1)
}

func TestOtherCodecsKeepAnswers(t *testing.T) {
	t.Parallel()
	sealed, err := codec.NewSealed(idemgrpc.Codec{}, "1", map[string][]byte{"1": make([]byte, 32)})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []codec.Codec{sealed, codec.JSON{}} {
		t.Run(c.Name(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(idemgrpc.WithIdem(idem.WithCodec(c)))
			client := w.start(t)
			a, err := client.Charge(keyed(t, "k"), &testpb.ChargeRequest{Account: "a"})
			if err != nil {
				t.Fatal(err)
			}
			b, err := client.Charge(keyed(t, "k"), &testpb.ChargeRequest{Account: "a"})
			if err != nil {
				t.Fatal(err)
			}
			wantEqual(t, b, a)
			w.service.wantRuns(t, 1)
		})
	}
}

func TestConcurrentCallersShareOneRun(t *testing.T) {
	t.Parallel()
	w := newWorld(idemgrpc.WithIdem(idem.WithWait(time.Minute)))
	var claims sync.WaitGroup
	const callers = 32
	claims.Add(callers)
	var mu sync.Mutex
	seen := 0
	w.store.onClaim = func(next func() (idem.Record, error)) (idem.Record, error) {
		mu.Lock()
		if seen++; seen <= callers {
			claims.Done()
		}
		mu.Unlock()
		return next()
	}
	w.service.handle = func(context.Context, *testpb.ChargeRequest) (*testpb.Receipt, error) {
		claims.Wait() // until everybody has come
		return &testpb.Receipt{Id: "one"}, nil
	}
	client := w.start(t)
	var done sync.WaitGroup
	for range callers {
		done.Go(func() {
			r, err := client.Charge(keyed(t, "k"), &testpb.ChargeRequest{Labels: map[string]string{"a": "1", "b": "2"}})
			if err != nil || r.GetId() != "one" {
				t.Errorf("got %v, %v", r, err)
			}
		})
	}
	done.Wait()
	w.service.wantRuns(t, 1)
}

func TestHandlerKnowsItsExecution(t *testing.T) {
	t.Parallel()
	w := newWorld()
	var ids []string
	w.service.handle = func(ctx context.Context, _ *testpb.ChargeRequest) (*testpb.Receipt, error) {
		ids = append(ids, idem.ExecutionID(ctx))
		return nil, status.Error(codes.Unavailable, "later")
	}
	client := w.start(t)
	for range 2 {
		_, err := client.Charge(keyed(t, "k"), &testpb.ChargeRequest{})
		wantCode(t, err, codes.Unavailable, "")
	}
	if len(ids) != 2 || ids[0] == "" || ids[0] != ids[1] {
		t.Errorf("execution ids %q: want the same one twice", ids)
	}
}

func TestUnlistedMethodsPassThrough(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.methods = idemgrpc.Methods{testpb.Payments_Refund_FullMethodName: nil}
	client := w.start(t)
	for range 2 {
		if _, err := client.Charge(keyed(t, "k"), &testpb.ChargeRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	w.service.wantRuns(t, 2)
}

func TestMethodsDoNotShareKeys(t *testing.T) {
	t.Parallel()
	w := newWorld()
	client := w.start(t)
	if _, err := client.Charge(keyed(t, "k"), &testpb.ChargeRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Refund(keyed(t, "k"), &testpb.RefundRequest{}); err != nil {
		t.Fatal(err)
	}
	w.service.wantRuns(t, 2)
}
