package idemhttp_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/memstore"
)

func TestParseKey(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		lines []string
		want  string // "" is an error
	}{
		{[]string{`abc`}, "abc"},
		{[]string{`"abc"`}, "abc"},
		{[]string{` "abc"	`}, "abc"},
		{[]string{`"a\"b\\c"`}, `a"b\c`},
		{[]string{`" abc "`}, "abc"}, // as idem.Key.Normalize trims it
		{[]string{`a b`}, "a b"},
		{[]string{`a;b=c/d:e\f`}, `a;b=c/d:e\f`},
		{[]string{`"a,b"`}, "a,b"},
		{[]string{strings.Repeat("k", 255)}, strings.Repeat("k", 255)},
		{[]string{`"` + strings.Repeat(`\"`, 255) + `"`}, strings.Repeat(`"`, 255)},

		{nil, ""},
		{[]string{``}, ""},
		{[]string{`  `}, ""},
		{[]string{`""`}, ""},
		{[]string{`"  "`}, ""},
		{[]string{`abc`, `abc`}, ""},
		{[]string{`abc`, ``}, ""},
		{[]string{`a, b`}, ""},     // two headers, joined by a proxy
		{[]string{`"a", "b"`}, ""}, // likewise
		{[]string{`"abc`}, ""},
		{[]string{`abc"`}, ""},
		{[]string{`"`}, ""},
		{[]string{`"a"b"`}, ""},
		{[]string{`"abc\"`}, ""},
		{[]string{`"a\bc"`}, ""},
		{[]string{`"abc";p=1`}, ""}, // the draft defines no parameters
		{[]string{"a\x00b"}, ""},
		{[]string{"a\nlevel=error"}, ""},
		{[]string{"a\u200fb"}, ""},
		{[]string{"é"}, ""},
		{[]string{"\xff"}, ""},
		{[]string{"\"a\tb\""}, ""},
		{[]string{strings.Repeat("k", 256)}, ""},
		{[]string{`"` + strings.Repeat("k", 256) + `"`}, ""},
		{[]string{strings.Repeat("k", 1<<20)}, ""},
		{[]string{`"` + strings.Repeat(`\\`, 1<<20)}, ""},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header["Idempotency-Key"] = tc.lines
		got, err := idemhttp.ParseKey(r)
		if got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("ParseKey(%.100q) = %.100q, %v, want %.100q", tc.lines, got, err, tc.want)
		}
		if err != nil {
			if p := idemhttp.ProblemFor(err); p.Status != 400 || p.Code != idemhttp.CodeInvalidKey {
				t.Errorf("%.100q: the problem is %d %s", tc.lines, p.Status, p.Code)
			}
		}
	}
}

