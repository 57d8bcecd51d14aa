package idemhttp_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/memstore"
)

// client has connections of its own: each httptest.Server that closes closes
// the idle ones of http.DefaultTransport, and a request that has just taken one
// of them fails.
var client = &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}

// userOf takes the user from a header, as only a test may.
func userOf(r *http.Request) (string, error) {
	if user := r.Header.Get("X-User"); user != "" {
		return user, nil
	}
	return "", errors.New("secret reason")
}

// serve serves a handler over loopback.
func serve(t testing.TB, h http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server
}

// once serves a handler behind the middleware, on a store of its own.
func once(t testing.TB, h http.HandlerFunc, opts ...idemhttp.Option) *httptest.Server {
	t.Helper()
	return serve(t, idemhttp.Middleware(memstore.New(), userOf, opts...)(h))
}

// counted counts the calls of a handler.
func counted(n *atomic.Int64, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		h(w, r)
	}
}

// created answers as the handler of a create does.
func created(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Location", "/things/1")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	io.WriteString(w, `{"id":1}`)
}

// answer is what came back.
type answer struct {
	Status int
	Header http.Header
	Body   string
}

func (a answer) code() string {
	_, code, _ := strings.Cut(a.Body, `"code":"`)
	code, _, _ = strings.Cut(code, `"`)
	return code
}

func (a answer) replayed() bool { return a.Header.Get("Idempotent-Replayed") == "true" }

// change is something about a request that is not as usual.
type change func(*http.Request)

func header(name string, values ...string) change {
	return func(r *http.Request) {
		r.Header.Del(name)
		for _, v := range values {
			r.Header.Add(name, v)
		}
	}
}

func method(m string) change { return func(r *http.Request) { r.Method = m } }

func newRequest(t testing.TB, url, key, body string, changes ...change) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-User", "alice")
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	for _, c := range changes {
		c(req)
	}
	return req
}

// post sends a POST with a key and returns the answer.
func post(t testing.TB, url, key, body string, changes ...change) answer {
	t.Helper()
	return do(t, client, newRequest(t, url, key, body, changes...))
}

func do(t testing.TB, client *http.Client, req *http.Request) answer {
	t.Helper()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(body)}
}

// wantReplay checks that again is first, byte for byte, and marked.
func wantReplay(t *testing.T, first, again answer) {
	t.Helper()
	if first.replayed() || !again.replayed() {
		t.Errorf("marked as a replay: first %v, again %v", first.replayed(), again.replayed())
	}
	if diff := cmp.Diff(first.comparable(), again.comparable()); diff != "" {
		t.Errorf("replay (-first +again):\n%s", diff)
	}
}

func (a answer) comparable() answer {
	a.Header = a.Header.Clone()
	a.Header.Del("Idempotent-Replayed")
	a.Header.Del("Date")
	return a
}

// wantProblem checks an answer's status and code, and that it is a problem
// document that links to its description.
func wantProblem(t *testing.T, got answer, status int, code string) {
	t.Helper()
	if got.Status != status || got.code() != code {
		t.Errorf("got %d with code %q, want %d with %q: %s", got.Status, got.code(), status, code, got.Body)
	}
	if ct := got.Header.Get("Content-Type"); ct != "application/problem+json" {
		t.Errorf("Content-Type is %q, want application/problem+json", ct)
	}
	if !strings.Contains(got.Body, `"type":"https://`) || !strings.Contains(got.Body, "docs/http.md#"+code) {
		t.Errorf("the type does not link to the description: %s", got.Body)
	}
}

func wantRuns(t *testing.T, runs *atomic.Int64, want int64) {
	t.Helper()
	if got := runs.Load(); got != want {
		t.Errorf("the handler ran %d times, want %d", got, want)
	}
}
