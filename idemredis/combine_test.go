package idemredis_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemredis"
)

// A trips counts round trips and what they carry, holds each up for a while, and
// fails as many pipelines as it is told.
type trips struct {
	counter
	single, pipelines, piped, fail atomic.Int64
	pause                          time.Duration
}

func (h *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.single.Add(1)
		<-time.After(h.pause)
		return next(ctx, cmd)
	}
}

func (h *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.pipelines.Add(1)
		h.piped.Add(int64(len(cmds)))
		if h.fail.Add(-1) >= 0 {
			return errors.New("cut off")
		}
		<-time.After(h.pause)
		return next(ctx, cmds)
	}
}

func openTrips(t *testing.T, h *trips) *idemredis.Store {
	c := client(t)
	s := idemredis.New(c, idemredis.WithPrefix(prefix(t)))
	if _, err := idem.Do(t.Context(), s, key, "payload", returns("the server learns the scripts")); err != nil {
		t.Fatal(err)
	}
	c.AddHook(h)
	return s
}

func TestCallersThatWaitShareRoundTrips(t *testing.T) {
	t.Parallel()
	for name, failing := range map[string]int64{"as a rule": 0, "and go on alone if they fail": 5} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &trips{pause: 2 * time.Millisecond}
			h.fail.Store(failing)
			s := openTrips(t, h)
			const keys, callersOfOne = 40, 3
			var runs [keys]atomic.Int64
			var callers sync.WaitGroup
			for i := range keys * callersOfOne {
				callers.Go(func() {
					n := i % keys
					want := fmt.Sprint(n)
					res, err := idem.Do(t.Context(), s, numbered(n), want, func(context.Context) (string, idem.Status, error) {
						runs[n].Add(1)
						return want, 201, nil
					}, idem.WithWait(10*time.Second))
					if err != nil || res.Value != want {
						t.Errorf("key %d: got %+v, %v", n, res, err)
					}
				})
			}
			callers.Wait()
			for n := range keys {
				if got := runs[n].Load(); got != 1 {
					t.Errorf("key %d: %d closures ran", n, got)
				}
			}
			if p, n := h.pipelines.Load(), h.piped.Load(); n < 2*p {
				t.Errorf("%d requests in %d pipelines, and %d alone", n, p, h.single.Load())
			}
		})
	}
}

func TestACallerWhoseContextEndsLeavesTheQueue(t *testing.T) {
	t.Parallel()
	s := openTrips(t, &trips{pause: 200 * time.Millisecond})
	var callers sync.WaitGroup
	for n := range 12 {
		callers.Go(func() {
			patience := 20 * time.Millisecond
			if n%3 == 0 {
				patience = 20 * time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			req := claim(byte(n + 1))
			req.Key = numbered(n)
			rec, err := s.Claim(ctx, req)
			if patient := n%3 == 0; patient && (err != nil || rec.Token != req.Token) {
				t.Errorf("a patient caller got %+v, %v", rec, err)
			} else if !patient && !errors.Is(err, context.DeadlineExceeded) && !errors.As(err, new(net.Error)) {
				t.Errorf("a caller without patience got %+v, %v", rec, err)
			}
		})
	}
	callers.Wait()
}