func FuzzKeyHeader(f *testing.F) {
	for _, seed := range []string{`abc`, `"abc"`, `"a\"b\\"`, `"a", "b"`, `"a";p`, " ", "\xff", `"\`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		parse := func(line string) (string, error) {
			return idemhttp.ParseKey(&http.Request{Header: http.Header{"Idempotency-Key": {line}}})
		}
		key, err := parse(line)
		if err != nil {
			if key != "" {
				t.Fatalf("a key %q came with an error", key)
			}
			return
		}
		normal, err := idem.Key{User: "u", Scope: "s", Key: key}.Normalize()
		if err != nil || normal.Key != key || !utf8.ValidString(key) {
			t.Fatalf("idem sees another key in %q: %q, %v", key, normal.Key, err)
		}
		quoted := `"` + strings.NewReplacer(`"`, `\"`, `\`, `\\`).Replace(key) + `"`
		if again, err := parse(quoted); again != key || err != nil {
			t.Fatalf("%s means %q (%v), want %q", quoted, again, err, key)
		}
	})
}

func TestB93EmptyOrMisspeltKeyIsNotNoKey(t *testing.T) {
	t.Parallel()
	const no, bad, fine = "passes through", "400", "recorded"
	for name, tc := range map[string]struct {
		changes            []change
		optional, required string
	}{
		"no header":         {nil, no, bad},
		"empty header":      {[]change{header("Idempotency-Key", "")}, bad, bad},
		"empty string":      {[]change{header("Idempotency-Key", `""`)}, bad, bad},
		"doubled":           {[]change{header("Idempotency-Key", "a", "a")}, bad, bad},
		"with underscore":   {[]change{header("Idempotency_Key", "a")}, no, bad},
		"with X-":           {[]change{header("X-Idempotency-Key", "a")}, no, bad},
		"as it should be":   {[]change{header("Idempotency-Key", "a")}, fine, fine},
		"GET is untouched":  {[]change{method("GET"), header("Idempotency-Key", "")}, no, no},
		"OPTIONS untouched": {[]change{method("OPTIONS"), header("Idempotency-Key", "")}, no, no},
	} {
		for mode, want := range map[string]string{"optional": tc.optional, "required": tc.required} {
			t.Run(name+", "+mode, func(t *testing.T) {
				t.Parallel()
				var opts []idemhttp.Option
				if mode == "required" {
					opts = append(opts, idemhttp.RequireKey())
				}
				var runs atomic.Int64
				server := once(t, counted(&runs, created), opts...)
				got := post(t, server.URL, "", "{}", tc.changes...)
				again := post(t, server.URL, "", "{}", tc.changes...)
				switch want {
				case bad:
					wantProblem(t, got, 400, idemhttp.CodeInvalidKey)
					wantRuns(t, &runs, 0)
				case no:
					wantRuns(t, &runs, 2)
				case fine:
					wantReplay(t, got, again)
				}
			})
		}
	}
}

func TestB95HeaderNamesHaveNoCase(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	h := idemhttp.Middleware(memstore.New(), func(*http.Request) (string, error) { return "alice", nil })(counted(&runs, created))

	plain := serve(t, h)
	for i, name := range []string{"idempotency-key", "IDEMPOTENCY-KEY", "Idempotency-Key", "iDEMPOTENCY-kEY"} {
		conn, err := net.Dial("tcp", plain.Listener.Addr().String()) // a client would write the name its own way
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n%s: k\r\n\r\n", name)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		conn.Close()
		if got, want := resp.Header.Get("Idempotent-Replayed") == "true", i > 0; got != want {
			t.Errorf("HTTP/1.1, %s: replayed is %v, want %v", name, got, want)
		}
	}

	two := httptest.NewUnstartedServer(h)
	two.EnableHTTP2 = true
	two.StartTLS()
	t.Cleanup(two.Close)
	for _, name := range []string{"idempotency-key", "IDEMPOTENCY-KEY", "Idempotency-Key"} {
		req := newRequest(t, two.URL, "", "")
		req.Header[name] = []string{"k"}
		resp, err := two.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.Proto != "HTTP/2.0" || resp.Header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%s, %s: not replayed", resp.Proto, name)
		}
	}
	wantRuns(t, &runs, 1)

	fake := httptest.NewRequest(http.MethodPost, "/", nil)
	fake.Header.Set("idempotency-key", "k")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, fake)
	if w.Header().Get("Idempotent-Replayed") != "true" {
		t.Error("a request made from a map: not replayed")
	}
}

func TestKeyHeaderNames(t *testing.T) {
	t.Parallel()
	server := once(t, created, idemhttp.WithKeyHeader("X-Request-Token", "Idempotency-Key"))
	first := post(t, server.URL, "k", "{}")
	wantReplay(t, first, post(t, server.URL, "", "{}", header("x-request-token", `"k"`)))
	wantProblem(t, post(t, server.URL, "k", "{}", header("X-Request-Token", "k")), 400, idemhttp.CodeInvalidKey)
}

func TestQuotedAndBareKeysAreTheSame(t *testing.T) {
	t.Parallel()
	server := once(t, created)
	wantReplay(t, post(t, server.URL, `a b`, "{}"), post(t, server.URL, `"a b"`, "{}"))
	wantReplay(t, post(t, server.URL, `"x\\y"`, "{}"), post(t, server.URL, `x\y`, "{}"))
}

func TestB103KeysThatForgeLogsAreRefused(t *testing.T) {
	t.Parallel()
	// net/http refuses some of these by itself, so they do not go by wire.
	store := &countingStore{Store: memstore.New()}
	h := idemhttp.Middleware(store, userOf)(http.HandlerFunc(created))
	for _, key := range []string{"a\x00b", "\xff", "a\nlevel=error", "a\u200fb", "\"a\x00b\"", "\"\xff\""} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("X-User", "alice")
		r.Header.Set("Idempotency-Key", key)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		wantProblem(t, written(w), 400, idemhttp.CodeInvalidKey)
		if strings.Contains(w.Body.String(), "level=error") {
			t.Errorf("the answer quotes the key: %s", w.Body)
		}
	}
	if n := store.requests.Load(); n != 0 {
		t.Errorf("%d requests reached the store", n)
	}
}

func TestB97UsersDoNotMeet(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	started, finish := make(chan bool), make(chan bool)
	store := memstore.New()
	server := serve(t, idemhttp.Middleware(store, userOf)(counted(&runs, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" && r.Header.Get("X-User") == "alice" {
			started <- true
			<-finish
		}
		fmt.Fprint(w, "for ", r.Header.Get("X-User"))
	})))
	bob := header("X-User", "bob")
	if a, b := post(t, server.URL, "k", "{}"), post(t, server.URL, "k", "{}", bob); a.Body != "for alice" || b.Body != "for bob" {
		t.Errorf("alice got %q, bob got %q", a.Body, b.Body)
	}
	wantRuns(t, &runs, 2)

	// Bob learns nothing about a key of Alice's: not its payload, not that it runs.
	post(t, server.URL, "done", `{"secret":1}`)
	slow := make(chan answer)
	go func() { slow <- post(t, server.URL+"/slow", "running", "{}") }()
	<-started
	fresh := post(t, server.URL, "fresh", `{"guess":1}`, bob)
	for _, key := range []string{"done", "running"} {
		got := post(t, server.URL, key, `{"guess":1}`, bob)
		if diff := cmp.Diff(fresh.comparable(), got.comparable()); diff != "" {
			t.Errorf("Bob can tell Alice's key %q from a fresh one:\n%s", key, diff)
		}
	}
	close(finish)
	<-slow
}

func TestB99PartsOfKeysAreNotJoined(t *testing.T) {
	t.Parallel()
	scope := idemhttp.WithScope(func(r *http.Request) string { return r.Header.Get("X-Scope") })
	var runs atomic.Int64
	server := once(t, counted(&runs, created), scope)
	n := int64(0)
	for _, sep := range []string{":", "_", "|", "/", "%3A", "*", "?", "[a]", `"`} {
		for _, k := range [][3]string{{"a", "b" + sep + "c", "d"}, {"a" + sep + "b", "c", "d"}, {"a", "b", "c" + sep + "d"}} {
			quoted := `"` + strings.ReplaceAll(k[2], `"`, `\"`) + `"`
			got := post(t, server.URL, quoted, "{}", header("X-User", k[0]), header("X-Scope", k[1]))
			if got.replayed() || got.Status != 201 {
				t.Errorf("%q met another key: %d", k, got.Status)
			}
			n++
		}
	}
	wantRuns(t, &runs, n)
}
