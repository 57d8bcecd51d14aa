package pg

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
)

// fakeServer is a server: each statement takes a second, and answers a request
// with its tenfold.
type fakeServer struct {
	mu       sync.Mutex
	sent     [][]int // the requests of each statement
	fail     bool    // statements for several callers fail
	forsaken []int
}

func (s *fakeServer) combiner(leaders, most int) *combiner[int, int] {
	send := func(ctx context.Context, reqs ...int) error {
		s.mu.Lock()
		s.sent = append(s.sent, reqs)
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
			return nil
		}
	}
	return &combiner[int, int]{
		pace: newPace(leaders, leaders), most: most,
		teaches: func(int, int) bool { return true },
		one:     func(ctx context.Context, req int) (int, error) { return 10 * req, send(ctx, req) },
		many: func(ctx context.Context, reqs []int) ([]int, error) {
			if err := send(ctx, reqs...); err != nil {
				return nil, err
			}
			if s.fail {
				return nil, errors.New("one of the requests is bad")
			}
			results := slices.Clone(reqs)
			for i := range results {
				results[i] *= 10
			}
			return results, nil
		},
		forsaken: func(req, res int) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.forsaken = append(s.forsaken, req)
		},
	}
}

// ask sends requests in order, each from a caller of its own, and returns their
// results and errors once all have one.
func ask(t *testing.T, c *combiner[int, int], ctxOf func(int) context.Context, reqs ...int) (results map[int]int, errs map[int]error) {
	t.Helper()
	results, errs = map[int]int{}, map[int]error{}
	var mu sync.Mutex
	var callers sync.WaitGroup
	for _, req := range reqs {
		callers.Go(func() {
			res, err := c.do(ctxOf(req), req)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs[req] = err
			} else {
				results[req] = res
			}
		})
		synctest.Wait() // it has sent its request or stands in the queue
	}
	callers.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy != 0 || len(c.queue) != 0 {
		t.Errorf("%d statements and %d waiters are left", c.busy, len(c.queue))
	}
	return results, errs
}

func TestCallersShareWhatTheyWaitFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{}
		results, errs := ask(t, s.combiner(2, 3), func(int) context.Context { return t.Context() }, 1, 2, 3, 4, 5, 6)
		want := map[int]int{1: 10, 2: 20, 3: 30, 4: 40, 5: 50, 6: 60}
		if diff := cmp.Diff(want, results); diff != "" || len(errs) > 0 {
			t.Errorf("results (-want +got):\n%s%v", diff, errs)
		}
		// Two go straight through; the first to end leads three, the other one.
		slices.SortFunc(s.sent, func(a, b []int) int { return a[0] - b[0] })
		if diff := cmp.Diff([][]int{{1}, {2}, {3, 4, 5}, {6}}, s.sent); diff != "" {
			t.Errorf("statements (-want +got):\n%s", diff)
		}
	})
}

func TestMoreStatementsShareTheQueueOnceThePaceAllowsThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{}
		c := s.combiner(1, 10)
		c.pace = newPace(1, 3)
		c.pace.trip = time.Second // but it learns of that from the first statement
		results, errs := ask(t, c, func(int) context.Context { return t.Context() }, 1, 2, 3, 4, 5, 6, 7)
		want := map[int]int{1: 10, 2: 20, 3: 30, 4: 40, 5: 50, 6: 60, 7: 70}
		if diff := cmp.Diff(want, results); diff != "" || len(errs) > 0 {
			t.Errorf("results (-want +got):\n%s%v", diff, errs)
		}
		slices.SortFunc(s.sent, func(a, b []int) int { return a[0] - b[0] })
		if diff := cmp.Diff([][]int{{1}, {2, 3}, {4, 5}, {6, 7}}, s.sent); diff != "" {
			t.Errorf("statements (-want +got):\n%s", diff)
		}
	})
}

func TestFailedStatementIsSentAgainForEachCallerAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{fail: true}
		results, errs := ask(t, s.combiner(1, 10), func(int) context.Context { return t.Context() }, 1, 2, 3, 4)
		if diff := cmp.Diff(map[int]int{1: 10, 2: 20, 3: 30, 4: 40}, results); diff != "" || len(errs) > 0 {
			t.Errorf("results (-want +got):\n%s%v", diff, errs)
		}
		if len(s.sent) != 5 { // one, three together, and each of them
			t.Errorf("statements: %v", s.sent)
		}
	})
}

