package idemhttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/memstore"
)

// The gateway loses the first answer. The second attempt has the same key, so
// it gets that answer and does not pay again.
func ExampleTransport() {
	noUser := func(*http.Request) (string, error) { return idem.NoUser, nil }
	pay := idemhttp.Middleware(memstore.New(), noUser)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("paying")
		w.WriteHeader(http.StatusCreated)
	}))
	var requests atomic.Int64
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 1 {
			pay.ServeHTTP(httptest.NewRecorder(), r)
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		pay.ServeHTTP(w, r)
	}))
	defer gateway.Close()

	client := &http.Client{Transport: &idemhttp.Transport{}}
	resp, err := client.Post(gateway.URL, "application/json", strings.NewReader(`{"amount":1299}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode, "replayed:", resp.Header.Get(idemhttp.ReplayedHeader), "requests:", requests.Load())
	// Output:
	// paying
	// 201 replayed: true requests: 2
}

// A call that is given up can go on later, with its key.
func ExampleUnsettledError() {
	client := &http.Client{Transport: &idemhttp.Transport{MaxRetries: -1}}
	send := func(ctx context.Context, url string) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("{}"))
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	var keys []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if keys = append(keys, r.Header.Get("Idempotency-Key")); len(keys) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()

	ctx := context.Background()
	err := send(ctx, server.URL)
	if e, ok := errors.AsType[*idemhttp.UnsettledError](err); ok {
		fmt.Println(e)
		err = send(e.Context(ctx), server.URL)
	}
	fmt.Println(err, keys[0] == keys[1])
	// Output:
	// idemhttp: unsettled after 1 attempts: the server answered 503 Service Unavailable
	// <nil> true
}
