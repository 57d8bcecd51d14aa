package idemredis_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemredis"
)

// A pair is a primary, its replica, and a client of whichever is in charge.
type pair struct {
	primary, replica *server
	promoted         *redis.Client
	inCharge         atomic.Pointer[server]
	store            *idemredis.Store
}

func startPair(t *testing.T) *pair {
	p := &pair{primary: start(t), replica: start(t)}
	p.promoted = p.replica.client(t)
	follow(t, p.promoted, p.primary)
	p.inCharge.Store(p.primary)
	c := redis.NewClient(&redis.Options{
		Addr: "in charge",
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, p.inCharge.Load().addr())
		},
	})
	t.Cleanup(func() { c.Close() })
	p.store = idemredis.New(c)
	return p
}

// inStep waits until the replica has what the primary has.
func (p *pair) inStep(t *testing.T) {
	t.Helper()
	if n, err := p.primary.client(t).Do(t.Context(), "WAIT", 1, 10_000).Int(); err != nil || n != 1 {
		t.Fatalf("%d replicas, error %v", n, err)
	}
}

// promote cuts the replica off, while the primary goes on for a while.
func (p *pair) promote(t *testing.T) {
	t.Helper()
	do(t, p.promoted, "REPLICAOF", "NO", "ONE")
}

// fail ends the primary; the replica takes its place.
func (p *pair) fail() {
	p.inCharge.Store(p.replica)
	p.primary.kill()
}

// What docs/redis.md says that a failover loses, one by one.
func TestFailoverLosesWhatWasNotReplicated(t *testing.T) {
	t.Parallel()
	needsBinary(t)
	p := startPair(t)
	request := func(n int) idem.ClaimRequest {
		req := claim(byte(n))
		req.Key = numbered(n)
		return req
	}
	claimReplicated, bothReplicated, claimLost, outcomeLost := request(1), request(2), request(3), request(4)
	mustClaim(t, p.store, claimReplicated)
	mustClaim(t, p.store, bothReplicated)
	mustClaim(t, p.store, outcomeLost)
	kept, err := p.store.Complete(t.Context(), completion(bothReplicated))
	if err != nil {
		t.Fatal(err)
	}
	p.inStep(t)
	p.promote(t)
	mustClaim(t, p.store, claimLost)
	if _, err := p.store.Complete(t.Context(), completion(outcomeLost)); err != nil {
		t.Fatal(err)
	}
	p.fail()

	if _, err := p.store.Complete(t.Context(), completion(claimReplicated)); err != nil {
		t.Errorf("a claim that was replicated: its completion got %v", err)
	}
	if at, err := p.store.Complete(t.Context(), completion(bothReplicated)); err != nil || !at.Equal(kept) {
		t.Errorf("an outcome that was replicated: got %v, %v, want %v", at, err, kept)
	}
	if _, err := p.store.Complete(t.Context(), completion(claimLost)); !errors.Is(err, idem.ErrLeaseLost) {
		t.Errorf("a claim that was lost: its completion got %v, want ErrLeaseLost", err)
	}
	if _, found, err := p.store.Lookup(t.Context(), claimLost.Key); found || err != nil {
		t.Errorf("a claim that was lost was made again: %v, %v", found, err)
	}
	rec, found, err := p.store.Lookup(t.Context(), outcomeLost.Key)
	if err != nil || !found || rec.State != idem.Processing || rec.LeaseLeft <= 0 {
		t.Errorf("an outcome that was lost: got %+v, %v, want its claim, with its lease", rec, err)
	}
}

// A primary is killed in the middle of a run. Keys may run again, as documented;
// no claim is completed twice, and what was recorded at last is what is replayed.
func TestFailoverInTheMiddleOfARun(t *testing.T) {
	t.Parallel()
	needsBinary(t)
	const callers, keys = 4, 150
	p := startPair(t)
	once := &completions{Store: p.store, of: map[idem.ID]int{}}
	var (
		runs     [keys]atomic.Int64
		answered [keys]atomic.Bool
		done     atomic.Int64
		group    sync.WaitGroup
	)
	run := func(n int) (idem.Result[string], error) {
		return idem.Do(t.Context(), once, numbered(n), "payload", func(context.Context) (string, idem.Status, error) {
			runs[n].Add(1)
			return "done", 201, nil
		}, idem.WithLease(500*time.Millisecond), idem.WithWait(10*time.Second))
	}
	for i := range callers {
		group.Go(func() {
			for n := i; n < keys; n += callers {
				switch _, err := run(n); {
				case err == nil:
					answered[n].Store(true)
				case !errors.Is(err, idem.ErrLeaseLost) && !errors.Is(err, idem.ErrUnavailable) && !errors.Is(err, idem.ErrNotRecorded):
					t.Errorf("key %d: %v", n, err)
				}
				done.Add(1)
			}
		})
	}
	until(t, "a third of the keys", func(context.Context) bool { return done.Load() > keys/3 })
	p.promote(t)
	until(t, "the primary to go on", func(context.Context) bool { return done.Load() > keys/2 })
	p.fail()
	group.Wait()

	again := 0
	for n := range keys {
		before := runs[n].Load()
		res, err := run(n)
		if err != nil || res.Value != "done" {
			t.Errorf("key %d: got %+v, %v", n, res, err)
		}
		if answered[n].Load() && runs[n].Load() > before {
			again++
		}
		if res, err := idem.Do(t.Context(), p.store, numbered(n), "payload", mustNotRun(t)); err != nil || !res.Replayed {
			t.Errorf("key %d: got %+v, %v, want a replay", n, res, err)
		}
	}
	if again == 0 || again == keys {
		t.Errorf("%d of %d answered keys ran again: the case is not the one that is meant", again, keys)
	}
	t.Logf("%d of %d answered keys ran again after the failover", again, keys)
	for token, n := range once.of {
		if n > 1 {
			t.Errorf("the claim %v was completed %d times", token, n)
		}
	}
}

// completions counts the acknowledged completions of each claim.
type completions struct {
	idem.Store
	mu sync.Mutex
	of map[idem.ID]int
}

func (c *completions) Complete(ctx context.Context, req idem.CompleteRequest) (time.Time, error) {
	at, err := c.Store.Complete(ctx, req)
	if err == nil {
		c.mu.Lock()
		c.of[req.Token]++
		c.mu.Unlock()
	}
	return at, err
}
