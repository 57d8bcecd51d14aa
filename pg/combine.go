package pg

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A combiner lets callers that wait to send the same kind of statement share
// one. It is adaptive: while there are fewer statements under way than its pace
// allows, a caller goes straight through, alone, and waits for nobody.
// Otherwise it queues, and when a leader's statement is done, the head of the
// queue leads the next one, for itself and those behind it.
//
// There is no goroutine of its own: a leader runs one statement, which contains
// its own request, and hands over.
type combiner[Req, Res any] struct {
	pace *pace
	most int // requests in one statement

	one func(context.Context, Req) (Res, error)
	// many returns one result for each request. An error says nothing about any
	// of them: each is then sent alone.
	many func(context.Context, []Req) ([]Res, error)
	// teaches reports whether the pace may learn from the time that a result took.
	teaches func(Req, Res) bool
	// forsaken is told the result of a request whose caller has gone.
	forsaken func(Req, Res)

	mu    sync.Mutex
	busy  int // statements under way
	queue []*waiter[Req, Res]
}

// A pace says how many statements of a kind may be under way at once: as many as
// keep a processor busy. More of them only wait for each other, and sharing spares
// work; fewer make callers wait where the server is far away. How far it is tell
// statements that wrote nothing, so did not wait for the disk, and were alone.
type pace struct {
	fewest, most int
	allowed      atomic.Int32
	trip         time.Duration // what such a statement takes; guarded by the mu of the combiner that learns
}

func newPace(fewest, most int) *pace {
	p := &pace{fewest: min(fewest, most), most: most}
	p.allowed.Store(int32(p.fewest))
	return p
}

// replayWork is about what a replay costs processors, on both sides.
const replayWork = 100 * time.Microsecond

// learn takes note of how long a statement took. Beside others it may have taken
// longer than the way is, but not shorter.
func (p *pace) learn(took time.Duration, alone bool) {
	switch {
	case alone:
		p.trip += (took - p.trip) / 16
	case took < p.trip:
		p.trip = took
	}
	p.allowed.Store(int32(max(p.fewest, min(p.most, int(p.trip/replayWork)))))
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
	if c.busy < int(c.pace.allowed.Load()) && len(c.queue) == 0 {
		c.busy++
		c.mu.Unlock()
		return c.straight(ctx, req)
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

// straight runs a statement for one request.
func (c *combiner[Req, Res]) straight(ctx context.Context, req Req) (res Res, err error) {
	began, teaches := time.Now(), false
	defer func() { c.handOver(began, 1, teaches) }()
	res, err = c.one(ctx, req)
	teaches = err == nil && c.teaches(req, res)
	return res, err
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
		return c.straight(ctx, batch[0].req)
	}
	reqs := make([]Req, len(batch))
	for i, w := range batch {
		reqs[i] = w.req
	}
	shared, cancel := context.WithTimeout(context.WithoutCancel(ctx), sharedTimeout)
	defer cancel()
	began, teaches := time.Now(), true
	results, err := c.many(shared, reqs)
	for i := range results {
		teaches = teaches && c.teaches(reqs[i], results[i])
	}
	c.handOver(began, len(batch), teaches && err == nil)
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

// handOver ends a leader's turn, whose statement was for so many requests: the
// head of the queue leads next, or several of it if the pace allows them.
func (c *combiner[Req, Res]) handOver(began time.Time, requests int, teaches bool) {
	took := time.Since(began)
	c.mu.Lock()
	defer c.mu.Unlock()
	if teaches {
		c.pace.learn(took, requests == 1 && c.busy == 1 && len(c.queue) == 0)
	}
	c.busy--
	for room := int(c.pace.allowed.Load()) - c.busy; room > 0 && len(c.queue) > 0; room-- {
		n := min((len(c.queue)+room-1)/room, c.most)
		batch := slices.Clone(c.queue[:n])
		c.queue = slices.Delete(c.queue, 0, n)
		c.busy++
		batch[0].turn <- turn[Req, Res]{lead: batch}
	}
}
