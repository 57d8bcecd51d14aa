package idemhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/memstore"
)

var allErrors = []error{
	idemhttp.ErrNoKey, &idem.InProgressError{RetryAfter: time.Minute}, idem.ErrPayloadMismatch, idem.ErrUnavailable,
	idem.ErrOutcomeUnknown, idem.ErrLeaseLost, idem.ErrResultNotKept, idem.ErrCorruptRecord, idem.ErrInvalidOption,
	idem.ErrInvalidPayload, &idem.KeyError{Part: "key", Reason: "is empty"}, &idem.KeyError{Part: "user", Reason: "is empty"},
	&idem.KeyError{Part: "scope", Reason: "is empty"}, &idem.DecodeError{Codec: "x"}, context.Canceled, errors.New("secret"),
	&idem.RecordedError{Code: idemhttp.CodeExecutionFailed},
}

func TestProblemFor(t *testing.T) {
	t.Parallel()
	want := []string{
		"400 invalid_idempotency_key", "409 idempotency_request_in_progress", "422 idempotency_key_payload_mismatch", "503 idempotency_unavailable",
		"409 idempotency_outcome_unknown", "409 idempotency_lease_lost", "410 idempotency_result_not_kept", "500 idempotency_record_unreadable", "500 idempotency_misconfigured",
		"400 invalid_request", "400 invalid_idempotency_key", "401 unauthenticated",
		"500 idempotency_misconfigured", "500 idempotency_record_unreadable", "503 idempotency_unavailable", "500 internal_error",
		"500 idempotency_execution_failed",
	}
	var got []string
	for _, err := range allErrors {
		p := idemhttp.ProblemFor(fmt.Errorf("wrapped: %w", err))
		got = append(got, fmt.Sprintf("%d %s", p.Status, p.Code))
		if !errors.Is(p.Err, err) {
			t.Errorf("%s: the cause is lost", p.Code)
		}
		w := httptest.NewRecorder()
		p.Write(w)
		wantProblem(t, written(w), p.Status, p.Code)
		if strings.Contains(w.Body.String(), "secret") || strings.Contains(w.Body.String(), "wrapped") {
			t.Errorf("the error's text is shown: %s", w.Body)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	// To have run and not to know is not to have run in vain.
	if p := idemhttp.ProblemFor(idem.Unknown(context.DeadlineExceeded)); p.Code != idemhttp.CodeOutcomeUnknown {
		t.Errorf("an unknown outcome is %s", p.Code)
	}
}

func TestRender(t *testing.T) {
	t.Parallel()
	server := once(t, created, idemhttp.WithRender(func(w http.ResponseWriter, r *http.Request, p *idemhttp.Problem) {
		switch p.Code {
		case idemhttp.CodePayloadMismatch:
			p.Status, p.Code, p.Detail = 409, "reused", "Think again."
			p.Metadata = map[string]any{"path": r.URL.Path, "bad": make(chan int)}
			p.Write(w)
			p.Metadata = nil
		case idemhttp.CodeUnauthenticated:
			w.Header().Set("WWW-Authenticate", "Bearer")
			p.Metadata = map[string]any{"realm": "test"}
			p.Write(w)
		default:
			w.WriteHeader(p.Status)
			io.WriteString(w, "as I like it")
		}
	}))
	post(t, server.URL, "k", "[1]")
	if got := post(t, server.URL, "k", "[2]"); got.Status != 409 || got.code() != "reused" || !strings.Contains(got.Body, "Think again.") {
		t.Errorf("changed: %v", got)
	}
	if got := post(t, server.URL, "k", "", header("X-User")); got.Header.Get("WWW-Authenticate") != "Bearer" || !strings.Contains(got.Body, `"metadata":{"realm":"test"}`) {
		t.Errorf("added to: %v", got)
	}
	if got := post(t, server.URL, `""`, ""); got.Status != 400 || got.Body != "as I like it" {
		t.Errorf("replaced: %v", got)
	}
}

func TestCompatIdempotencyKit(t *testing.T) {
	t.Parallel()
	server := once(t, created, idemhttp.CompatIdempotencyKit())
	if first := post(t, server.URL, "k", "[1]"); first.Header.Get("X-Idempotency-Status") != "" {
		t.Error("a first answer is marked")
	}
	if again := post(t, server.URL, "k", "[1]"); again.Header.Get("X-Idempotency-Status") != "replayed" || !again.replayed() {
		t.Errorf("a replay is not marked: %v", again.Header)
	}
	wantProblem(t, post(t, server.URL, "k", "[2]"), 409, idemhttp.CodePayloadMismatch)
}

func TestAuthorizeBeforeReplay(t *testing.T) {
	t.Parallel()
	var revoked atomic.Bool
	server := once(t, created, idemhttp.WithAuthorize(func(_ *http.Request, resp *idemhttp.Response) error {
		if resp.Status != 201 || resp.Header.Get("Location") != "/things/1" {
			t.Errorf("the hook sees %v", resp)
		}
		if revoked.Load() {
			return errors.New("secret reason")
		}
		return nil
	}))
	first := post(t, server.URL, "k", "{}")
	wantReplay(t, first, post(t, server.URL, "k", "{}"))
	revoked.Store(true)
	got := post(t, server.URL, "k", "{}")
	wantProblem(t, got, 403, idemhttp.CodeForbidden)
	if got.replayed() || got.Header.Get("Location") != "" || strings.Contains(got.Body, "secret") {
		t.Errorf("something is revealed: %v", got)
	}
}

func TestPersistAndReplayHooks(t *testing.T) {
	t.Parallel()
	server := once(t, created,
		idemhttp.WithPersist(func(r *http.Request, resp *idemhttp.Response) bool {
			resp.Status, resp.Body = 200, append(resp.Body[:1], `"masked":true}`...)
			resp.Header.Set("Etag", r.URL.Path)
			return true
		}),
		idemhttp.WithReplay(func(w http.ResponseWriter, r *http.Request, resp *idemhttp.Response) bool {
			if r.URL.Path != "/mine" {
				return false
			}
			w.WriteHeader(299)
			fmt.Fprintf(w, "%d %s", resp.Status, resp.Body)
			return true
		}))
	if first := post(t, server.URL+"/a", "a", "{}"); first.Status != 201 || first.Body != `{"id":1}` || first.Header.Get("Etag") != "" {
		t.Errorf("the hook changed the first answer: %v", first)
	}
	if again := post(t, server.URL+"/a", "a", "{}"); again.Status != 200 || again.Body != `{"masked":true}` || again.Header.Get("Etag") != "/a" {
		t.Errorf("the replay is %v", again)
	}
	post(t, server.URL+"/mine", "b", "{}")
	if again := post(t, server.URL+"/mine", "b", "{}"); again.Status != 299 || again.Body != `200 {"masked":true}` || !again.replayed() {
		t.Errorf("the replay is %v", again)
	}
}

func TestBadOptionsPanic(t *testing.T) {
	t.Parallel()
	for name, opt := range map[string]idemhttp.Option{
		"nil option":           nil,
		"no key header":        idemhttp.WithKeyHeader(),
		"an empty key header":  idemhttp.WithKeyHeader(""),
		"no scope":             idemhttp.WithScope(nil),
		"no fingerprint":       idemhttp.WithFingerprint(nil),
		"no body":              idemhttp.WithMaxBodyBytes(0),
		"a negative limit":     idemhttp.WithMaxResponseBytes(-1),
		"a cookie":             idemhttp.WithResponseHeaders("set-cookie"),
		"a date":               idemhttp.WithResponseHeaders("Date"),
		"the connection's own": idemhttp.WithResponseHeaders("connection"),
		"a proxy's":            idemhttp.WithResponseHeaders("proxy-x"),
		"no header":            idemhttp.WithResponseHeaders(""),
		"a bad option of idem": idemhttp.WithDo(idem.WithLease(-1)),
		"errors":               idemhttp.WithErrors(nil),
	} {
		wantPanic(t, name, func() { idemhttp.Middleware(memstore.New(), userOf, opt) })
	}
	wantPanic(t, "no store", func() { idemhttp.Middleware(nil, userOf) })
	wantPanic(t, "no user", func() { idemhttp.Middleware(memstore.New(), nil) })
}
