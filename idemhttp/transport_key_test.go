package idemhttp_test

import (
	"context"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/memstore"
)

var uuid7 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

func TestNewKeysAreUUIDs(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 1000 {
		key := idemhttp.NewKey()
		if !uuid7.MatchString(key) || seen[key] {
			t.Fatalf("key %q, seen before: %v", key, seen[key])
		}
		seen[key] = true
	}
	synctest.Test(t, func(t *testing.T) { // where it is midnight, 1 January 2000
		raw, err := hex.DecodeString(strings.ReplaceAll(idemhttp.NewKey(), "-", ""))
		var at int64
		for _, b := range raw[:6] {
			at = at<<8 | int64(b)
		}
		if got := time.UnixMilli(at); err != nil || !got.Equal(time.Now()) {
			t.Errorf("the key's time is %v, want %v", got, time.Now())
		}
	})
}

func TestWhoGetsAKey(t *testing.T) {
	t.Parallel()
	for m, want := range map[string]bool{
		"POST": true, "PUT": true, "PATCH": true, "DELETE": true, "PURGE": true,
		"": false, "GET": false, "HEAD": false, "OPTIONS": false, "TRACE": false,
	} {
		tp := newTape(status(503, ""))
		resp, err := (&idemhttp.Transport{Base: tp, MaxRetries: -1}).RoundTrip(newRequest(t, "http://shop.test/", "", "", method(m)))
		if err == nil {
			resp.Body.Close()
		}
		if got := tp.sent[0].Key != ""; got != want || len(tp.sent) != 1 || (err != nil) != want {
			t.Errorf("%q was sent %d times, with a key: %v, error %v", m, len(tp.sent), got, err)
		}
	}
}

func TestUnsafeRequestsWithoutAKeyAreNotRepeated(t *testing.T) {
	t.Parallel()
	tp := newTape(status(503, "", "Retry-After", "1"))
	resp, err := send(t, &idemhttp.Transport{Base: tp}, withContext(idemhttp.WithoutKey(t.Context())))
	if err != nil || resp.StatusCode != 503 || len(tp.sent) != 1 || tp.sent[0].Key != "" {
		t.Errorf("got %v, %v, sent %v", resp, err, tp.sent)
	}
	tp = newTape(reset)
	if _, err = send(t, &idemhttp.Transport{Base: tp}, withContext(idemhttp.WithoutKey(t.Context()))); !errors.Is(err, errReset) || len(tp.sent) != 1 {
		t.Errorf("got %v, sent %v", err, tp.sent)
	}
}

func TestCallersKeyIsKept(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		changes []change
		want    string
	}{
		"header":             {[]change{header("Idempotency-Key", "mine")}, "mine"},
		"quoted header":      {[]change{header("Idempotency-Key", `"mine"`)}, `"mine"`},
		"context":            {[]change{withContext(idemhttp.WithKey(t.Context(), "mine"))}, "mine"},
		"header and context": {[]change{header("Idempotency-Key", "mine"), withContext(idemhttp.WithKey(t.Context(), "other"))}, "mine"},
	} {
		tp := newTape(reset, paid)
		if _, err := send(t, &idemhttp.Transport{Base: tp, KeyPrefix: "web-", QuoteKeys: true, MaxInterval: -1}, tc.changes...); err != nil {
			t.Error(err)
		}
		for _, s := range tp.sent {
			if s.Key != tc.want {
				t.Errorf("%s: sent key %q, want %q", name, s.Key, tc.want)
			}
		}
	}
	for name, c := range map[string]change{
		"empty":             header("Idempotency-Key", ""),
		"blank":             header("Idempotency-Key", "  "),
		"doubled":           header("Idempotency-Key", "a", "b"),
		"empty, by WithKey": withContext(idemhttp.WithKey(t.Context(), "")),
	} {
		tp := newTape(paid)
		if _, err := send(t, &idemhttp.Transport{Base: tp}, c); !errors.Is(err, idem.ErrInvalidKey) || len(tp.sent) != 0 {
			t.Errorf("%s: got %v, sent %v", name, err, tp.sent)
		}
	}
}

