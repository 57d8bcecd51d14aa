package idemhttp_test

import (
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/memstore"
)

// noRedirect returns answers as they are.
var noRedirect = &http.Client{
	Transport:     client.Transport,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func TestB77StatusIsReplayed(t *testing.T) {
	t.Parallel()
	text := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			io.WriteString(w, body)
		}
	}
	for name, h := range map[string]http.HandlerFunc{
		"201":             created,
		"202 with a body": text(202, "later"),
		"204":             text(204, ""),
		"303": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/x")
			w.WriteHeader(http.StatusSeeOther)
		},
		"304":                     text(304, ""),
		"implicit with a body":    func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>sniffed") },
		"implicit without a body": func(http.ResponseWriter, *http.Request) {},
		"no sniffing wished": func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			io.WriteString(w, "<html>not sniffed")
		},
		"more than net/http buffers": text(200, strings.Repeat("x", 100_000)),
		"binary":                     text(200, "\x00\xff\xfe\r\n\r\n"),
		"404":                        text(404, "not there"),
		"599 is released but not lost": func(w http.ResponseWriter, r *http.Request) {
			text(200, "fine")(w, r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var runs atomic.Int64
			server := once(t, counted(&runs, h))
			first := do(t, noRedirect, newRequest(t, server.URL, "k", "{}"))
			again := do(t, noRedirect, newRequest(t, server.URL, "k", "{}"))
			wantReplay(t, first, again)
			wantRuns(t, &runs, 1)
			if first.Status == 204 && (first.Body != "" || first.Header.Get("Content-Type") != "" || first.Header.Get("Content-Length") != "") {
				t.Errorf("204 came with a body or headers of one: %v", first)
			}
			// Nothing is different from an answer without the middleware.
			bare := do(t, noRedirect, newRequest(t, serve(t, h).URL, "k", "{}")).comparable()
			got := first.comparable()
			if diff := cmp.Diff(bare.Header["Content-Type"], got.Header["Content-Type"]); diff != "" || bare.Status != got.Status || bare.Body != got.Body {
				t.Errorf("got status %d, bare %d; Content-Type (-bare +got): %s", got.Status, bare.Status, diff)
			}
		})
	}
}

func TestB79HeadersThatDescribeTheAnswerAreReplayed(t *testing.T) {
	t.Parallel()
	want := http.Header{
		"Location": {"/things/1"}, "Etag": {`"v1"`}, "Content-Type": {"application/json"}, "Content-Location": {"/things/1"},
		"Last-Modified": {"Mon, 01 Jun 2026 10:00:00 GMT"}, "Link": {"</a>; rel=next", "</b>; rel=prev"}, "Vary": {"Accept"},
		"X-Extra": {"by option"}, "Content-Length": {"2"},
	}
	server := once(t, func(w http.ResponseWriter, _ *http.Request) {
		for name, values := range want {
			w.Header()[name] = values
		}
		for _, name := range []string{"X-Request-Id", "X-RateLimit-Remaining", "Set-Cookie"} {
			w.Header().Set(name, "first")
		}
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "{}")
	}, idemhttp.WithResponseHeaders("x-extra"))
	first, again := post(t, server.URL, "k", "{}"), post(t, server.URL, "k", "{}")
	if first.Header.Get("X-Request-Id") != "first" || first.Header.Get("Set-Cookie") != "first" {
		t.Errorf("the first answer lost headers: %v", first.Header)
	}
	if diff := cmp.Diff(want, again.comparable().Header); diff != "" {
		t.Errorf("replayed headers (-want +got):\n%s", diff)
	}
}

func TestB101SecretsAreNeitherRecordedNorReplayed(t *testing.T) {
	t.Parallel()
	secrets := map[string][]string{
		"Set-Cookie": {"a=secret", "b=secret"}, "Www-Authenticate": {"secret"}, "Authorization": {"secret"},
		"Proxy-Authenticate": {"secret"}, "Proxy-Authorization": {"secret"}, "Connection": {"close"}, "Trailer": {"X-Secret"},
		"Transfer-Encoding": {"chunked"},
	}
	store := &spyStore{Store: memstore.New()}
	server := serve(t, idemhttp.Middleware(store, userOf)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, values := range secrets {
			w.Header()[name] = values
		}
		created(w, r)
		w.Header().Set("X-Secret", "secret")
	})))
	post(t, server.URL, "k", "{}")
	again := post(t, server.URL, "k", "{}")
	row := string(store.completed.Load().Response.Body)
	if strings.Contains(row, "secret") || !strings.Contains(row, "/things/1") {
		t.Errorf("the stored row is %q", row)
	}
	for name := range secrets {
		if strings.Contains(row, name) {
			t.Errorf("%s is in the stored row %q", name, row)
		}
		if got := again.Header[name]; got != nil {
			t.Errorf("%s is replayed: %q", name, got)
		}
		wantPanic(t, name, func() {
			idemhttp.Middleware(store, userOf, idemhttp.WithResponseHeaders(strings.ToLower(name)))
		})
	}
}

