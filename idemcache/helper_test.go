package idemcache_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemcache"
)

func cached(t testing.TB, store idem.Store) *idemcache.Store {
	t.Helper()
	s, err := idemcache.New(store, 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// counted is a store that counts what it is asked, and may be down.
type counted struct {
	idem.Store
	asked atomic.Int64
	down  atomic.Bool
}

var errDown = errors.New("down")

func (s *counted) Claim(ctx context.Context, req idem.ClaimRequest) (idem.Record, error) {
	s.asked.Add(1)
	if s.down.Load() {
		return idem.Record{}, idem.Permanent(errDown)
	}
	return s.Store.Claim(ctx, req)
}

func (s *counted) Lookup(ctx context.Context, key idem.Key) (idem.Record, bool, error) {
	if s.down.Load() {
		return idem.Record{}, false, errDown
	}
	return s.Store.Lookup(ctx, key)
}

var key = idem.Key{User: "alice", Scope: "orders.create", Key: "key-1"}

func numbered(n int) idem.Key { k := key; k.Key = fmt.Sprint(n); return k }

type closure = func(context.Context) (string, idem.Status, error)

func returns(value string) closure {
	return func(context.Context) (string, idem.Status, error) { return value, 201, nil }
}

// run does work that must run.
func run(t testing.TB, store idem.Store, key idem.Key, opts ...idem.Option) {
	t.Helper()
	res, err := idem.Do(t.Context(), store, key, "payload", returns("done"), opts...)
	if err != nil || res.Replayed {
		t.Fatalf("got %+v, %v, want a first run", res, err)
	}
}

// replays asks for work that must not run.
func replays(t testing.TB, store idem.Store, key idem.Key) idem.Result[string] {
	t.Helper()
	res, err := idem.Do(t.Context(), store, key, "payload", returns("run again"))
	if err != nil || !res.Replayed || res.Value != "done" || res.Status != 201 {
		t.Fatalf("got %+v, %v, want a replay", res, err)
	}
	return res
}

// settled returns a claim of a key that was completed with an error and a body.
func settled(t testing.TB, store idem.Store, retention time.Duration) idem.ClaimRequest {
	t.Helper()
	req := idem.ClaimRequest{
		Key: key, Hash: idem.Hash{Version: 1, Sum: "00ff"}, Token: idem.ID{1}, ExecutionID: idem.ID{2},
		Lease: time.Minute, Retention: retention,
	}
	claim(t, store, req)
	_, err := store.Complete(t.Context(), idem.CompleteRequest{
		Key: key, Token: req.Token, State: idem.Failed, Retention: retention, Response: idem.Response{
			Status: 409, Codec: "json", CodecVersion: 1, Body: []byte(`"original"`), Error: &idem.ErrorValue{Code: "original"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	req.Token, req.ExecutionID = idem.ID{3}, idem.ID{4}
	return req
}

func claim(t testing.TB, store idem.Store, req idem.ClaimRequest) idem.Record {
	t.Helper()
	rec, err := store.Claim(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func wait(d time.Duration) { <-time.After(d) }

// slow is a store whose answers are long on the way.
type slow struct {
	idem.Store
	way time.Duration
}

func (s slow) Claim(ctx context.Context, req idem.ClaimRequest) (idem.Record, error) {
	rec, err := s.Store.Claim(ctx, req)
	wait(s.way)
	return rec, err
}
