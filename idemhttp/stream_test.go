package idemhttp_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/memstore"
)

func TestB81FlushStreamsAndIsRecorded(t *testing.T) {
	t.Parallel()
	goOn := make(chan bool)
	server := once(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "one ")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Errorf("flush: %v", err)
		}
		<-goOn
		fmt.Fprint(w, "two ")
		w.(http.Flusher).Flush()
		io.WriteString(w, "three")
	})
	resp, err := client.Do(newRequest(t, server.URL, "k", "{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	part := make([]byte, 4)
	if _, err := io.ReadFull(resp.Body, part); err != nil || string(part) != "one " {
		t.Fatalf("while the handler runs, %q has come, %v", part, err)
	}
	close(goOn)
	rest, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	again := post(t, server.URL, "k", "{}")
	if string(part)+string(rest) != "one two three" || again.Body != "one two three" || !again.replayed() {
		t.Errorf("streamed %q, replayed %q", string(part)+string(rest), again.Body)
	}
}

func TestB81HijackGivesTheConnectionAway(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	server := once(t, counted(&runs, func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Errorf("hijack: %v", err)
			return
		}
		defer conn.Close()
		rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nUpgrade: test\r\nConnection: Upgrade\r\n\r\nhello")
		rw.Flush()
		if _, err := w.Write([]byte("x")); !errors.Is(err, http.ErrHijacked) {
			t.Errorf("write after hijack: %v", err)
		}
		if _, _, err := w.(http.Hijacker).Hijack(); !errors.Is(err, http.ErrHijacked) {
			t.Errorf("second hijack: %v", err)
		}
	}))
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: x\r\nX-User: alice\r\nIdempotency-Key: k\r\nContent-Length: 0\r\n\r\n")
	if got, _ := io.ReadAll(conn); !strings.HasSuffix(string(got), "\r\n\r\nhello") {
		t.Errorf("the hijacked connection carried %q", got)
	}
	eventually(t, func() bool { return post(t, server.URL, "k", "").Status != 409 })
	wantProblem(t, post(t, server.URL, "k", ""), 410, idemhttp.CodeResultNotKept)
	wantRuns(t, &runs, 1)
}

// eventually waits for something that another goroutine is about to do.
func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("it did not happen")
		}
	}
}

// bareWriter can do nothing but what a ResponseWriter must.
type bareWriter struct{ http.ResponseWriter }

func TestB81WhatIsNotSupportedFailsClearly(t *testing.T) {
	t.Parallel()
	h := idemhttp.Middleware(memstore.New(), userOf)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		_, _, hijack := c.Hijack()
		for name, err := range map[string]error{
			"Hijack": hijack, "SetReadDeadline": c.SetReadDeadline(time.Time{}), "SetWriteDeadline": c.SetWriteDeadline(time.Time{}),
			"EnableFullDuplex": c.EnableFullDuplex(), "Flush": c.Flush(),
		} {
			if !errors.Is(err, http.ErrNotSupported) {
				t.Errorf("%s: %v, want http.ErrNotSupported", name, err)
			}
		}
		if _, ok := w.(interface{ Unwrap() http.ResponseWriter }); ok {
			t.Error("Unwrap would lead past the recording")
		}
		created(w, r)
	}))
	w := httptest.NewRecorder()
	h.ServeHTTP(bareWriter{w}, newRequest(t, "/", "k", "{}"))
	if w.Code != 201 || w.Body.String() != `{"id":1}` {
		t.Errorf("the answer is %d %s", w.Code, w.Body)
	}
}

func TestResponseControllerWorksOverHTTP(t *testing.T) {
	t.Parallel()
	server := once(t, func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		for name, err := range map[string]error{
			"SetReadDeadline": c.SetReadDeadline(time.Now().Add(time.Minute)), "SetWriteDeadline": c.SetWriteDeadline(time.Now().Add(time.Minute)),
			"EnableFullDuplex": c.EnableFullDuplex(),
		} {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		created(w, r)
	})
	wantReplay(t, post(t, server.URL, "k", "{}"), post(t, server.URL, "k", "{}"))
}

