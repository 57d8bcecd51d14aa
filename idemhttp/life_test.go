package idemhttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/memstore"
)

// call sends a request without a network, which synctest cannot wait for.
func call(t testing.TB, h http.Handler, key, body string) answer {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, newRequest(t, "/", key, body))
	return written(w)
}

// written returns what was sent, not what was set later.
func written(w *httptest.ResponseRecorder) answer {
	return answer{w.Code, w.Result().Header, w.Body.String()}
}

func TestInProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int64
		h := idemhttp.Middleware(memstore.New(), userOf)(counted(&runs, func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Hour) // the bubble's
			created(w, r)
		}))
		done := make(chan answer)
		go func() { done <- call(t, h, "k", "{}") }()
		synctest.Wait()
		busy := call(t, h, "k", "{}")
		wantProblem(t, busy, 409, idemhttp.CodeInProgress)
		if after, err := strconv.Atoi(busy.Header.Get("Retry-After")); err != nil || after < 1 || after > 2 {
			t.Errorf("Retry-After is %q", busy.Header.Get("Retry-After"))
		}
		wantProblem(t, call(t, h, "k", "[]"), 422, idemhttp.CodePayloadMismatch)
		wantReplay(t, <-done, call(t, h, "k", "{}"))
		wantRuns(t, &runs, 1)
	})
}

func TestWaitingForTheAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := idemhttp.Middleware(memstore.New(), userOf, idemhttp.WithDo(idem.WithWait(10*time.Second)))(
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(5 * time.Second)
				created(w, r)
			}))
		done := make(chan answer)
		go func() { done <- call(t, h, "k", "{}") }()
		synctest.Wait()
		again := call(t, h, "k", "{}")
		wantReplay(t, <-done, again)
	})
}

func TestRetentionEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := idemhttp.Middleware(memstore.New(), userOf, idemhttp.WithDo(idem.WithRetention(time.Hour)))(http.HandlerFunc(created))
		call(t, h, "k", "{}")
		time.Sleep(time.Hour - time.Second)
		if !call(t, h, "k", "{}").replayed() {
			t.Error("not replayed within the retention")
		}
		time.Sleep(2 * time.Second)
		if call(t, h, "k", "{}").replayed() {
			t.Error("replayed after the retention")
		}
	})
}

func TestOutcomeUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := idemhttp.Middleware(memstore.New(), userOf, idemhttp.WithDo(idem.WithStale(idem.Refuse)))(
			http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
		func() {
			defer func() { recover() }()
			call(t, h, "k", "{}")
		}()
		time.Sleep(2 * time.Minute)
		got := call(t, h, "k", "{}")
		wantProblem(t, got, 409, idemhttp.CodeOutcomeUnknown)
		if got.Header.Get("Retry-After") != "" {
			t.Error("the client is invited to retry")
		}
	})
}

func TestCrashesKeptByStoreAll(t *testing.T) {
	t.Parallel()
	h := idemhttp.Middleware(memstore.New(), userOf, idemhttp.WithDo(idem.WithDisposition(idem.StoreAll)))(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("boom") }))
	func() {
		defer func() { recover() }()
		call(t, h, "k", "{}")
	}()
	got := call(t, h, "k", "{}")
	wantProblem(t, got, 500, idemhttp.CodeExecutionFailed)
	if !got.replayed() {
		t.Error("not marked as a replay")
	}
}

// flakyStore fails as it is told.
type flakyStore struct {
	idem.Store
	claim, complete error
	garble          bool
}

func (s *flakyStore) Claim(ctx context.Context, req idem.ClaimRequest) (idem.Record, error) {
	if s.claim != nil {
		return idem.Record{}, s.claim
	}
	rec, err := s.Store.Claim(ctx, req)
	if s.garble && rec.State != idem.Processing {
		rec.Response.Body = []byte("garbage")
	}
	return rec, err
}

