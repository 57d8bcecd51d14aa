package pg

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A combiner lets callers that wait to send the same kind of statement share
// one. It is adaptive without measuring anything: while there are fewer
// statements under way than leaders, a caller goes straight through, alone, and
// waits for nobody. Otherwise it queues, and when a leader's statement is done,
// the head of the queue leads the next one, for itself and all behind it.
//
// There is no goroutine of its own: a leader runs one statement, which contains
// its own request, and hands over.
type combiner[Req, Res any] struct {
	leaders int // statements that may be under way at once
	most    int // requests in one statement

	one func(context.Context, Req) (Res, error)
	// many returns one result for each request. An error says nothing about any
	// of them: each is then sent alone.
	many func(context.Context, []Req) ([]Res, error)
	// forsaken is told the result of a request whose caller has gone.
	forsaken func(Req, Res)

	mu    sync.Mutex
	busy  int
	queue []*waiter[Req, Res]
}

type waiter[Req, Res any] struct {
	req  Req
	turn chan turn[Req, Res] // one is sent, and there is room for it
	gone bool                // the caller has; guarded by combiner.mu
}

// A turn is what becomes of a waiter: a result, or a statement to lead, or, if
// it is neither, its request is sent alone.
type turn[Req, Res any] struct {
	lead []*waiter[Req, Res] // its own request first
	res  *Res
}

func (c *combiner[Req, Res]) do(ctx context.Context, req Req) (res Res, err error) {
	c.mu.Lock()
	if c.busy < c.leaders {
		c.busy++
		c.mu.Unlock()
		defer c.handOver()
		return c.one(ctx, req)
	}
	w := &waiter[Req, Res]{req: req, turn: make(chan turn[Req, Res], 1)}
	c.queue = append(c.queue, w)
	c.mu.Unlock()

	select {
	case t := <-w.turn:
		return c.take(ctx, w, t)
	case <-ctx.Done():
		if t, ok := c.leave(w); ok {
			return c.take(ctx, w, t)
		}
		return res, ctx.Err()
	}
}

// leave takes a waiter whose ctx has ended out of the queue. If it is too late
// for that, it returns the turn that the waiter was given, or, while its
// statement is under way, has its leader told.
func (c *combiner[Req, Res]) leave(w *waiter[Req, Res]) (t turn[Req, Res], ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case t = <-w.turn:
		return t, true
	default:
	}
	if i := slices.Index(c.queue, w); i >= 0 {
		c.queue = slices.Delete(c.queue, i, i+1)
	} else {
		w.gone = true
	}
	return t, false
}

func (c *combiner[Req, Res]) take(ctx context.Context, w *waiter[Req, Res], t turn[Req, Res]) (Res, error) {
	switch {
	case t.lead != nil:
		return c.lead(ctx, t.lead)
	case t.res != nil:
		return *t.res, nil
	}
	return c.one(ctx, w.req)
}

// sharedTimeout bounds a statement for several callers: none of their contexts
// may end it for the others.
const sharedTimeout = 5 * time.Second

// lead runs one statement for the batch, whose first request is the caller's.
func (c *combiner[Req, Res]) lead(ctx context.Context, batch []*waiter[Req, Res]) (Res, error) {
	if len(batch) == 1 {
		defer c.handOver()
		return c.one(ctx, batch[0].req)
	}
	reqs := make([]Req, len(batch))
	for i, w := range batch {
		reqs[i] = w.req
	}
	shared, cancel := context.WithTimeout(context.WithoutCancel(ctx), sharedTimeout)
	defer cancel()
	results, err := c.many(shared, reqs)
	c.handOver()
	for i, w := range batch[1:] {
		if err != nil {
			w.turn <- turn[Req, Res]{}
		} else if !c.deliver(w, &results[i+1]) {
			c.forsaken(w.req, results[i+1])
		}
	}
	if err != nil {
		return c.one(ctx, batch[0].req)
	}
	return results[0], nil
}

// deliver reports whether the caller was still there.
func (c *combiner[Req, Res]) deliver(w *waiter[Req, Res], res *Res) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !w.gone {
		w.turn <- turn[Req, Res]{res: res}
	}
	return !w.gone
}

// handOver ends a leader's turn: the head of the queue leads next, or there is
// room for another one.
func (c *combiner[Req, Res]) handOver() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 {
		c.busy--
		return
	}
	n := min(len(c.queue), c.most)
	batch := slices.Clone(c.queue[:n])
	c.queue = slices.Delete(c.queue, 0, n)
	batch[0].turn <- turn[Req, Res]{lead: batch}
}
