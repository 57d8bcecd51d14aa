package idemredis_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemredis"
)

// shared is the server of the tests that do nothing to it: the one that
// IDEM_TEST_REDIS_URL names, one of a redis-server binary, or miniredis.
var shared struct {
	options *redis.Options
	prefix  string
	mini    bool
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	shared.prefix = "idemtest:" + rand.Text() + ":"
	switch url := os.Getenv("IDEM_TEST_REDIS_URL"); {
	case url != "":
		options, err := redis.ParseURL(url)
		if err != nil {
			fmt.Fprintln(os.Stderr, "IDEM_TEST_REDIS_URL:", err)
			return 1
		}
		shared.options = options
		fmt.Fprintln(os.Stderr, "idemredis: tested on IDEM_TEST_REDIS_URL")
		defer forget()
	case binary() != "":
		s, err := newServer()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer s.kill()
		shared.options = &redis.Options{Addr: s.addr()}
		fmt.Fprintln(os.Stderr, "idemredis: tested on", binary())
	default:
		s, err := miniredis.Run()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer s.Close()
		stop := make(chan struct{})
		defer close(stop)
		go passTime(s, stop)
		shared.options, shared.mini = &redis.Options{Addr: s.Addr()}, true
		fmt.Fprintln(os.Stderr, "idemredis: tested on miniredis; clusters, failovers and faults of servers need redis-server and -tags services")
	}
	return m.Run()
}

// passTime makes keys of miniredis expire, which they do not by themselves.
func passTime(s *miniredis.Miniredis, stop <-chan struct{}) {
	ticks := time.NewTicker(5 * time.Millisecond)
	defer ticks.Stop()
	for last := time.Now(); ; {
		select {
		case <-stop:
			return
		case now := <-ticks.C:
			s.FastForward(now.Sub(last))
			last = now
		}
	}
}

// forget deletes what the tests have left on a server that stays.
func forget() {
	c := redis.NewClient(shared.options)
	defer c.Close()
	ctx := context.Background()
	for it := c.Scan(ctx, 0, shared.prefix+"*", 1000).Iterator(); it.Next(ctx); {
		c.Unlink(ctx, it.Val())
	}
}

// client returns a client of the shared server that is closed with the test.
func client(t testing.TB) *redis.Client {
	t.Helper()
	options := *shared.options
	options.ContextTimeoutEnabled = true
	c := redis.NewClient(&options)
	t.Cleanup(func() { c.Close() })
	return c
}

var prefixes sync.Map // of testing.TB

// prefix returns what the keys of a test begin with: its own, however often tests
// run (-count) on the same server.
func prefix(t testing.TB) string {
	p, _ := prefixes.LoadOrStore(t, shared.prefix+rand.Text()+":")
	return p.(string)
}

// open returns a store on the shared server. Those of one test share their
// records.
func open(t testing.TB) *idemredis.Store {
	t.Helper()
	return idemredis.New(client(t), idemredis.WithPrefix(prefix(t)))
}

// size is how often a case is tried: as often as it is written down when large
// cases are asked for (make cases), else as often as is quick.
func size(quick, large int) int {
	if os.Getenv("IDEM_TEST_LARGE") != "" {
		return large
	}
	return quick
}

var key = idem.Key{User: "user-1", Scope: "orders.create", Key: "key-1"}

func numbered(n int) idem.Key {
	k := key
	k.Key = fmt.Sprint(n)
	return k
}

type closure = func(context.Context) (string, idem.Status, error)

func returns(value string) closure {
	return func(context.Context) (string, idem.Status, error) { return value, 201, nil }
}

func mustNotRun(t testing.TB) closure {
	return func(context.Context) (string, idem.Status, error) {
		t.Error("the closure ran")
		return "", 0, nil
	}
}

// recordKey returns the Redis key of a record.
func recordKey(t testing.TB, s *idemredis.Store, k idem.Key) string {
	t.Helper()
	name, err := s.RecordKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func id(n byte) idem.ID { return idem.ID{15: n} }

// claim returns a claim of key with token id(n), for a minute and an hour.
func claim(n byte) idem.ClaimRequest {
	return idem.ClaimRequest{
		Key: key, Hash: idem.Hash{Version: 1, Sum: "00ff"}, Token: id(n), ExecutionID: id(100 + n),
		Lease: time.Minute, Retention: time.Hour,
	}
}

func mustClaim(t testing.TB, s idem.Store, req idem.ClaimRequest) idem.Record {
	t.Helper()
	rec, err := s.Claim(t.Context(), req)
	if err != nil || rec.Token != req.Token {
		t.Fatalf("claim: got %+v, %v", rec, err)
	}
	return rec
}

func completion(req idem.ClaimRequest) idem.CompleteRequest {
	return idem.CompleteRequest{
		Key: req.Key, Token: req.Token, State: idem.Succeeded, Retention: req.Retention,
		Response: idem.Response{Status: 201, Codec: "json", CodecVersion: 1, Body: []byte(`"done"`)},
	}
}
