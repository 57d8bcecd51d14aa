package idemhttp_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/idemhttp"
)

// upload sends a body as it is, with or without GetBody.
func upload(ctx context.Context, tr *idemhttp.Transport, body io.ReadCloser, length int64, again func() (io.ReadCloser, error)) error {
	req := must(http.NewRequestWithContext(ctx, "POST", "http://shop.test/", nil))
	req.Body, req.ContentLength, req.GetBody = body, length, again
	resp, err := tr.RoundTrip(req)
	if err == nil {
		resp.Body.Close()
	}
	return err
}

func counting(s string) *countedBody {
	return &countedBody{ReadCloser: io.NopCloser(strings.NewReader(s))}
}

func TestBodiesOfAllSizes(t *testing.T) {
	t.Parallel()
	const limit = 1000
	for name, tc := range map[string]struct {
		size     int
		unknown  bool // length
		again    bool // there is GetBody
		limit    int64
		attempts int
	}{
		"none":                                {0, false, false, limit, 2},
		"empty, of unknown length":            {0, true, false, limit, 2},
		"small":                               {10, false, false, limit, 2},
		"at the limit":                        {limit, false, false, limit, 2},
		"at the limit, of unknown length":     {limit, true, false, limit, 2},
		"above the limit":                     {limit + 1, false, false, limit, 1},
		"above the limit, of unknown length":  {limit + 1, true, false, limit, 1},
		"above the limit, with GetBody":       {limit + 1, false, true, limit, 2},
		"above, with GetBody, unknown length": {limit + 1, true, true, limit, 2},
		"nothing is copied":                   {10, false, false, -1, 1},
		"nothing is copied, with GetBody":     {10, false, true, -1, 2},
		"below the default limit":             {idemhttp.DefaultMaxBodyBytes, true, false, 0, 2},
		"above the default limit":             {idemhttp.DefaultMaxBodyBytes + 1, true, false, 0, 1},
	} {
		text := strings.Repeat("x", tc.size)
		body, length, again := counting(text), int64(tc.size), func() (io.ReadCloser, error) { return counting(text), nil }
		if tc.unknown {
			length = -1
		}
		if !tc.again {
			again = nil
		}
		tp := newTape(reset, paid)
		err := upload(t.Context(), &idemhttp.Transport{Base: tp, MaxBodyBytes: tc.limit, MaxInterval: -1}, body, length, again)
		if tc.attempts == 1 {
			wantUnsettled(t, err, errReset, 1)
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(tp.sent) != tc.attempts || !body.closed.Load() {
			t.Errorf("%s: %d attempts, want %d; the body was closed: %v", name, len(tp.sent), tc.attempts, body.closed.Load())
		}
		for _, s := range tp.sent {
			if s.Body != text {
				t.Errorf("%s: sent %d bytes", name, len(s.Body))
			}
		}
	}
}

func TestBodyThatCannotBeReadIsNotSent(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		body   *countedBody
		length int64
	}{
		"broken":    {&countedBody{ReadCloser: io.NopCloser(cutReader{})}, -1},
		"too short": {counting("xx"), 3},
		"too long":  {counting("xxxx"), 3},
	} {
		tp := newTape(paid)
		err := upload(t.Context(), &idemhttp.Transport{Base: tp}, tc.body, tc.length, nil)
		if err == nil || len(tp.sent) != 0 || !tc.body.closed.Load() {
			t.Errorf("%s: got %v, %d attempts, closed %v", name, err, len(tp.sent), tc.body.closed.Load())
		}
	}
	body := counting("x")
	err := upload(idemhttp.WithKey(t.Context(), ""), &idemhttp.Transport{}, body, 1, nil)
	if err == nil || !body.closed.Load() {
		t.Errorf("bad key: got %v, closed %v", err, body.closed.Load())
	}
}

func TestBodyThatCannotBeOpenedAgain(t *testing.T) {
	t.Parallel()
	errGone := errors.New("the file is gone")
	tr := &idemhttp.Transport{Base: newTape(reset, paid), MaxBodyBytes: -1, MaxInterval: -1}
	err := upload(t.Context(), tr, counting("x"), 1, func() (io.ReadCloser, error) { return nil, errGone })
	wantUnsettled(t, err, errGone, 1)
}

func TestContextEndsTheReadingOfABody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		endless, _ := io.Pipe()
		if err := upload(ctx, &idemhttp.Transport{Base: newTape(paid)}, endless, -1, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

func TestTrailersAndLengthsReachTheServer(t *testing.T) {
	t.Parallel()
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := must(io.ReadAll(r.Body))
		w.Header().Set("Got", r.Trailer.Get("Sum"))
		w.Header().Set("Length", map[bool]string{true: "unknown"}[r.ContentLength < 0])
		w.Write(body)
	}))
	tr := &idemhttp.Transport{Base: server.Client().Transport}
	for trailer, want := range map[string]string{"": "", "12": "unknown"} {
		req := newRequest(t, server.URL, "", "")
		req.Body, req.ContentLength = io.NopCloser(io.MultiReader(bytes.NewReader([]byte("body")))), -1
		if trailer != "" {
			req.Trailer = http.Header{"Sum": {trailer}}
		}
		got := do(t, &http.Client{Transport: tr}, req)
		if got.Body != "body" || got.Header.Get("Got") != trailer || got.Header.Get("Length") != want {
			t.Errorf("the server got %q, trailer %q, length %q", got.Body, got.Header.Get("Got"), got.Header.Get("Length"))
		}
	}
}