func TestCallerThatGoesDoesNotHinderTheOthers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		gone     int
		after    time.Duration
		sent     [][]int
		forsaken []int
	}{
		"in the queue, it is not sent":               {3, time.Second / 2, [][]int{{1}, {2, 4}}, nil},
		"in a statement, its result is given up":     {3, 3 * time.Second / 2, [][]int{{1}, {2, 3, 4}}, []int{3}},
		"as the leader, it still leads":              {2, 3 * time.Second / 2, [][]int{{1}, {2, 3, 4}}, nil},
		"at the head of the queue, the next leads":   {2, time.Second / 2, [][]int{{1}, {3, 4}}, nil},
		"while it is sent alone, only it is stopped": {1, time.Second / 2, [][]int{{1}, {2, 3, 4}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &fakeServer{}
				ctx, cancel := context.WithTimeout(t.Context(), tt.after)
				defer cancel()
				results, _ := ask(t, s.combiner(1, 10), func(req int) context.Context {
					if req == tt.gone {
						return ctx
					}
					return t.Context()
				}, 1, 2, 3, 4)
				for req := 1; req <= 4; req++ {
					if got, ok := results[req]; req != tt.gone && (!ok || got != 10*req) {
						t.Errorf("request %d got %d", req, got)
					}
				}
				if diff := cmp.Diff(tt.sent, s.sent); diff != "" {
					t.Errorf("statements (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(tt.forsaken, s.forsaken); diff != "" {
					t.Errorf("given up (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestEveryCallerGetsItsOwnResult(t *testing.T) {
	t.Parallel()
	var several atomic.Int64
	p := newPace(2, 8)
	c := &combiner[int, int]{
		pace: p, most: 8,
		teaches: func(int, int) bool { return false },
		one: func(_ context.Context, req int) (int, error) {
			p.allowed.Store(1 + rand.Int32N(4))
			runtime.Gosched() // others come meanwhile
			return -req, nil
		},
		many: func(_ context.Context, reqs []int) ([]int, error) {
			several.Add(1)
			runtime.Gosched()
			if rand.IntN(10) == 0 {
				return nil, errors.New("now and then a statement fails")
			}
			results := slices.Clone(reqs)
			for i := range results {
				results[i] = -results[i]
			}
			return results, nil
		},
		forsaken: func(int, int) {},
	}
	var callers sync.WaitGroup
	for caller := range 32 {
		callers.Go(func() {
			for i := range 300 {
				req := 1 + caller*1000 + i
				ctx, cancel := context.WithCancel(context.Background())
				if rand.IntN(20) == 0 {
					cancel()
				}
				if res, err := c.do(ctx, req); err == nil && res != -req {
					t.Errorf("request %d got %d", req, res)
				}
				cancel()
			}
		})
	}
	callers.Wait()
	if several.Load() == 0 {
		t.Error("no statement was shared")
	}
	if c.busy != 0 || len(c.queue) != 0 {
		t.Errorf("%d statements and %d waiters are left", c.busy, len(c.queue))
	}
}

func TestPaceFollowsTheWayToTheServer(t *testing.T) {
	t.Parallel()
	const near, far = 80 * time.Microsecond, time.Millisecond
	p := newPace(2, 8)
	learn := func(times int, took time.Duration, alone bool) {
		for range times {
			p.learn(took, alone)
		}
	}
	for _, step := range []struct {
		name  string
		times int
		took  time.Duration
		alone bool
		want  int32
	}{
		{"near", 100, near, true, 2},
		{"near and busy", 100, 20 * near, false, 2},
		{"near, one that is late", 1, far, true, 2},
		{"far", 100, far, true, 8}, // 9 would keep a processor busy, there are 8 connections
		{"far and busy", 100, 3 * far, false, 8},
		{"nearer again, and busy", 1, far / 2, false, 5},
		{"near again", 100, near, true, 2},
	} {
		learn(step.times, step.took, step.alone)
		if got := p.allowed.Load(); got != step.want {
			t.Errorf("%s: %d statements at once, want %d", step.name, got, step.want)
		}
	}
	if got := newPace(2, 1).allowed.Load(); got != 1 {
		t.Errorf("with one connection: %d statements at once, want 1", got)
	}
}

func TestStoreLearnsFromWhatItDidNotWrite(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), "postgres://127.0.0.1/nowhere?pool_max_conns=7") // connects to nothing yet
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s := New(pool)
	if p := s.claims.pace; p != s.completions.pace || p.fewest != 2 || p.most != 7 {
		t.Errorf("claims and completions are paced by %p and %p, from %d to %d", p, s.completions.pace, p.fewest, p.most)
	}
	req := idem.ClaimRequest{Token: idem.ID{1}}
	for _, tt := range []struct {
		name string
		res  claimed
		want bool
	}{
		{"a claim that was made", claimed{idem.Record{Token: req.Token}, true}, false},
		{"a record that was there", claimed{idem.Record{Token: idem.ID{2}}, true}, true},
		{"no answer", claimed{}, false},
	} {
		if got := s.claims.teaches(req, tt.res); got != tt.want {
			t.Errorf("%s teaches: %v, want %v", tt.name, got, tt.want)
		}
	}
}
