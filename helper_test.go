package idem_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/memstore"
)

var (
	testKey = idem.Key{User: "user-1", Scope: "payments.create", Key: "key-1"}

	errStore    = errors.New("connection reset")
	errBusiness = errors.New("out of stock")
)

const payload, otherPayload = "payload", "other payload"

// size is how often a case is tried: as often as it is written down when large
// cases are asked for (make cases), else as often as is quick.
func size(quick, large int) int {
	if os.Getenv("IDEM_TEST_LARGE") != "" {
		return large
	}
	return quick
}

// A worker is a closure of Do that counts its runs.
type worker[T any] struct {
	runs atomic.Int32
	work func(context.Context) (T, idem.Status, error)
}

func works[T any](f func(context.Context) (T, idem.Status, error)) *worker[T] {
	return &worker[T]{work: f}
}

// returns makes a worker that ends every run in the same way.
func returns[T any](v T, status idem.Status, err error) *worker[T] {
	return works(func(context.Context) (T, idem.Status, error) { return v, status, err })
}

func (w *worker[T]) fn(ctx context.Context) (T, idem.Status, error) {
	w.runs.Add(1)
	return w.work(ctx)
}

func (w *worker[T]) wantRuns(t *testing.T, want int) {
	t.Helper()
	if got := int(w.runs.Load()); got != want {
		t.Errorf("the closure ran %d times, want %d", got, want)
	}
}

// A spy is a memstore whose requests a test can watch, change, delay and fail.
// A hook is given the real method as next.
type spy struct {
	idem.Store
	onClaim    func(ctx context.Context, req idem.ClaimRequest, next func() (idem.Record, error)) (idem.Record, error)
	onComplete func(ctx context.Context, req idem.CompleteRequest, next func() (time.Time, error)) (time.Time, error)
	onRelease  func(ctx context.Context, req idem.ReleaseRequest, next func() error) error
	onRenew    func(ctx context.Context, req idem.RenewRequest, next func() error) error
	onLookup   func(ctx context.Context, key idem.Key, next func() (idem.Record, bool, error)) (idem.Record, bool, error)
	onPurge    func(ctx context.Context, req idem.PurgeRequest, next func() (idem.PurgeResult, error)) (idem.PurgeResult, error)

	mu    sync.Mutex
	calls []string
}

func newSpy() *spy { return &spy{Store: memstore.New()} }

func (s *spy) called(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, name)
}

// log returns the names of the methods that were called, in order.
func (s *spy) log() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// count tells how often a method was called.
func (s *spy) count(name string) (n int) {
	for _, call := range s.log() {
		if call == name {
			n++
		}
	}
	return n
}

func (s *spy) wantCalls(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, s.log()); diff != "" {
		t.Errorf("requests to the store (-want +got):\n%s", diff)
	}
}

func (s *spy) Claim(ctx context.Context, req idem.ClaimRequest) (idem.Record, error) {
	s.called("claim")
	next := func() (idem.Record, error) { return s.Store.Claim(ctx, req) }
	if s.onClaim != nil {
		return s.onClaim(ctx, req, next)
	}
	return next()
}

func (s *spy) Complete(ctx context.Context, req idem.CompleteRequest) (time.Time, error) {
	s.called("complete")
	next := func() (time.Time, error) { return s.Store.Complete(ctx, req) }
	if s.onComplete != nil {
		return s.onComplete(ctx, req, next)
	}
	return next()
}

func (s *spy) Release(ctx context.Context, req idem.ReleaseRequest) error {
	s.called("release")
	next := func() error { return s.Store.Release(ctx, req) }
	if s.onRelease != nil {
		return s.onRelease(ctx, req, next)
	}
	return next()
}

func (s *spy) Renew(ctx context.Context, req idem.RenewRequest) error {
	s.called("renew")
	next := func() error { return s.Store.Renew(ctx, req) }
	if s.onRenew != nil {
		return s.onRenew(ctx, req, next)
	}
	return next()
}

func (s *spy) Lookup(ctx context.Context, key idem.Key) (idem.Record, bool, error) {
	s.called("lookup")
	next := func() (idem.Record, bool, error) { return s.Store.Lookup(ctx, key) }
	if s.onLookup != nil {
		return s.onLookup(ctx, key, next)
	}
	return next()
}

func (s *spy) Purge(ctx context.Context, req idem.PurgeRequest) (idem.PurgeResult, error) {
	s.called("purge")
	next := func() (idem.PurgeResult, error) { return s.Store.Purge(ctx, req) }
	if s.onPurge != nil {
		return s.onPurge(ctx, req, next)
	}
	return next()
}

// A recorder is an observer that keeps events.
type recorder struct {
	mu     sync.Mutex
	events []idem.Event
}

func (r *recorder) option() idem.Option {
	return idem.WithObserver(func(_ context.Context, e idem.Event) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.events = append(r.events, e)
	})
}

func (r *recorder) all() []idem.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// of returns the events of one kind.
func (r *recorder) of(kind idem.EventKind) []idem.Event {
	return slices.DeleteFunc(r.all(), func(e idem.Event) bool { return e.Kind != kind })
}

func (r *recorder) wantKinds(t *testing.T, want ...idem.EventKind) {
	t.Helper()
	var got []idem.EventKind
	for _, e := range r.all() {
		got = append(got, e.Kind)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// wantErr fails unless err matches all of targets; without targets it must be
// nil.
func wantErr(t *testing.T, err error, targets ...error) {
	t.Helper()
	if len(targets) == 0 && err != nil {
		t.Errorf("err = %v, want nil", err)
	}
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("err = %v, want %v", err, target)
		}
	}
}

func notErr(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if errors.Is(err, target) {
			t.Errorf("err = %v, must not be %v", err, target)
		}
	}
}

// wantResult compares what a caller acts on.
func wantResult[T any](t *testing.T, got idem.Result[T], value T, status idem.Status, replayed bool) {
	t.Helper()
	type answer struct {
		Value    T
		Status   idem.Status
		Replayed bool
	}
	if diff := cmp.Diff(answer{value, status, replayed}, answer{got.Value, got.Status, got.Replayed}); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
}

// abandon leaves the claim that a crashed owner would leave.
func abandon(t *testing.T, store idem.Store, key idem.Key, payload any, opts ...idem.Option) {
	t.Helper()
	_, err := idem.Do(t.Context(), store, key, payload, returns("", 0, idem.Unknown(nil)).fn, opts...)
	wantErr(t, err, idem.ErrOutcomeUnknown)
}

// record returns the record of testKey.
func record(t *testing.T, store idem.Store) idem.Record {
	t.Helper()
	key, err := testKey.Normalize()
	if err != nil {
		t.Fatal(err)
	}
	rec, found, err := store.Lookup(t.Context(), key)
	if err != nil || !found {
		t.Fatalf("Lookup: found %v, %v", found, err)
	}
	return rec
}

// pass lets time go by, in a synctest bubble.
func pass(d time.Duration) { <-time.After(d) }

// passOr lets time go by until ctx ends, as a store on a network does.
func passOr(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// goes starts f and returns a function that waits for its end.
func goes(f func()) (wait func()) {
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	return func() { <-done }
}
