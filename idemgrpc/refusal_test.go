package idemgrpc_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemgrpc"
	"github.com/idem-go/idem/idemgrpc/internal/testpb"
)

var errDown = idem.Permanent(errors.New("dial tcp 10.0.0.7:5432: connection refused"))

// refusalOf is what a client can read of a refusal.
type refusal struct {
	code     codes.Code
	reason   string
	retry    bool   // RetryInfo
	bad      bool   // BadRequest
	pushback string // the trailer, "" for none
}

func refusalIn(t *testing.T, err error, trailer metadata.MD) refusal {
	t.Helper()
	r := refusal{code: status.Code(err), reason: idemgrpc.ReasonOf(err)}
	for _, d := range status.Convert(err).Details() {
		switch d := d.(type) {
		case *errdetails.RetryInfo:
			r.retry = d.GetRetryDelay().AsDuration() > 0
		case *errdetails.BadRequest:
			r.bad = true
		}
	}
	if v := trailer.Get("grpc-retry-pushback-ms"); len(v) == 1 {
		if n, err := strconv.Atoi(v[0]); err != nil {
			t.Errorf("pushback %q", v[0])
		} else if n > 0 {
			r.pushback = "positive"
		} else {
			r.pushback = v[0]
		}
	} else if len(v) > 1 {
		t.Errorf("pushback %q: grpc-go does not retry at all then", v)
	}
	return r
}

// inFlight starts a call under the key k whose handler runs until the test ends.
func inFlight(t *testing.T, w *world, client testpb.PaymentsClient) {
	t.Helper()
	running, end := make(chan struct{}), make(chan struct{})
	w.service.handle = func(context.Context, *testpb.ChargeRequest) (*testpb.Receipt, error) {
		close(running)
		<-end
		return &testpb.Receipt{}, nil
	}
	go func() { _, _ = client.Charge(keyed(t, "k"), &testpb.ChargeRequest{}) }()
	<-running
	t.Cleanup(func() { close(end) })
}

func TestB116FiveAnswersCanBeToldApart(t *testing.T) {
	t.Parallel()
	w := newWorld()
	down := false
	w.store.onClaim = func(next func() (idem.Record, error)) (idem.Record, error) {
		if down {
			return idem.Record{}, errDown
		}
		return next()
	}
	client := w.start(t)
	inFlight(t, w, client)
	call := func(ctx context.Context, req *testpb.ChargeRequest) refusal {
		var trailer metadata.MD
		_, err := client.Charge(ctx, req, grpc.Trailer(&trailer))
		return refusalIn(t, err, trailer)
	}
	seen := map[refusal]string{}
	check := func(name string, got, want refusal) {
		t.Helper()
		if got != want {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
		if other, ok := seen[got]; ok {
			t.Errorf("%s and %s cannot be told apart", name, other)
		}
		seen[got] = name
	}
	check("in flight", call(keyed(t, "k"), &testpb.ChargeRequest{}),
		refusal{codes.Aborted, "IDEMPOTENCY_KEY_IN_FLIGHT", true, false, "positive"})
	check("other payload", call(keyed(t, "k"), &testpb.ChargeRequest{Amount: 1}),
		refusal{codes.FailedPrecondition, "IDEMPOTENCY_KEY_REUSED", false, false, "-1"})
	check("missing key", call(t.Context(), &testpb.ChargeRequest{}),
		refusal{codes.InvalidArgument, "IDEMPOTENCY_KEY_MISSING", false, true, ""})
	check("bad key", call(keyed(t, ""), &testpb.ChargeRequest{}),
		refusal{codes.InvalidArgument, "IDEMPOTENCY_KEY_INVALID", false, true, ""})
	down = true
	check("store down", call(keyed(t, "k"), &testpb.ChargeRequest{}),
		refusal{codes.Unavailable, "IDEMPOTENCY_UNAVAILABLE", true, false, ""})
	w.service.wantRuns(t, 1)
}

func TestInFlightRetryDelay(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		opts     []idemgrpc.Option
		code     codes.Code
		min, max time.Duration
	}{
		"a second":                  {nil, codes.Aborted, time.Second, time.Second},
		"as said":                   {[]idemgrpc.Option{idemgrpc.WithRetryAfter(250 * time.Millisecond)}, codes.Aborted, 250 * time.Millisecond, 250 * time.Millisecond},
		"no longer than the lease":  {[]idemgrpc.Option{idemgrpc.WithRetryAfter(time.Hour)}, codes.Aborted, time.Millisecond, idem.DefaultLease},
		"UNAVAILABLE, if asked for": {[]idemgrpc.Option{idemgrpc.WithInFlightCode(codes.Unavailable)}, codes.Unavailable, time.Second, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(tc.opts...)
			client := w.start(t)
			inFlight(t, w, client)
			var trailer metadata.MD
			_, err := client.Charge(keyed(t, "k"), &testpb.ChargeRequest{}, grpc.Trailer(&trailer))
			wantCode(t, err, tc.code, idemgrpc.ReasonInFlight)
			var delay time.Duration
			for _, d := range status.Convert(err).Details() {
				if d, ok := d.(*errdetails.RetryInfo); ok {
					delay = d.GetRetryDelay().AsDuration()
				}
			}
			if delay < tc.min || delay > tc.max {
				t.Errorf("RetryInfo of %v, want %v to %v", delay, tc.min, tc.max)
			}
			if v := trailer.Get("grpc-retry-pushback-ms"); len(v) != 1 || v[0] != strconv.FormatInt(delay.Milliseconds(), 10) {
				t.Errorf("pushback %q for a delay of %v", v, delay)
			}
		})
	}
}

