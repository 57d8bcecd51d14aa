package idemgrpc_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemgrpc"
	"github.com/idem-go/idem/idemgrpc/internal/testpb"
)

// retryPolicy is the one in docs/grpc.md.
const retryPolicy = `{"methodConfig": [{
  "name": [{"service": "idem.test.v1.Payments"}],
  "retryPolicy": {
    "maxAttempts": 5, "initialBackoff": "0.05s", "maxBackoff": "1s", "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE", "ABORTED"]
  }
}]}`

const onlyUnavailable = `{"methodConfig": [{
  "name": [{"service": "idem.test.v1.Payments"}],
  "retryPolicy": {
    "maxAttempts": 5, "initialBackoff": "0.05s", "maxBackoff": "1s", "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE"]
  }
}]}`

// attempts is what the server saw of a call's attempts.
type attempts struct {
	mu      sync.Mutex
	keys    []string
	answers []codes.Code
	after   func(attempt int, err error) // an attempt was answered, its answer is not yet sent
}

func (a *attempts) Unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	a.mu.Lock()
	a.keys = append(a.keys, metadata.ValueFromIncomingContext(ctx, idemgrpc.KeyMetadata)...)
	n := len(a.keys)
	a.mu.Unlock()
	resp, err := handler(ctx, req)
	a.mu.Lock()
	a.answers = append(a.answers, status.Code(err))
	a.mu.Unlock()
	if a.after != nil {
		a.after(n, err)
	}
	return resp, err
}

// want checks that the attempts got these answers, in order of answering, and
// that all had one key.
func (a *attempts) want(t *testing.T, answers ...codes.Code) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Equal(a.answers, answers) {
		t.Errorf("the server answered %v, want %v", a.answers, answers)
	}
	if keys := slices.Compact(slices.Clone(a.keys)); len(keys) != 1 || keys[0] == "" {
		t.Errorf("attempts came with the keys %q, want one", keys)
	}
}

func TestB114ReplyLostAfterCommit(t *testing.T) {
	t.Parallel()
	w, seen := newWorld(), &attempts{}
	w.outside = []grpc.UnaryServerInterceptor{seen.Unary}
	seen.after = func(attempt int, _ error) {
		if attempt == 1 {
			w.listener.cut() // the outcome is recorded; the reply finds no connection
		}
	}
	client := w.start(t,
		grpc.WithDefaultServiceConfig(onlyUnavailable),
		grpc.WithUnaryInterceptor(idemgrpc.UnaryClientInterceptor()))
	var header metadata.MD
	r, err := client.Charge(t.Context(), &testpb.ChargeRequest{Account: "a"}, grpc.Header(&header))
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, r, &testpb.Receipt{Id: "a", Amount: 1})
	w.service.wantRuns(t, 1)
	seen.want(t, codes.OK, codes.OK)
	if !isReplay(header) {
		t.Error("the retry's answer is not marked as a replay")
	}
}

// The connection breaks while the handler runs, so the retry finds the key in
// flight, once at least.
func TestB114ConnectionLostWhileRunning(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		policy string
		opts   []idemgrpc.Option
		code   codes.Code
	}{
		"in flight is ABORTED":     {retryPolicy, nil, codes.Aborted},
		"in flight is UNAVAILABLE": {onlyUnavailable, []idemgrpc.Option{idemgrpc.WithInFlightCode(codes.Unavailable)}, codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, seen := newWorld(append(tc.opts, idemgrpc.WithRetryAfter(10*time.Millisecond))...), &attempts{}
			w.outside = []grpc.UnaryServerInterceptor{seen.Unary}
			inFlight := make(chan struct{})
			ended := make(chan struct{})
			seen.after = func(attempt int, _ error) {
				switch attempt {
				case 1:
					close(ended)
				case 2:
					close(inFlight)
					<-ended // so that the third attempt finds the outcome
				}
			}
			w.service.handle = func(ctx context.Context, _ *testpb.ChargeRequest) (*testpb.Receipt, error) {
				w.listener.cut()
				<-inFlight
				return &testpb.Receipt{Id: "one"}, ctx.Err() // the hang-up has not reached it
			}
			client := w.start(t,
				grpc.WithDefaultServiceConfig(tc.policy),
				grpc.WithUnaryInterceptor(idemgrpc.UnaryClientInterceptor()))
			r, err := client.Charge(t.Context(), &testpb.ChargeRequest{})
			if err != nil {
				t.Fatal(err)
			}
			wantEqual(t, r, &testpb.Receipt{Id: "one"})
			w.service.wantRuns(t, 1)
			seen.want(t, tc.code, codes.OK, codes.OK)
		})
	}
}

