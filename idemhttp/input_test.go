package idemhttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/memstore"
)

// countingStore counts the claims that reach it.
type countingStore struct {
	idem.Store
	requests atomic.Int64
}

func (s *countingStore) Claim(ctx context.Context, req idem.ClaimRequest) (idem.Record, error) {
	s.requests.Add(1)
	return s.Store.Claim(ctx, req)
}

// form returns a form with a file under a boundary.
func form(t *testing.T, boundary, note, file, content string) (body string, ct change) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	if err := w.SetBoundary(boundary); err != nil {
		t.Fatal(err)
	}
	w.WriteField("note", note)
	part, _ := w.CreateFormFile("file", file)
	io.WriteString(part, content)
	w.Close()
	return b.String(), header("Content-Type", w.FormDataContentType())
}

func TestB85RequestsAreComparedByWhatTheySay(t *testing.T) {
	t.Parallel()
	type req struct {
		path, body string
		change     change
	}
	js := func(body string) req { return req{"/a?x=1", body, header("Content-Type", "application/json")} }
	typed := func(ct, body string) req { return req{"/a?x=1", body, header("Content-Type", ct)} }
	multi := func(boundary, note, file, content string) req {
		body, ct := form(t, boundary, note, file, content)
		return req{"/a?x=1", body, ct}
	}
	for name, tc := range map[string]struct {
		a, b req
		same bool
	}{
		"JSON, other order and spaces":      {js(`{"a":1,"b":[1,2]}`), js("{ \"b\":[1,2],\n\"a\":1.0 }"), true},
		"JSON, other order in a list":       {js(`[1,2]`), js(`[2,1]`), false},
		"JSON, large numbers":               {js(`9007199254740993`), js(`9007199254740992`), false},
		"JSON with and without charset":     {js(`{"a":1}`), typed("application/json; charset=utf-8", `{"a":1}`), true},
		"+json is JSON":                     {typed("application/x+json", `{"a":1}`), typed("Application/X+JSON", ` {"a":1}`), true},
		"malformed JSON is bytes, equal":    {js(`{"a":`), js(`{"a":`), true},
		"malformed JSON is bytes, not":      {js(`{"a":`), js(`{"a": `), false},
		"repeated names are bytes":          {js(`{"a":1,"a":2}`), js(`{"a":2,"a":1}`), false},
		"malformed and well-formed":         {js(`{"a":`), js(`{"a":1}`), false},
		"text is bytes":                     {typed("text/plain", `{"a":1}`), typed("text/plain", `{ "a":1}`), false},
		"same text":                         {typed("text/plain", "a\x00\xff"), typed("text/plain", "a\x00\xff"), true},
		"same bytes of another type":        {typed("text/plain", "a"), typed("text/html", "a"), false},
		"no type":                           {typed("", "a"), typed("", "a"), true},
		"a type that is none":               {typed("\xff;;", "a"), typed("\xff;;", "a"), true},
		"multipart, another boundary":       {multi("one", "n", "f", "x"), multi("two", "n", "f", "x"), true},
		"multipart, another field":          {multi("one", "n", "f", "x"), multi("one", "m", "f", "x"), false},
		"multipart, another file name":      {multi("one", "n", "f", "x"), multi("one", "n", "g", "x"), false},
		"multipart, other content":          {multi("one", "n", "f", "x"), multi("one", "n", "f", "y"), false},
		"multipart, moved between fields":   {multi("one", "na", "f", "x"), multi("one", "n", "f", "ax"), false},
		"no body":                           {js(""), js(""), true},
		"no body, whatever type it is of":   {typed("", ""), js(""), true},
		"no body and an empty object":       {js(""), js("{}"), false},
		"another path":                      {js("{}"), req{"/b?x=1", "{}", header("Accept", "*/*")}, false},
		"a slash and one in a segment":      {req{"/a/b", "", header("Accept", "*/*")}, req{"/a%2Fb", "", header("Accept", "*/*")}, false},
		"another query":                     {js("{}"), req{"/a?x=2", "{}", header("Accept", "*/*")}, false},
		"headers besides are not compared":  {js("{}"), req{"/a?x=1", "{}", header("User-Agent", "other")}, true},
		"compressed JSON is bytes":          {js("{}"), req{"/a?x=1", "{}", header("Content-Encoding", "gzip")}, false},
		"same path, spelt with escapes":     {req{"/%61", "", header("Accept", "*/*")}, req{"/a", "", header("Accept", "*/*")}, false},
		"a JSON string is not its raw text": {js(`"x"`), typed("text/plain", `"x"`), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var bodies []string
			server := once(t, func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil || r.ContentLength != int64(len(body)) {
					t.Errorf("the body reached the handler with length %d of %d, %v", len(body), r.ContentLength, err)
				}
				bodies = append(bodies, string(body))
			})
			post(t, server.URL+tc.a.path, "k", tc.a.body, tc.a.change)
			again := post(t, server.URL+tc.b.path, "k", tc.b.body, tc.b.change)
			if tc.same != again.replayed() {
				t.Errorf("same is %v, the repetition got %d %s", tc.same, again.Status, again.Body)
			}
			if !tc.same {
				wantProblem(t, again, 422, idemhttp.CodePayloadMismatch)
			}
			if diff := cmp.Diff([]string{tc.a.body}, bodies); diff != "" {
				t.Errorf("body as the handler saw it (-want +got):\n%s", diff)
			}
		})
	}
}

