package idemhttp_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/memstore"
)

// BenchmarkMiddleware shows what the middleware adds to a handler: the time of
// "first" and "replay" less that of "bare". No network is involved.
func BenchmarkMiddleware(b *testing.B) {
	for _, size := range []int{300, 64 << 10} {
		body := `{"text":"` + strings.Repeat("x", size) + `"}`
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			io.WriteString(w, body)
		})
		once := idemhttp.Middleware(memstore.New(memstore.MaxRecords(0)), userOf)(handler)
		run := func(h http.Handler, key func(int) string) func(*testing.B) {
			return func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(body))
					r.Header.Set("Content-Type", "application/json")
					r.Header.Set("X-User", "alice")
					r.Header.Set("Idempotency-Key", key(i))
					h.ServeHTTP(discard{http.Header{}}, r)
				}
			}
		}
		b.Run(fmt.Sprintf("bare/%d", size), run(handler, func(i int) string { return fmt.Sprint(i) }))
		b.Run(fmt.Sprintf("first/%d", size), func(b *testing.B) {
			fresh := idemhttp.Middleware(memstore.New(memstore.MaxRecords(0)), userOf)(handler)
			run(fresh, func(i int) string { return fmt.Sprint(i) })(b)
		})
		b.Run(fmt.Sprintf("replay/%d", size), run(once, func(int) string { return "k" }))
	}
}

// discard is a ResponseWriter that costs nothing.
type discard struct{ header http.Header }

func (d discard) Header() http.Header             { return d.header }
func (discard) WriteHeader(int)                   {}
func (discard) Write(p []byte) (int, error)       { return len(p), nil }
func (discard) WriteString(s string) (int, error) { return len(s), nil }