func TestRefusalsAfterARun(t *testing.T) {
	t.Parallel()
	stale := func(w *world) { // a crashed owner's claim, of the request that the test sends
		w.store.onClaim = func(next func() (idem.Record, error)) (idem.Record, error) {
			rec, err := next()
			rec.Token, rec.LeaseLeft = idem.ID{1}, 0
			return rec, err
		}
	}
	stored := func(rec func(*idem.Record)) func(*world) {
		return func(w *world) {
			w.store.onClaim = func(next func() (idem.Record, error)) (idem.Record, error) {
				r, err := next()
				r.Token, r.State, r.CompletedAt = idem.ID{1}, idem.Succeeded, time.Now()
				rec(&r)
				return r, err
			}
		}
	}
	completing := func(err error) func(*world) {
		return func(w *world) {
			w.store.onComplete = func(func() (time.Time, error)) (time.Time, error) { return time.Time{}, err }
		}
	}
	body := func(m proto.Message) []byte {
		b, err := idemgrpc.Codec{}.Encode(&m, nil)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, tc := range map[string]struct {
		opts   []idemgrpc.Option
		change func(*world)
		want   refusal
		runs   int
	}{
		"outcome unknown": {[]idemgrpc.Option{idemgrpc.WithIdem(idem.WithStale(idem.Refuse))}, stale,
			refusal{codes.Aborted, "IDEMPOTENCY_OUTCOME_UNKNOWN", false, false, "-1"}, 0},
		"lease lost": {nil, completing(idem.ErrLeaseLost),
			refusal{codes.Aborted, "IDEMPOTENCY_LEASE_LOST", true, false, "positive"}, 1},
		"unknown state": {nil, stored(func(r *idem.Record) { r.State = "bogus" }),
			refusal{codes.Internal, "IDEMPOTENCY_RECORD_UNREADABLE", false, false, "-1"}, 0},
		"unknown codec": {nil, stored(func(r *idem.Record) { r.Response = idem.Response{Status: 200, Codec: "gob", Body: []byte{1}} }),
			refusal{codes.Internal, "IDEMPOTENCY_RECORD_UNREADABLE", false, false, "-1"}, 0},
		"not an Any": {nil, stored(func(r *idem.Record) {
			r.Response = idem.Response{Status: 200, Codec: "protobuf-any", CodecVersion: 1, Body: []byte{0xff}}
		}), refusal{codes.Internal, "IDEMPOTENCY_RECORD_UNREADABLE", false, false, "-1"}, 0},
		"failure without a status": {nil, stored(func(r *idem.Record) {
			r.State = idem.Failed
			r.Response = idem.Response{Status: 404, Codec: "protobuf-any", CodecVersion: 1, Body: body(&testpb.Line{}), Error: &idem.ErrorValue{}}
		}), refusal{codes.Internal, "IDEMPOTENCY_RECORD_UNREADABLE", false, false, "-1"}, 0},
		"response not kept": {nil, stored(func(r *idem.Record) { r.Response = idem.Response{Status: 200} }),
			refusal{codes.DataLoss, "IDEMPOTENCY_RESULT_NOT_KEPT", false, false, "-1"}, 0},
		"status not kept": {nil, stored(func(r *idem.Record) {
			r.State, r.Response = idem.Failed, idem.Response{Status: 412, Error: &idem.ErrorValue{Message: "out of stock"}}
		}), refusal{codes.FailedPrecondition, "IDEMPOTENCY_RESULT_NOT_KEPT", false, false, "-1"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(tc.opts...)
			tc.change(w)
			client := w.start(t)
			var trailer metadata.MD
			_, err := client.Charge(keyed(t, "k"), &testpb.ChargeRequest{}, grpc.Trailer(&trailer))
			if got := refusalIn(t, err, trailer); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
			w.service.wantRuns(t, tc.runs)
		})
	}
}

func TestRanButNotRecordedIsAnsweredForReal(t *testing.T) {
	t.Parallel()
	refused := status.Error(codes.NotFound, "no such account")
	for name, failure := range map[string]error{"success": nil, "failure": refused} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			w.store.onComplete = func(func() (time.Time, error)) (time.Time, error) { return time.Time{}, errDown }
			w.service.handle = func(context.Context, *testpb.ChargeRequest) (*testpb.Receipt, error) {
				return &testpb.Receipt{Id: "done"}, failure
			}
			client := w.start(t)
			var trailer metadata.MD
			r, err := client.Charge(keyed(t, "k"), &testpb.ChargeRequest{}, grpc.Trailer(&trailer))
			if status.Code(err) != status.Code(failure) {
				t.Fatalf("got %v, want %v", err, failure)
			}
			if failure == nil {
				wantEqual(t, r, &testpb.Receipt{Id: "done"})
			}
			if v := trailer.Get(idemgrpc.NotRecordedMetadata); len(v) != 1 || v[0] != "true" {
				t.Errorf("trailer %v does not say that the outcome was not recorded", trailer)
			}
			_, err = client.Charge(keyed(t, "k"), &testpb.ChargeRequest{})
			wantCode(t, err, codes.Aborted, idemgrpc.ReasonInFlight)
			w.service.wantRuns(t, 1)
		})
	}
}

func TestTooLargeToKeep(t *testing.T) {
	t.Parallel()
	w := newWorld(idemgrpc.WithIdem(idem.WithMaxResultBytes(1)))
	client := w.start(t)
	var trailer metadata.MD
	if _, err := client.Charge(keyed(t, "k"), &testpb.ChargeRequest{}, grpc.Trailer(&trailer)); err != nil {
		t.Fatal(err)
	}
	if len(trailer.Get(idemgrpc.NotRecordedMetadata)) != 1 {
		t.Error("the first caller is not told")
	}
	_, err := client.Charge(keyed(t, "k"), &testpb.ChargeRequest{})
	wantCode(t, err, codes.DataLoss, idemgrpc.ReasonNotKept)
	w.service.wantRuns(t, 1)
}