func TestB81CopyOfAFile(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"kept": 300_000, "too large": 3 << 20} {
		for _, declared := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, length declared %v", name, declared), func(t *testing.T) {
				t.Parallel()
				content := strings.Repeat("0123456789", size/10)
				file := filepath.Join(t.TempDir(), "file")
				if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
				server := once(t, func(w http.ResponseWriter, _ *http.Request) {
					f, err := os.Open(file)
					if err != nil {
						t.Error(err)
						return
					}
					defer f.Close()
					if declared {
						w.Header().Set("Content-Length", fmt.Sprint(len(content)))
					}
					if n, err := io.Copy(w, f); n != int64(len(content)) || err != nil {
						t.Errorf("copied %d bytes, %v", n, err)
					}
				})
				first, again := post(t, server.URL, "k", "{}"), post(t, server.URL, "k", "{}")
				if first.Body != content {
					t.Errorf("the first caller got %d bytes that differ", len(first.Body))
				}
				if name == "kept" {
					wantReplay(t, first, again)
				} else {
					wantProblem(t, again, 410, idemhttp.CodeResultNotKept)
				}
			})
		}
	}
}

func TestB81MemoryIsBounded(t *testing.T) {
	// Not parallel: it measures the process.
	size := int64(64 << 20)
	if os.Getenv("IDEM_TEST_LARGE") != "" {
		size = 1 << 30
	}
	var peak uint64
	server := once(t, func(w http.ResponseWriter, _ *http.Request) {
		chunk := make([]byte, 1<<20)
		for n := int64(0); n < size; n += int64(len(chunk)) {
			if _, err := w.Write(chunk); err != nil {
				t.Error(err)
				return
			}
			if n%(16<<20) == 0 {
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				peak = max(peak, m.HeapInuse)
			}
		}
	})
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	resp, err := client.Do(newRequest(t, server.URL, "k", "{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); n != size || err != nil {
		t.Errorf("%d bytes came, %v", n, err)
	}
	t.Logf("%d MB took %d KB", size>>20, (int64(peak)-int64(before.HeapInuse))>>10)
	if grown := int64(peak) - int64(before.HeapInuse); grown > 16<<20 {
		t.Errorf("an answer of %d MB took %d MB of memory", size>>20, grown>>20)
	}
	wantProblem(t, post(t, server.URL, "k", "{}"), 410, idemhttp.CodeResultNotKept)
}

func TestInformationalAnswersPassThrough(t *testing.T) {
	t.Parallel()
	server := once(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		created(w, r)
	})
	var hints []string
	req := newRequest(t, server.URL, "k", "{}")
	first := do(t, client, req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			hints = append(hints, fmt.Sprint(code, h.Get("Link")))
			return nil
		},
	})))
	if diff := cmp.Diff([]string{"103</style.css>; rel=preload"}, hints); diff != "" {
		t.Errorf("1xx (-want +got):\n%s", diff)
	}
	wantReplay(t, first, post(t, server.URL, "k", "{}"))
}

func TestTrailersReachTheFirstCallerOnly(t *testing.T) {
	t.Parallel()
	server := once(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		created(w, r)
		w.Header().Set("X-Sum", "42")
		w.Header().Set(http.TrailerPrefix+"X-More", "43")
	})
	var trailers []http.Header
	for range 2 {
		resp, err := client.Do(newRequest(t, server.URL, "k", "{}"))
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		trailers = append(trailers, resp.Trailer)
	}
	if diff := cmp.Diff([]http.Header{{"X-Sum": {"42"}, "X-More": {"43"}}, nil}, trailers); diff != "" {
		t.Errorf("trailers (-want +got):\n%s", diff)
	}
}

func TestHeadersSetAfterWriteHeaderAreNotSent(t *testing.T) {
	t.Parallel()
	server := once(t, func(w http.ResponseWriter, r *http.Request) {
		created(w, r)
		w.Header().Set("Etag", "late")
		w.Header().Del("Location")
		w.WriteHeader(http.StatusInternalServerError) // superfluous
	})
	first, again := post(t, server.URL, "k", "{}"), post(t, server.URL, "k", "{}")
	wantReplay(t, first, again)
	if first.Status != 201 || first.Header.Get("Etag") != "" || first.Header.Get("Location") == "" {
		t.Errorf("the first answer is %v", first)
	}
}