func TestHowKeysLook(t *testing.T) {
	t.Parallel()
	tp := newTape(paid)
	for _, tr := range []*idemhttp.Transport{{KeyPrefix: "web-"}, {QuoteKeys: true}, {KeyPrefix: "web-", QuoteKeys: true}} {
		tr.Base = tp
		if _, err := send(t, tr); err != nil {
			t.Error(err)
		}
	}
	for i, shape := range []string{`^web-[0-9a-f-]{36}$`, `^"[0-9a-f-]{36}"$`, `^"web-[0-9a-f-]{36}"$`} {
		if key := tp.sent[i].Key; !regexp.MustCompile(shape).MatchString(key) {
			t.Errorf("key %q, want %s", key, shape)
		}
	}
	for _, prefix := range []string{"a,b", `a"b`, `a\b`, "a\nb", "é", strings.Repeat("x", 201)} {
		if _, err := send(t, &idemhttp.Transport{Base: tp, KeyPrefix: prefix}); !errors.Is(err, idem.ErrInvalidOption) {
			t.Errorf("prefix %q: %v", prefix, err)
		}
	}
	other := newTape(func(r *http.Request) (*http.Response, error) {
		if r.Header.Get("X-Request-Key") == "" || r.Header.Get("Idempotency-Key") != "" {
			t.Errorf("sent %v", r.Header)
		}
		return paid(r)
	})
	if _, err := send(t, &idemhttp.Transport{Base: other, KeyHeader: "x-request-key"}); err != nil {
		t.Error(err)
	}
}

// direct calls a handler without a network, which synctest cannot wait for.
func direct(h http.Handler) reply {
	return func(r *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Result(), nil
	}
}

func TestB128CallerGoesOnWithTheKeyOfTheError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int64
		server := direct(idemhttp.Middleware(memstore.New(), userOf)(counted(&runs, created)))
		lost := func(r *http.Request) (*http.Response, error) { // done, but the gateway did not wait
			server(r)
			return status(503, "")(r)
		}
		for name, retry := range map[string]func(ctx context.Context, e *idemhttp.UnsettledError) change{
			"Context": func(ctx context.Context, e *idemhttp.UnsettledError) change { return withContext(e.Context(ctx)) },
			"WithKey": func(ctx context.Context, e *idemhttp.UnsettledError) change {
				return withContext(idemhttp.WithKey(ctx, e.Key))
			},
			"header": func(_ context.Context, e *idemhttp.UnsettledError) change { return header("Idempotency-Key", e.Key) },
		} {
			runs.Store(0)
			tp := newTape(lost, lost, lost, lost, server)
			tr := &idemhttp.Transport{Base: tp}
			_, err := send(t, tr)
			e := wantUnsettled(t, err, nil, 4)
			resp, err := send(t, tr, retry(t.Context(), e))
			if err != nil || resp.StatusCode != 201 || resp.Header.Get("Idempotent-Replayed") != "true" {
				t.Errorf("%s: got %v, %v, want the replay", name, resp, err)
			}
			wantRuns(t, &runs, 1)
			for _, s := range tp.sent {
				if s.Key != e.Key || s.Body != tp.sent[0].Body {
					t.Errorf("%s: sent %v, want key %q", name, s, e.Key)
				}
			}
		}
	})
}

func TestB130AFixedKeyIsNoUniquenessRule(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int64
		server := direct(idemhttp.Middleware(memstore.New(), userOf)(counted(&runs, created)))
		tr := &idemhttp.Transport{Base: newTape(server)}
		create := func(body string, wantStatus int, wantReplay bool) {
			t.Helper()
			req := newRequest(t, "http://shop.test/", "customer-42", body)
			got := do(t, &http.Client{Transport: tr}, req)
			if got.Status != wantStatus || got.replayed() != wantReplay {
				t.Errorf("got %d, replayed %v, want %d, %v", got.Status, got.replayed(), wantStatus, wantReplay)
			}
		}
		create("{}", 201, false)
		create("{}", 201, true)
		<-time.After(24 * time.Hour)
		create("[]", 422, false) // an honest call, refused
		<-time.After(idem.DefaultRetention)
		create("{}", 201, false) // a duplicate, made
		wantRuns(t, &runs, 2)
	})
}