// spyStore keeps the last completion.
type spyStore struct {
	idem.Store
	completed atomic.Pointer[idem.CompleteRequest]
}

func (s *spyStore) Complete(ctx context.Context, req idem.CompleteRequest) (time.Time, error) {
	s.completed.Store(&req)
	return s.Store.Complete(ctx, req)
}

func TestB83AnswerTooLargeToKeepIsNotMadeAgain(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	for name, opt := range map[string]idemhttp.Option{
		"by WithMaxResponseBytes":     idemhttp.WithMaxResponseBytes(limit),
		"by idem.WithMaxResultBytes":  idemhttp.WithDo(idem.WithMaxResultBytes(limit)),
		"by a hook that vetoes":       idemhttp.WithPersist(func(*http.Request, *idemhttp.Response) bool { return false }),
		"for want of the right codec": idemhttp.WithDo(idem.WithCodec(jsonCodec)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var runs atomic.Int64
			big := strings.Repeat("x", limit+1)
			server := once(t, counted(&runs, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusCreated)
				io.WriteString(w, big)
			}), opt)
			first, again := post(t, server.URL, "k", "{}"), post(t, server.URL, "k", "{}")
			if first.Status != 201 || first.Body != big || first.Header.Get("Idempotency-Recorded") != "" {
				t.Errorf("the first caller got %d, %d bytes, %v", first.Status, len(first.Body), first.Header)
			}
			wantProblem(t, again, 410, idemhttp.CodeResultNotKept)
			if !again.replayed() || !strings.Contains(again.Body, `"recorded_status":201`) || again.Header.Get("Retry-After") != "" {
				t.Errorf("the retry got %v %s", again.Header, again.Body)
			}
			wantRuns(t, &runs, 1)
		})
	}
	t.Run("the limit itself is kept", func(t *testing.T) {
		t.Parallel()
		server := once(t, func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, strings.Repeat("x", limit))
		}, idemhttp.WithMaxResponseBytes(limit))
		wantReplay(t, post(t, server.URL, "k", "{}"), post(t, server.URL, "k", "{}"))
	})
	t.Run("by a Handler", func(t *testing.T) {
		t.Parallel()
		var runs atomic.Int64
		server := serve(t, idemhttp.Handler(memstore.New(), userOf, func(*idemhttp.Request[struct{}]) (string, idem.Status, error) {
			runs.Add(1)
			return strings.Repeat("x", limit), 201, nil
		}, idemhttp.WithDo(idem.WithMaxResultBytes(limit))))
		if first := post(t, server.URL, "k", "{}"); first.Status != 201 || len(first.Body) != limit+2 {
			t.Errorf("the first caller got %d, %d bytes", first.Status, len(first.Body))
		}
		wantProblem(t, post(t, server.URL, "k", "{}"), 410, idemhttp.CodeResultNotKept)
		wantRuns(t, &runs, 1)
	})
}

func TestB87WhatIsKeptGoesByTheStatus(t *testing.T) {
	t.Parallel()
	for status, kept := range map[int]bool{
		400: true, 404: true, 409: true, 410: true, 422: true,
		401: false, 403: false, 408: false, 425: false, 429: false, 500: false, 502: false, 503: false, 504: false,
	} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			var runs atomic.Int64
			server := once(t, counted(&runs, func(w http.ResponseWriter, r *http.Request) {
				if runs.Load() == 1 {
					http.Error(w, "wrong code", status)
					return
				}
				created(w, r)
			}))
			first, again := post(t, server.URL, "k", `{"code":1}`), post(t, server.URL, "k", `{"code":1}`)
			if first.Status != status || first.Header.Get("Idempotency-Recorded") != "" {
				t.Errorf("the first answer is %d %v", first.Status, first.Header)
			}
			corrected := post(t, server.URL, "k", `{"code":2}`)
			if kept {
				wantReplay(t, first, again)
				wantRuns(t, &runs, 1)
			} else if again.Status != 201 || again.replayed() {
				t.Errorf("the retry got %d, want 201 from a run", again.Status)
			}
			wantProblem(t, corrected, 422, idemhttp.CodePayloadMismatch)
			if !strings.Contains(corrected.Body, "new key") {
				t.Errorf("the client is not told to use a new key: %s", corrected.Body)
			}
		})
	}
	t.Run("a freed key takes the corrected request", func(t *testing.T) {
		t.Parallel()
		var runs atomic.Int64
		server := once(t, counted(&runs, func(w http.ResponseWriter, r *http.Request) {
			if runs.Load() == 1 {
				http.Error(w, "wrong code", http.StatusForbidden)
				return
			}
			created(w, r)
		}))
		post(t, server.URL, "k", `{"code":1}`)
		if got := post(t, server.URL, "k", `{"code":2}`); got.Status != 201 {
			t.Errorf("the corrected request got %d", got.Status)
		}
	})
}

