package idemhttp_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/codec"
	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/memstore"
)

var jsonCodec = codec.JSON{}

var errSoldOut = errors.New("internal: sold out")

type soldOut struct{}

func (soldOut) Error() string         { return "internal: query on host db7 found none" }
func (soldOut) PublicMessage() string { return "None is left." }
func (soldOut) Unwrap() error         { return errSoldOut }

// failing sends a request twice to a Handler that fails.
func failing(t *testing.T, key string) (first, again answer) {
	t.Helper()
	server := serve(t, idemhttp.Handler(memstore.New(), userOf, func(*idemhttp.Request[struct{}]) (int, idem.Status, error) {
		return 0, 409, fmt.Errorf("buying: %w", soldOut{})
	}, idemhttp.WithErrors(map[string]error{"sold_out": errSoldOut})))
	return post(t, server.URL, key, "{}"), post(t, server.URL, key, "{}")
}

type order struct {
	Item  string `json:"item"`
	Count int    `json:"count"`
}

type receipt struct {
	ID    string `json:"id"`
	Order order  `json:"order"`
}

func (r receipt) HTTPHeader() http.Header { return http.Header{"Location": {"/receipts/" + r.ID}} }

func TestHandler(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{shop}", idemhttp.Handler(memstore.New(), userOf,
		func(r *idemhttp.Request[order]) (receipt, idem.Status, error) {
			runs.Add(1)
			return receipt{r.PathValue("shop") + idem.ExecutionID(r.Context())[:1], r.Input}, 201, nil
		}))
	server := serve(t, mux)
	first := post(t, server.URL+"/orders/7", "k", `{"item":"tea","count":2}`)
	again := post(t, server.URL+"/orders/7", "k", `{"count":2, "item":"tea"}`)
	wantReplay(t, first, again)
	wantRuns(t, &runs, 1)
	if first.Status != 201 || first.Header.Get("Location") == "" || !strings.Contains(first.Body, `"order":{"item":"tea","count":2}`) {
		t.Errorf("the answer is %v", first)
	}
	wantProblem(t, post(t, server.URL+"/orders/8", "k", `{"item":"tea","count":2}`), 422, idemhttp.CodePayloadMismatch)
	for _, body := range []string{`{"item":`, `{"item":1}`, `{} {}`, `{"item":"a","item":"b"}`} {
		wantProblem(t, post(t, server.URL+"/orders/7", "bad", body), 400, idemhttp.CodeInvalidRequest)
	}
	if got := post(t, server.URL+"/orders/7", "bad", `{}`); got.Status != 201 {
		t.Errorf("a request that could not be read left a record: %d", got.Status)
	}
}

func TestHandlerWithoutKey(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	fn := func(r *idemhttp.Request[order]) (string, idem.Status, error) {
		runs.Add(1)
		return r.Input.Item + idem.ExecutionID(r.Context()), 0, nil
	}
	server := serve(t, idemhttp.Handler(memstore.New(), userOf, fn))
	for range 2 {
		if got := post(t, server.URL, "", `{"item":"tea"}`); got.Status != 200 || got.Body != `"tea"` {
			t.Errorf("got %v", got)
		}
	}
	wantRuns(t, &runs, 2)
	server = serve(t, idemhttp.Handler(memstore.New(), userOf, fn, idemhttp.RequireKey()))
	wantProblem(t, post(t, server.URL, "", `{}`), 400, idemhttp.CodeInvalidKey)
}

func TestHandlerFailures(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		status     idem.Status
		err        error
		wantStatus int
		wantCode   string
		replayed   bool
	}{
		"a final status":            {409, errors.New("internal"), 409, "request_failed", true},
		"a passing status":          {503, errors.New("internal"), 503, "request_failed", false},
		"no status":                 {0, errors.New("internal"), 500, "request_failed", false},
		"an error with a good one":  {201, errors.New("internal"), 500, "request_failed", false},
		"registered":                {402, errSoldOut, 402, "sold_out", true},
		"the outcome is not known":  {0, idem.Unknown(errors.New("internal")), 409, idemhttp.CodeOutcomeUnknown, false},
		"a status without an error": {404, nil, 404, "", true},
		"a passing one without":     {429, nil, 429, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := serve(t, idemhttp.Handler(memstore.New(), userOf, func(*idemhttp.Request[struct{}]) (string, idem.Status, error) {
				return "value", tc.status, tc.err
			}, idemhttp.WithErrors(map[string]error{"sold_out": errSoldOut})))
			first, again := post(t, server.URL, "k", "{}"), post(t, server.URL, "k", "{}")
			if first.Status != tc.wantStatus || first.code() != tc.wantCode || strings.Contains(first.Body, "internal") {
				t.Errorf("got %d %s", first.Status, first.Body)
			}
			if tc.replayed {
				wantReplay(t, first, again)
			} else if again.replayed() && name != "an error with a good one" {
				t.Errorf("it was replayed: %v", again)
			}
		})
	}
}

func TestHandlerOptions(t *testing.T) {
	t.Parallel()
	fn := func(*idemhttp.Request[struct{}]) (string, idem.Status, error) { return "", 0, nil }
	for name, f := range map[string]func(){
		"no function": func() { idemhttp.Handler[struct{}, string](memstore.New(), userOf, nil) },
		"WithPersist": func() {
			idemhttp.Handler(memstore.New(), userOf, fn, idemhttp.WithPersist(func(*http.Request, *idemhttp.Response) bool { return true }))
		},
		"an error, no code": func() {
			idemhttp.Handler(memstore.New(), userOf, fn, idemhttp.WithErrors(map[string]error{"": errSoldOut}))
		},
	} {
		wantPanic(t, name, f)
	}
}

// wantPanic checks that f panics because of a bad option.
func wantPanic(t *testing.T, name string, f func()) {
	t.Helper()
	defer func() {
		if err, ok := recover().(error); !ok || !errors.Is(err, idem.ErrInvalidOption) {
			t.Errorf("%s: want a panic with idem.ErrInvalidOption", name)
		}
	}()
	f()
}
