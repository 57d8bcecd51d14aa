package idemhttp_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemhttp"
)

// tape is a RoundTripper that records the attempts and answers them in turn, the
// last answer again and again.
type tape struct {
	replies []reply
	started time.Time

	mu     sync.Mutex
	sent   []sent
	bodies []*countedBody
	idle   int
}

type reply func(*http.Request) (*http.Response, error)

// sent is an attempt.
type sent struct {
	Key, Body string
	At        time.Duration
}

func newTape(replies ...reply) *tape { return &tape{replies: replies, started: time.Now()} }

func (tp *tape) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	body, err := io.ReadAll(r.Body)
	r.Body.Close()
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body)) // for the answer
	tp.mu.Lock()
	n := len(tp.sent)
	tp.sent = append(tp.sent, sent{r.Header.Get("Idempotency-Key"), string(body), time.Since(tp.started)})
	tp.mu.Unlock()
	resp, err := tp.replies[min(n, len(tp.replies)-1)](r)
	if err != nil {
		return nil, err
	}
	counted := &countedBody{ReadCloser: resp.Body}
	resp.Body, resp.Request = counted, r
	tp.mu.Lock()
	defer tp.mu.Unlock()
	tp.bodies = append(tp.bodies, counted)
	return resp, nil
}

func (tp *tape) CloseIdleConnections() { tp.idle++ }

// countedBody knows whether it was closed.
type countedBody struct {
	io.ReadCloser
	closed atomic.Bool
}

func (b *countedBody) Close() error {
	b.closed.Store(true)
	return b.ReadCloser.Close()
}

// status answers with a status, headers and a body.
func status(code int, body string, headers ...string) reply {
	return func(*http.Request) (*http.Response, error) {
		resp := &http.Response{
			StatusCode: code, Header: http.Header{}, ContentLength: int64(len(body)),
			Body: io.NopCloser(strings.NewReader(body)),
		}
		for i := 0; i < len(headers); i += 2 {
			resp.Header.Set(headers[i], headers[i+1])
		}
		return resp, nil
	}
}

func problem(code int, name string, headers ...string) reply {
	return status(code, `{"code":"`+name+`"}`, append(headers, "Content-Type", "application/problem+json")...)
}

var errReset = errors.New("connection reset")

func reset(*http.Request) (*http.Response, error) { return nil, errReset }

var paid = status(201, "paid")

// send makes one call.
func send(t testing.TB, tr *idemhttp.Transport, changes ...change) (*http.Response, error) {
	t.Helper()
	resp, err := (&http.Client{Transport: tr}).Do(newRequest(t, "http://shop.test/payments", "", `{"amount":1}`, changes...))
	if err == nil {
		t.Cleanup(func() { resp.Body.Close() })
	}
	return resp, err
}

func withContext(ctx context.Context) change {
	return func(r *http.Request) { *r = *r.WithContext(ctx) }
}

// wantUnsettled checks that a call was given up, and why.
func wantUnsettled(t *testing.T, err, cause error, attempts int) *idemhttp.UnsettledError {
	t.Helper()
	e, ok := errors.AsType[*idemhttp.UnsettledError](err)
	if !ok {
		t.Fatalf("got %v, want an UnsettledError", err)
	}
	if cause != nil && !errors.Is(err, cause) {
		t.Errorf("got %v, want %v", err, cause)
	}
	if e.Attempts != attempts {
		t.Errorf("%d attempts, want %d", e.Attempts, attempts)
	}
	if strings.Contains(err.Error(), e.Key) {
		t.Errorf("the message has the key: %v", err)
	}
	return e
}

func TestB126OneKeyAndOneBodyForAllAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		buffer := []byte(`{"amount":1}`)
		mutating := func(then reply) reply {
			return func(r *http.Request) (*http.Response, error) {
				buffer[10]++ // the caller reuses its buffer
				return then(r)
			}
		}
		keys := map[string]bool{}
		for name, body := range map[string]io.Reader{
			"a buffer":     bytes.NewBuffer(buffer), // its GetBody shares the caller's memory
			"a reader":     bytes.NewReader(buffer),
			"a mere input": io.MultiReader(bytes.NewReader(buffer)),
		} {
			buffer[10] = '1'
			tp := newTape(mutating(reset), mutating(status(502, "")), mutating(status(429, "")), paid)
			resp, err := send(t, &idemhttp.Transport{Base: tp}, func(r *http.Request) {
				*r = *must(http.NewRequestWithContext(r.Context(), "POST", r.URL.String(), body))
			})
			if err != nil || resp.StatusCode != 201 {
				t.Fatalf("%s: %v, %v", name, resp, err)
			}
			key := resp.Request.Header.Get("Idempotency-Key")
			if len(tp.sent) != 4 || key == "" || keys[key] {
				t.Errorf("%s: %d attempts, key %q, used before: %v", name, len(tp.sent), key, keys[key])
			}
			for _, s := range tp.sent {
				if s.Key != key || s.Body != `{"amount":1}` {
					t.Errorf("%s: sent %s with key %q, want the first body with %q", name, s.Body, s.Key, key)
				}
			}
			keys[key] = true
		}
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestEveryAnswerIsSettledOrRepeated(t *testing.T) {
	t.Parallel()
	const again, once = true, false
	for name, tc := range map[string]struct {
		first  reply
		repeat bool
	}{
		"network error":                      {reset, again},
		"408":                                {status(408, ""), again},
		"425":                                {status(425, ""), again},
		"429":                                {status(429, ""), again},
		"502":                                {status(502, "<html>"), again},
		"503":                                {status(503, ""), again},
		"504":                                {status(504, ""), again},
		"unavailable":                        {problem(503, idemhttp.CodeUnavailable), again},
		"in progress":                        {problem(409, idemhttp.CodeInProgress, "Retry-After", "1"), again},
		"in progress, rendered with 423":     {problem(423, idemhttp.CodeInProgress), again},
		"lease lost":                         {problem(409, idemhttp.CodeLeaseLost, "Retry-After", "1"), again},
		"409 that asks for it":               {status(409, "busy", "Retry-After", "1"), again},
		"answer that breaks off":             {cut, again},
		"200":                                {status(200, "ok"), once},
		"204":                                {status(204, ""), once},
		"400":                                {problem(400, idemhttp.CodeInvalidKey), once},
		"401":                                {status(401, ""), once},
		"404":                                {status(404, "", "Retry-After", "1"), once},
		"409 of the application":             {status(409, "sold out"), once},
		"409 of the application, as problem": {problem(409, "sold_out"), once},
		"mismatch":                           {problem(422, idemhttp.CodePayloadMismatch), once},
		"mismatch of IdempotencyKit":         {problem(409, idemhttp.CodePayloadMismatch, "Retry-After", "1"), once},
		"answer not kept":                    {problem(410, idemhttp.CodeResultNotKept), once},
		"500":                                {status(500, ""), once},
		"501":                                {status(501, ""), once},
		"503 that was recorded":              {status(503, "", "Idempotent-Replayed", "true"), once},
		"503 that could not be recorded":     {status(503, "", "Idempotency-Recorded", "false"), once},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tp := newTape(tc.first, paid)
				resp, err := send(t, &idemhttp.Transport{Base: tp})
				if err != nil {
					t.Fatal(err)
				}
				if repeated := len(tp.sent) == 2; repeated != tc.repeat || (resp.StatusCode == 201) != tc.repeat {
					t.Errorf("%d attempts, answered %d", len(tp.sent), resp.StatusCode)
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				for i, b := range tp.bodies {
					if !b.closed.Load() {
						t.Errorf("the body of attempt %d was not closed", i+1)
					}
				}
			})
		})
	}
}

// cut is an answer whose connection breaks in the middle.
func cut(r *http.Request) (*http.Response, error) {
	resp, _ := status(201, "paid")(r)
	resp.Body = io.NopCloser(io.MultiReader(strings.NewReader("pa"), cutReader{}))
	return resp, nil
}

type cutReader struct{}

func (cutReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestAnswersReachTheCallerWhole(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("long ", 100_000)
	for name, reply := range map[string]reply{
		"short":        status(200, "short"),
		"long":         status(200, long),
		"long problem": status(400, `{"code":"x","detail":"`+long+`"}`, "Content-Type", "application/json"),
		"streamed": func(r *http.Request) (*http.Response, error) {
			resp, err := status(409, long)(r)
			resp.ContentLength = -1
			return resp, err
		},
	} {
		resp, err := send(t, &idemhttp.Transport{Base: newTape(reply)})
		if err != nil {
			t.Fatal(err)
		}
		want, _ := reply(nil)
		got, err := io.ReadAll(resp.Body)
		if !bytes.Equal(got, must(io.ReadAll(want.Body))) || err != nil {
			t.Errorf("%s: read %d bytes, %v", name, len(got), err)
		}
	}
}

func TestRequestIsNotChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for range 2 { // and can be used again
			req := newRequest(t, "http://shop.test/", "", "{}")
			before := req.Clone(t.Context())
			body := req.Body
			resp, err := (&idemhttp.Transport{Base: newTape(reset, paid)}).RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if diff := cmp.Diff(before.Header, req.Header); diff != "" || req.Body != body || req.ContentLength != before.ContentLength {
				t.Errorf("the request was changed (-before +after):\n%s", diff)
			}
		}
	})
}

func TestBadCertificateIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	tp := newTape(func(*http.Request) (*http.Response, error) {
		return nil, fmt.Errorf("handshake: %w", &tls.CertificateVerificationError{Err: errReset})
	})
	_, err := send(t, &idemhttp.Transport{Base: tp})
	wantUnsettled(t, err, errReset, 1)
}

func TestCloseIdleConnectionsIsForwarded(t *testing.T) {
	t.Parallel()
	tp := newTape(paid)
	(&http.Client{Transport: &idemhttp.Transport{Base: tp}}).CloseIdleConnections()
	(&idemhttp.Transport{Base: struct{ http.RoundTripper }{tp}}).CloseIdleConnections() // which has none
	if tp.idle != 1 {
		t.Errorf("forwarded %d times, want 1", tp.idle)
	}
}

func TestServerCanSayThatTheOutcomeIsUnknown(t *testing.T) {
	t.Parallel()
	_, err := send(t, &idemhttp.Transport{Base: newTape(problem(409, idemhttp.CodeOutcomeUnknown))})
	e := wantUnsettled(t, err, idem.ErrOutcomeUnknown, 1)
	if e.Response == nil || e.Response.StatusCode != 409 {
		t.Errorf("the error has the answer %v", e.Response)
	}
}
