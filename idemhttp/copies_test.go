package idemhttp_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/memstore"
)

// A body of known length takes its own size of memory. One of unknown length
// takes little more than twice that: it is copied once.
func TestBodiesAreCopiedAtMostOnceEachWay(t *testing.T) {
	// Not parallel: it measures the process.
	const known, unknown = 1.1, 2.25
	lengths := map[string]int{"1 MiB": 1 << 20, "a byte above 1 MiB": 1<<20 + 1, "5 MiB": 5 << 20}
	piece := strings.Repeat("x", 4000)
	for name, size := range lengths {
		body := strings.Repeat("x", size)
		for _, c := range []struct {
			way     string
			limit   float64
			in      io.Reader
			handler http.HandlerFunc
		}{
			{"in, chunked", unknown, io.MultiReader(strings.NewReader(body)), nil},
			{"in, with its length", map[bool]float64{true: known, false: unknown}[size <= 1<<20], strings.NewReader(body), nil},
			{"out, in one piece", known, nil, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, body) }},
			{"out, with its length", known, nil, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", strconv.Itoa(size))
				writePieces(w, size, piece)
			}},
			{"out, in small pieces", unknown, nil, func(w http.ResponseWriter, _ *http.Request) { writePieces(w, size, piece) }},
			{"out, by io.Copy", unknown, nil, func(w http.ResponseWriter, _ *http.Request) {
				io.Copy(w, io.LimitReader(strings.NewReader(body), int64(size)))
			}},
			{"out, with many headers", known, nil, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Link", strings.Repeat("l", 100))
				io.WriteString(w, body)
			}},
		} {
			t.Run(name+" "+c.way, func(t *testing.T) {
				wrote := 0
				handler := func(w http.ResponseWriter, r *http.Request) {
					if c.in != nil {
						n, _ := io.Copy(io.Discard, r.Body)
						wrote = int(n)
					} else {
						c.handler(w, r)
					}
				}
				h := idemhttp.Middleware(forgetful{memstore.New()}, userOf, idemhttp.WithMaxBodyBytes(16<<20),
					idemhttp.WithMaxResponseBytes(16<<20))(http.HandlerFunc(handler))
				r := httptest.NewRequest(http.MethodPost, "/payments", c.in)
				r.Header.Set("Content-Type", "text/plain")
				r.Header.Set("X-User", "alice")
				r.Header.Set("Idempotency-Key", "k")
				w := &sink{discard: discard{http.Header{}}}
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				h.ServeHTTP(w, r)
				runtime.ReadMemStats(&after)
				if wrote += w.n; wrote != size {
					t.Errorf("%d bytes arrived, want %d", wrote, size)
				}
				took := float64(after.TotalAlloc-before.TotalAlloc) / float64(size)
				t.Logf("%.2f times the body", took)
				if took > c.limit {
					t.Errorf("%.2f times the body was allocated, want at most %.1f", took, c.limit)
				}
			})
		}
	}
}

func writePieces(w io.Writer, size int, piece string) {
	for size > 0 {
		n := min(size, len(piece))
		io.WriteString(w, piece[:n])
		size -= n
	}
}

// forgetful keeps no outcome, so that it copies none.
type forgetful struct{ idem.Store }

func (forgetful) Complete(context.Context, idem.CompleteRequest) (time.Time, error) {
	return time.Now(), nil
}

type sink struct {
	discard
	n int
}

func (s *sink) Write(p []byte) (int, error) {
	s.n += len(p)
	return len(p), nil
}

func (s *sink) WriteString(p string) (int, error) { return s.Write([]byte(p)) }