func TestB85SafeMethodsPassThrough(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	server := once(t, counted(&runs, created), idemhttp.RequireKey())
	for _, m := range []string{"GET", "HEAD", "OPTIONS"} {
		for range 2 {
			if got := post(t, server.URL, "k", "", method(m)); got.Status != 201 || got.replayed() {
				t.Errorf("%s: %v", m, got)
			}
		}
	}
	wantRuns(t, &runs, 6)
	for _, m := range []string{"PUT", "PATCH", "DELETE", "MERGE"} {
		wantReplay(t, post(t, server.URL, "k", "{}", method(m)), post(t, server.URL, "k", "{}", method(m)))
	}
	wantRuns(t, &runs, 10)
}

// TestFingerprintIsPinned fails when a release would take retries of requests
// that an older one recorded for other requests.
func TestFingerprintIsPinned(t *testing.T) {
	t.Parallel()
	multi, multiType := form(t, "b", "n", "f", "x")
	for name, tc := range map[string]struct {
		body   string
		change change
		want   string
	}{
		"none":      {"", header("Accept", "*/*"), "1887054cd60c8b38af4846b55919f2333ccbf1bc255067516b9eb8b82bff3537"},
		"JSON":      {`{"b":1,"a":2}`, header("Accept", "*/*"), "8e0dc979c4320c34ffc661180f52bfd2fe86d8e3f33745d5243363a7fce716c8"},
		"bytes":     {"x", header("Content-Type", "text/plain; a=b"), "78d01268b2f64b546b4d42aaf991fb80ef31d497a1a688451eda06b4df3c9e19"},
		"multipart": {multi, multiType, "a5a53889f6f020bac78b59fea25de1abe9353cc6f6efed07be9e24a699ece4d0"},
	} {
		store := &claimSpy{Store: memstore.New()}
		server := serve(t, idemhttp.Middleware(store, userOf)(http.HandlerFunc(created)))
		post(t, server.URL+"/a%2Fb?x=1", "k", tc.body, tc.change)
		if got := store.claim.Load().Hash.Sum; got != tc.want {
			t.Errorf("%s: the hash is %s, want %s", name, got, tc.want)
		}
	}
}

type claimSpy struct {
	idem.Store
	claim atomic.Pointer[idem.ClaimRequest]
}

func (s *claimSpy) Claim(ctx context.Context, req idem.ClaimRequest) (idem.Record, error) {
	s.claim.Store(&req)
	return s.Store.Claim(ctx, req)
}