func TestB89ErrorsAreReplayedAsTheyWere(t *testing.T) {
	t.Parallel()
	t.Run("by a plain handler", func(t *testing.T) {
		t.Parallel()
		server := once(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/vnd.api+json")
			w.WriteHeader(http.StatusUnprocessableEntity)
			io.WriteString(w, `{"code":"sold_out","details":{"left":0}}`)
		})
		wantReplay(t, post(t, server.URL, "k", "{}"), post(t, server.URL, "k", "{}"))
	})
	t.Run("by a Handler", func(t *testing.T) {
		t.Parallel()
		first, again := failing(t, "k")
		wantReplay(t, first, again)
		if first.Status != 409 || first.code() != "sold_out" || !strings.Contains(first.Body, "None is left.") || strings.Contains(first.Body, "internal") {
			t.Errorf("the failure is %d %s", first.Status, first.Body)
		}
	})
	t.Run("when the record vanishes between conflict and read", func(t *testing.T) {
		t.Parallel()
		store := &vanishingStore{Store: memstore.New()}
		server := serve(t, idemhttp.Middleware(store, userOf)(http.HandlerFunc(created)))
		post(t, server.URL, "k", "{}")
		store.vanish.Store(true)
		got := post(t, server.URL, "k", "{}")
		if got.Status >= 500 || got.Status == 409 && got.Header.Get("Retry-After") == "" {
			t.Errorf("got %d %s", got.Status, got.Body)
		}
	})
}

// vanishingStore once loses the record that it has just found in the way.
type vanishingStore struct {
	idem.Store
	vanish atomic.Bool
}

func (s *vanishingStore) Claim(ctx context.Context, req idem.ClaimRequest) (idem.Record, error) {
	if s.vanish.CompareAndSwap(true, false) {
		s.Store = memstore.New()
		return idem.Record{}, nil
	}
	return s.Store.Claim(ctx, req)
}

func TestB91ReplaysAreMarked(t *testing.T) {
	t.Parallel()
	inner := idemhttp.Middleware(memstore.New(), userOf)(http.HandlerFunc(created))
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // a CORS middleware
		w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
		w.Header().Set("Access-Control-Expose-Headers", "Idempotent-Replayed, Idempotency-Recorded, Retry-After, Location")
		w.Header().Add("Vary", "Origin")
		inner.ServeHTTP(w, r)
	}))
	first := post(t, server.URL, "k", "{}", header("Origin", "https://a.example"))
	again := post(t, server.URL, "k", "{}", header("Origin", "https://b.example"))
	if got := again.Header.Get("Access-Control-Allow-Origin"); got != "https://b.example" {
		t.Errorf("the replay is for origin %q", got)
	}
	if !strings.Contains(again.Header.Get("Access-Control-Expose-Headers"), "Idempotent-Replayed") || len(again.Header["Vary"]) != 1 {
		t.Errorf("the headers of the middleware in front have changed: %v", again.Header)
	}
	first.Header.Del("Access-Control-Allow-Origin")
	again.Header.Del("Access-Control-Allow-Origin")
	wantReplay(t, first, again)
	if other := post(t, server.URL, "other", "{}"); other.replayed() {
		t.Error("a first answer is marked")
	}
}

func TestCompressedAnswers(t *testing.T) {
	t.Parallel()
	server := once(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Vary", "Accept-Encoding")
		z := gzip.NewWriter(w)
		io.WriteString(z, "hello")
		z.Close()
	})
	raw := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	ask := func(accept ...string) answer {
		return do(t, raw, newRequest(t, server.URL, "k", "{}", header("Accept-Encoding", accept...)))
	}
	first := ask("gzip")
	for _, accept := range []string{"gzip", "br, GZIP;q=0.5", "*"} {
		wantReplay(t, first, ask(accept))
	}
	for _, accept := range [][]string{nil, {"identity"}, {"gzip;q=0"}, {"br", "deflate"}, {"*;q=0.0"}} {
		if got := ask(accept...); got.Body != "hello" || got.Header.Get("Content-Encoding") != "" || !got.replayed() {
			t.Errorf("with Accept-Encoding %q: %v", accept, got)
		}
	}
}