// The server lets the retry wait for the first attempt, so that no answer is
// about a key in flight.
func TestB114ServerWaits(t *testing.T) {
	t.Parallel()
	w, seen := newWorld(idemgrpc.WithIdem(idem.WithWait(time.Minute))), &attempts{}
	w.outside = []grpc.UnaryServerInterceptor{seen.Unary}
	waiting := claimed(w, 2)
	w.service.handle = func(context.Context, *testpb.ChargeRequest) (*testpb.Receipt, error) {
		w.listener.cut()
		<-waiting
		return &testpb.Receipt{Id: "one"}, nil
	}
	client := w.start(t,
		grpc.WithDefaultServiceConfig(onlyUnavailable),
		grpc.WithUnaryInterceptor(idemgrpc.UnaryClientInterceptor()))
	r, err := client.Charge(t.Context(), &testpb.ChargeRequest{})
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, r, &testpb.Receipt{Id: "one"})
	w.service.wantRuns(t, 1)
	seen.want(t, codes.OK, codes.OK)
}

// claimed returns a channel that is closed when the store has answered n claims.
func claimed(w *world, n int) <-chan struct{} {
	done := make(chan struct{})
	var mu sync.Mutex
	w.store.onClaim = func(next func() (idem.Record, error)) (idem.Record, error) {
		rec, err := next()
		mu.Lock()
		defer mu.Unlock()
		if n--; n == 0 {
			close(done)
		}
		return rec, err
	}
	return done
}

// hedged does what gRFC A6 says of a hedging policy, since grpc-go, as of 1.85,
// has none: it sends a second attempt while the first one runs; a failure that
// is not fatal leaves the call to the other attempt; the first answer of any
// other kind is the call's, and cancels what is left.
func hedged(ctx context.Context, running <-chan struct{}, call func(context.Context) (*testpb.Receipt, error), nonFatal ...codes.Code) (*testpb.Receipt, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		r   *testpb.Receipt
		err error
	}
	answers := make(chan answer, 2)
	attempt := func() { r, err := call(ctx); answers <- answer{r, err} }
	go attempt()
	<-running
	go attempt()
	a := <-answers
	if slices.Contains(nonFatal, status.Code(a.err)) {
		a = <-answers
	}
	return a.r, a.err
}

func TestB114Hedging(t *testing.T) {
	t.Parallel()
	wait := idemgrpc.WithIdem(idem.WithWait(time.Minute))
	for name, tc := range map[string]struct {
		opts     []idemgrpc.Option
		nonFatal []codes.Code
		want     codes.Code // of the call
	}{
		"ABORTED is not fatal":     {nil, []codes.Code{codes.Unavailable, codes.Aborted}, codes.OK},
		"UNAVAILABLE is not fatal": {[]idemgrpc.Option{idemgrpc.WithInFlightCode(codes.Unavailable)}, []codes.Code{codes.Unavailable}, codes.OK},
		"the server waits":         {[]idemgrpc.Option{wait}, nil, codes.OK},
		"neither, which is wrong":  {nil, nil, codes.Aborted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, seen := newWorld(tc.opts...), &attempts{}
			w.outside = []grpc.UnaryServerInterceptor{seen.Unary}
			running, second := make(chan struct{}), claimed(w, 2)
			w.service.handle = func(ctx context.Context, _ *testpb.ChargeRequest) (*testpb.Receipt, error) {
				close(running)
				<-second
				return &testpb.Receipt{Id: "one"}, ctx.Err()
			}
			if name == "neither, which is wrong" { // the first attempt answers last
				failed := make(chan struct{})
				seen.after = func(attempt int, _ error) {
					if attempt == 1 {
						<-failed
					}
				}
				defer close(failed)
			}
			client := w.start(t)
			ctx := keyed(t, "k")
			r, err := hedged(ctx, running, func(ctx context.Context) (*testpb.Receipt, error) {
				return client.Charge(ctx, &testpb.ChargeRequest{})
			}, tc.nonFatal...)
			if status.Code(err) != tc.want {
				t.Fatalf("the call ended with %v, want %v", err, tc.want)
			}
			if tc.want == codes.OK {
				wantEqual(t, r, &testpb.Receipt{Id: "one"})
			}
			w.service.wantRuns(t, 1)
		})
	}
}