func TestBadInputLeavesNoRecord(t *testing.T) {
	t.Parallel()
	store := &countingStore{Store: memstore.New()}
	var runs atomic.Int64
	server := httptest.NewUnstartedServer(idemhttp.Middleware(store, userOf, idemhttp.WithMaxBodyBytes(1000))(counted(&runs, created)))
	server.Config.MaxHeaderBytes = 4 << 20 // net/http's own limit is lower
	server.Start()
	t.Cleanup(server.Close)
	good, ct := form(t, "b", "n", "f", "x")
	chunked := func(r *http.Request) {
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(strings.Repeat("x", 1001))), -1
	}
	for name, tc := range map[string]struct {
		body    string
		changes []change
		status  int
		code    string
	}{
		"malformed multipart":       {good[:len(good)-10], []change{ct}, 400, idemhttp.CodeInvalidRequest},
		"multipart, no boundary":    {good, []change{header("Content-Type", "multipart/form-data")}, 400, idemhttp.CodeInvalidRequest},
		"multipart, other boundary": {good, []change{header("Content-Type", "multipart/form-data; boundary=other")}, 400, idemhttp.CodeInvalidRequest},
		"bad UTF-8 in the query":    {"{}", []change{func(r *http.Request) { r.URL.RawQuery = "a=\xff" }}, 400, idemhttp.CodeInvalidRequest},
		"body too large":            {strings.Repeat("x", 1001), nil, 413, idemhttp.CodePayloadTooLarge},
		"too large, of no length":   {"", []change{chunked}, 413, idemhttp.CodePayloadTooLarge},
		"a header of 1 MB":          {"{}", []change{header("Idempotency-Key", strings.Repeat("k", 1<<20))}, 400, idemhttp.CodeInvalidKey},
		"no user":                   {"{}", []change{header("X-User")}, 401, idemhttp.CodeUnauthenticated},
	} {
		t.Run(name, func(t *testing.T) {
			got := post(t, server.URL, "k", tc.body, tc.changes...)
			wantProblem(t, got, tc.status, tc.code)
			if strings.Contains(got.Body, "secret reason") {
				t.Errorf("the user function's error is shown: %s", got.Body)
			}
		})
	}
	t.Run("broken upload", func(t *testing.T) {
		answered := make(chan answer, 1)
		broken := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			w := httptest.NewRecorder() // the client that broke off reads no answer
			idemhttp.Middleware(store, userOf)(counted(&runs, created)).ServeHTTP(w, r)
			answered <- written(w)
		}))
		defer broken.Close()
		conn, err := net.Dial("tcp", broken.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: x\r\nX-User: alice\r\nIdempotency-Key: k\r\nContent-Length: 100\r\n\r\nhalf")
		conn.Close()
		wantProblem(t, <-answered, 400, idemhttp.CodeInvalidRequest)
	})
	if n := store.requests.Load(); n != 0 {
		t.Errorf("%d claims reached the store", n)
	}
	wantRuns(t, &runs, 0)
}

func TestScope(t *testing.T) {
	t.Parallel()
	store := &claimSpy{Store: memstore.New()}
	once := idemhttp.Middleware(store, userOf)
	h := once(http.HandlerFunc(created))
	long := "/" + strings.Repeat("x", 120)
	mux := http.NewServeMux()
	mux.Handle("POST /with/{id}", h)
	mux.Handle("/any/{id}", h)
	mux.Handle("POST "+long, h)
	server, inFront := serve(t, mux), serve(t, once(mux))
	for _, tc := range []struct{ url, want string }{
		{server.URL + "/with/7", "POST /with/{id}"},
		{server.URL + "/any/7", "POST /any/{id}"},
		{server.URL + long, "sha256:"},
		{inFront.URL + "/none/7", "POST"},
	} {
		post(t, tc.url, tc.want, "{}")
		if got := store.claim.Load().Key.Scope; got != tc.want && (tc.want != "sha256:" || !strings.HasPrefix(got, tc.want) || len(got) != 71) {
			t.Errorf("%s: scope %q, want %q", tc.url, got, tc.want)
		}
	}
}

func TestUserFunctionsThatAreWrong(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		user   string
		status int
		code   string
	}{
		{"", 401, idemhttp.CodeUnauthenticated},
		{"\xff", 500, idemhttp.CodeMisconfigured},
	} {
		h := idemhttp.Middleware(memstore.New(), func(*http.Request) (string, error) { return tc.user, nil })
		wantProblem(t, post(t, serve(t, h(http.HandlerFunc(created))).URL, "k", "{}"), tc.status, tc.code)
	}
}

func TestFingerprintFunction(t *testing.T) {
	t.Parallel()
	server := once(t, created, idemhttp.WithFingerprint(func(r *http.Request, body []byte) (any, error) {
		if len(body) == 0 {
			return nil, errors.New("secret reason")
		}
		return body[:1], nil
	}))
	wantReplay(t, post(t, server.URL, "k", "ab"), post(t, server.URL, "k", "ac"))
	wantProblem(t, post(t, server.URL, "k", "bb"), 422, idemhttp.CodePayloadMismatch)
	wantProblem(t, post(t, server.URL, "k", ""), 400, idemhttp.CodeInvalidRequest)
}
