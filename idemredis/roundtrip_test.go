package idemredis_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemredis"
)

// A counter counts the requests that a client sends.
type counter struct{ n atomic.Int64 }

func (c *counter) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmd)
	}
}

func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestRoundTrips(t *testing.T) {
	t.Parallel()
	c := client(t)
	s := idemredis.New(c, idemredis.WithPrefix(prefix(t)))
	run := func(n int, payload string, fn closure) func() {
		return func() { _, _ = idem.Do(t.Context(), s, numbered(n), payload, fn) }
	}
	look := func(n int) func() { return func() { _, _ = idem.Peek(t.Context(), s, numbered(n), "payload") } }
	run(0, "payload", returns("the server learns the scripts"))()
	look(0)()
	var count counter
	c.AddHook(&count) // after the connection was made, which takes requests of its own
	for _, step := range []struct {
		name string
		want int64
		do   func()
	}{
		{"a first run", 2, run(1, "payload", returns("done"))},
		{"a replay", 1, run(1, "payload", mustNotRun(t))},
		{"a mismatch", 1, run(1, "another", mustNotRun(t))},
		{"a look", 1, look(1)},
	} {
		before := count.n.Load()
		step.do()
		if got := count.n.Load() - before; got != step.want {
			t.Errorf("%s took %d round trips, want %d", step.name, got, step.want)
		}
	}
}

// Case B56: two clients, one key, a barrier.
func TestB56OfTwoClientsOneRuns(t *testing.T) {
	t.Parallel()
	stores := [2]*idemredis.Store{open(t), open(t)}
	for n := range size(300, 1000) {
		var runs atomic.Int64
		var ready, ended sync.WaitGroup
		ready.Add(len(stores))
		for _, s := range stores {
			ended.Go(func() {
				ready.Done()
				ready.Wait()
				_, _ = idem.Do(t.Context(), s, numbered(n), "payload", func(context.Context) (string, idem.Status, error) {
					runs.Add(1)
					return "done", 201, nil
				})
			})
		}
		ended.Wait()
		if runs.Load() != 1 {
			t.Fatalf("round %d: %d closures ran", n, runs.Load())
		}
	}
	mustClaim(t, stores[0], claim(1))
	if rec, err := stores[1].Claim(t.Context(), claim(2)); err != nil || rec.Token != id(1) {
		t.Errorf("a second claim in a row got %+v, %v", rec, err)
	}
}

var braces = []string{"{", "}", "{}", "}{", "{same}", "a{same}b"}

func TestB60NoTextOfAUserDecidesOnTheSlot(t *testing.T) {
	t.Parallel()
	s := open(t)
	for _, text := range braces {
		name := recordKey(t, s, idem.Key{User: text, Scope: text, Key: text})
		tag, _, _ := strings.Cut(strings.SplitN(name, "{", 2)[1], "}")
		if len(tag) != 43 || strings.Count(name, "{") != 1 || !strings.HasSuffix(name, "{"+tag+"}") {
			t.Errorf("the key of %q is %q", text, name)
		}
	}
}