func (s *flakyStore) Complete(ctx context.Context, req idem.CompleteRequest) (time.Time, error) {
	if s.complete != nil {
		return time.Time{}, s.complete
	}
	return s.Store.Complete(ctx, req)
}

func TestStoreIsDown(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	store := &flakyStore{Store: memstore.New(), claim: idem.Permanent(errors.New("secret host"))}
	h := idemhttp.Middleware(store, userOf)(counted(&runs, created))
	got := call(t, h, "k", "{}")
	wantProblem(t, got, 503, idemhttp.CodeUnavailable)
	if got.Header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After is %q", got.Header.Get("Retry-After"))
	}
	wantRuns(t, &runs, 0)
}

func TestRanButNotRecorded(t *testing.T) {
	t.Parallel()
	store := &flakyStore{Store: memstore.New(), complete: idem.Permanent(errors.New("full"))}
	server := serve(t, idemhttp.Middleware(store, userOf)(http.HandlerFunc(created)))
	got := post(t, server.URL, "k", "{}")
	if got.Status != 201 || got.Body != `{"id":1}` || got.Header.Get("Idempotency-Recorded") != "false" {
		t.Errorf("the caller got %v", got)
	}
	wantProblem(t, post(t, server.URL, "k", "{}"), 409, idemhttp.CodeInProgress)

	t.Run("a stream says so in a trailer", func(t *testing.T) {
		server := serve(t, idemhttp.Middleware(store, userOf)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			created(w, r)
			w.(http.Flusher).Flush()
		})))
		resp, err := client.Do(newRequest(t, server.URL, "stream", "{}"))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		io.Copy(io.Discard, resp.Body)
		if resp.Trailer.Get("Idempotency-Recorded") != "false" {
			t.Errorf("the trailer is %v", resp.Trailer)
		}
	})
	t.Run("so does a Handler", func(t *testing.T) {
		h := idemhttp.Handler(store, userOf, func(*idemhttp.Request[struct{}]) (int, idem.Status, error) { return 7, 201, nil })
		if got := call(t, h, "typed", "{}"); got.Status != 201 || got.Body != "7" || got.Header.Get("Idempotency-Recorded") != "false" {
			t.Errorf("the caller got %v", got)
		}
	})
}

func TestAnotherOwnerTookOver(t *testing.T) {
	t.Parallel()
	store := &flakyStore{Store: memstore.New(), complete: idem.ErrLeaseLost}
	h := idemhttp.Middleware(store, userOf)(http.HandlerFunc(created))
	got := call(t, h, "k", "{}")
	wantProblem(t, got, 409, idemhttp.CodeLeaseLost)
	if got.Header.Get("Location") != "" || got.Header.Get("Retry-After") != "1" {
		t.Errorf("the headers are %v", got.Header)
	}
	typed := idemhttp.Handler(store, userOf, func(*idemhttp.Request[struct{}]) (int, idem.Status, error) { return 7, 201, nil })
	wantProblem(t, call(t, typed, "typed", "{}"), 409, idemhttp.CodeLeaseLost)
}

func TestUnreadableRecord(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	store := &flakyStore{Store: memstore.New(), garble: true}
	h := idemhttp.Middleware(store, userOf)(counted(&runs, created))
	call(t, h, "k", "{}")
	wantProblem(t, call(t, h, "k", "{}"), 500, idemhttp.CodeUnreadable)
	wantRuns(t, &runs, 1)
}

func TestCallersThatAreGone(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	h := idemhttp.Middleware(memstore.New(), userOf)(counted(&runs, created))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, newRequest(t, "/", "k", "{}").WithContext(ctx))
	wantProblem(t, written(w), 503, idemhttp.CodeUnavailable)
	wantRuns(t, &runs, 0)
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	server := once(t, counted(&runs, created))
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			if got := post(t, server.URL, "k", "{}"); got.Status != 201 && got.Status != 409 || got.Status == 201 && got.Body != `{"id":1}` {
				t.Errorf("got %v", got)
			}
		})
	}
	wg.Wait()
	wantRuns(t, &runs, 1)
}
