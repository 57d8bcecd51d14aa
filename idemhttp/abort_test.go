package idemhttp_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/memstore"
)

func TestB81AbortedAnswersAreNotStored(t *testing.T) {
	t.Parallel()
	for name, abort := range map[string]func(w http.ResponseWriter){
		"abort":                   func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		"flush and abort":         func(w http.ResponseWriter) { w.(http.Flusher).Flush(); panic(http.ErrAbortHandler) },
		"panic":                   func(http.ResponseWriter) { panic("boom") },
		"goexit":                  func(http.ResponseWriter) { runtime.Goexit() },
		"too large to keep, then": func(w http.ResponseWriter) { w.Write(make([]byte, 2<<20)); panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var passed atomic.Value
			var runs atomic.Int64
			inner := idemhttp.Middleware(memstore.New(), userOf)(counted(&runs, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "4000000")
				io.WriteString(w, "half")
				abort(w)
			}))
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() {
					if p := recover(); p != nil {
						passed.Store(p)
						panic(http.ErrAbortHandler) // without the log
					}
				}()
				inner.ServeHTTP(w, r)
			}))
			server.Start()
			t.Cleanup(server.Close)
			resp, err := client.Do(newRequest(t, server.URL, "k", "{}"))
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				resp.Body.Close()
			}
			if err == nil {
				t.Error("the client takes the half for the whole")
			}
			got := post(t, server.URL, "k", "{}")
			wantProblem(t, got, 409, idemhttp.CodeInProgress)
			wantRuns(t, &runs, 1)
			want := map[string]any{"panic": "boom", "goexit": nil}
			if p, listed := want[name]; listed && passed.Load() != p || !listed && passed.Load() != any(http.ErrAbortHandler) {
				t.Errorf("what went on is %v", passed.Load())
			}
		})
	}
}

func TestContentLengthIsKeptTo(t *testing.T) {
	t.Parallel()
	t.Run("more than declared is refused", func(t *testing.T) {
		t.Parallel()
		server := once(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "3")
			if _, err := io.WriteString(w, "four"); !errors.Is(err, http.ErrContentLength) {
				t.Errorf("write: %v", err)
			}
			io.WriteString(w, "two")
		})
		wantReplay(t, post(t, server.URL, "k", "{}"), post(t, server.URL, "k", "{}"))
	})
	t.Run("less than declared: what there was is recorded", func(t *testing.T) {
		t.Parallel()
		server := once(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			io.WriteString(w, "half")
		})
		resp, err := client.Do(newRequest(t, server.URL, "k", "{}"))
		if err == nil {
			if _, err = io.ReadAll(resp.Body); err == nil {
				t.Error("the first caller takes the half for the whole")
			}
			resp.Body.Close()
		}
		if got := post(t, server.URL, "k", "{}"); got.Body != "half" || !got.replayed() {
			t.Errorf("the retry got %v", got)
		}
	})
	t.Run("no body where there can be none", func(t *testing.T) {
		t.Parallel()
		server := once(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNoContent)
			if _, err := io.WriteString(w, "x"); !errors.Is(err, http.ErrBodyNotAllowed) {
				t.Errorf("write: %v", err)
			}
		})
		wantReplay(t, post(t, server.URL, "k", "{}"), post(t, server.URL, "k", "{}"))
	})
}

func TestB81ClientThatHangsUpDoesNotLoseTheRecord(t *testing.T) {
	t.Parallel()
	for _, flush := range []bool{false, true} {
		t.Run(fmt.Sprintf("after a flush %v", flush), func(t *testing.T) {
			t.Parallel()
			var runs atomic.Int64
			started, gone := make(chan bool), make(chan bool)
			server := once(t, counted(&runs, func(w http.ResponseWriter, r *http.Request) {
				if flush {
					io.WriteString(w, "start ")
					w.(http.Flusher).Flush()
				}
				started <- true
				<-gone
				if err := r.Context().Err(); err != nil {
					t.Errorf("the handler's context has ended: %v", err)
				}
				for range 20 {
					if _, err := io.WriteString(w, strings.Repeat("x", 10_000)); err != nil {
						t.Errorf("the handler sees the hang-up: %v", err)
					}
					if flush {
						w.(http.Flusher).Flush()
					}
				}
			}))
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: x\r\nX-User: alice\r\nIdempotency-Key: k\r\nContent-Length: 0\r\n\r\n")
			<-started
			conn.(*net.TCPConn).SetLinger(0) // a reset
			conn.Close()
			close(gone)
			eventually(t, func() bool { return post(t, server.URL, "k", "").Status != 409 })
			if got := post(t, server.URL, "k", ""); got.Status != 200 || len(strings.TrimPrefix(got.Body, "start ")) != 200_000 {
				t.Errorf("the retry got %d with %d bytes", got.Status, len(got.Body))
			}
			wantRuns(t, &runs, 1)
		})
	}
}

func TestReadFromWithoutEnd(t *testing.T) {
	t.Parallel()
	server := once(t, func(w http.ResponseWriter, r *http.Request) {
		_, err := w.(io.ReaderFrom).ReadFrom(io.MultiReader(strings.NewReader("half"), brokenReader{}))
		if !errors.Is(err, errBroken) {
			t.Errorf("ReadFrom: %v", err)
		}
		bufio.NewWriter(w).ReadFrom(strings.NewReader("")) // whatever uses it
		panic(http.ErrAbortHandler)                        // as a proxy does
	})
	resp, err := client.Do(newRequest(t, server.URL, "k", "{}"))
	if err == nil {
		resp.Body.Close()
		t.Error("the client takes the half for the whole")
	}
	wantProblem(t, post(t, server.URL, "k", "{}"), 409, idemhttp.CodeInProgress)
}

var errBroken = errors.New("broken")

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errBroken }
