// Package httpstack shows the middleware among others: under chi, under
// otelhttp, and behind the standard library's own.
package httpstack

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/memstore"
)

// client has connections of its own: a test server that closes would close idle
// ones of http.DefaultTransport under another test's request.
var client = &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}

func alice(*http.Request) (string, error) { return "alice", nil }

// scopes keeps the scopes of the events that it observes.
type scopes chan string

func (s scopes) observe(_ context.Context, e idem.Event) { s <- string(e.Kind) + " " + e.Scope }

type reply struct {
	Status   int
	Replayed bool
	Body     string
}

func post(t *testing.T, url, key string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", key)
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header.Get("Idempotent-Replayed") == "true", string(body)}
}

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

func want[T any](t *testing.T, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestChi(t *testing.T) {
	t.Parallel()
	seen := make(scopes, 10)
	once := idemhttp.Middleware(memstore.New(), alice, idemhttp.WithDo(idem.WithObserver(seen.observe)))
	pay := func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "account %s, run %d", chi.URLParam(r, "id"), idem.Attempt(r.Context()))
	}

	r := chi.NewRouter()
	r.Use(middleware.RequestID, middleware.Compress(5), middleware.Recoverer)
	r.With(once).Post("/accounts/{id}/payments", pay)
	r.Route("/nested/{id}", func(r chi.Router) {
		r.Use(once)
		r.Post("/payments", pay)
	})
	url := serve(t, r)

	for _, path := range []string{"/accounts/7/payments", "/nested/7/payments"} {
		want(t, reply{201, false, "account 7, run 1"}, post(t, url+path, path))
		want(t, reply{201, true, "account 7, run 1"}, post(t, url+path, path))
	}
	want(t, "executed POST /accounts/{id}/payments", <-seen)
	want(t, "replayed POST /accounts/{id}/payments", <-seen)
	// A sub-router's middlewares run before its routes are known.
	want(t, "executed POST /nested/{id}/*", <-seen)
	want(t, 422, post(t, url+"/accounts/8/payments", "/accounts/7/payments").Status)
}

func TestChiRecovererAnswersAPanic(t *testing.T) {
	t.Parallel()
	r := chi.NewRouter()
	r.Use(quietRecoverer)
	r.With(idemhttp.Middleware(memstore.New(), alice)).Post("/", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "half")
		panic("boom")
	})
	url := serve(t, r)
	want(t, 500, post(t, url, "k").Status) // not 201 with half an answer
	want(t, 409, post(t, url, "k").Status) // held
}

// quietRecoverer is chi's without the stack trace in the test's output.
func quietRecoverer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if recover() != nil {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

func TestOtelhttp(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	var inner atomic.Value
	mux := http.NewServeMux()
	mux.Handle("POST /payments/{id}", idemhttp.Middleware(memstore.New(), alice)(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			inner.Store(trace.SpanContextFromContext(r.Context()).SpanID())
			w.WriteHeader(http.StatusCreated)
			io.WriteString(w, "paid")
		})))
	server := httptest.NewServer(otelhttp.NewHandler(mux, "api", otelhttp.WithTracerProvider(provider)))
	want(t, reply{201, false, "paid"}, post(t, server.URL+"/payments/1", "k"))
	want(t, reply{201, true, "paid"}, post(t, server.URL+"/payments/1", "k"))
	server.Close() // the spans have ended then

	ended := spans.Ended()
	if len(ended) != 2 {
		t.Fatalf("%d spans, want one for each request", len(ended))
	}
	want(t, ended[0].SpanContext().SpanID(), inner.Load().(trace.SpanID))
	for _, span := range ended {
		attrs := map[string]string{}
		for _, kv := range span.Attributes() {
			attrs[string(kv.Key)] = kv.Value.String()
		}
		want(t, "201", attrs["http.response.status_code"])
		want(t, "4", attrs["http.response.body.size"])
	}
}

func TestTimeoutHandlerDoesNotLoseTheAnswer(t *testing.T) {
	t.Parallel()
	goOn, done := make(chan bool), make(chan bool, 1)
	h := idemhttp.Middleware(memstore.New(), alice)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-goOn
		io.WriteString(w, "late")
	}))
	signal := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		if r.Header.Get("Idempotency-Key") == "k" {
			select {
			case done <- true:
			default:
			}
		}
	})
	url := serve(t, http.TimeoutHandler(signal, 100*time.Millisecond, "timed out"))
	want(t, reply{503, false, "timed out"}, post(t, url, "k"))
	close(goOn)
	<-done
	want(t, reply{200, true, "late"}, post(t, url, "k"))
}
