package idemredis

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

const (
	mostLeaders = 2  // round trips under way before callers queue
	mostAtOnce  = 64 // requests in one: the server serves nobody else meanwhile
)

// A combiner lets callers that wait share a round trip. While there are fewer
// under way than leaders, a caller goes straight through, alone, and waits for
// nobody. Otherwise it queues, and when a leader has its answer, the head of the
// queue leads the next pipeline, for itself and those behind it. There is no
// goroutine of its own.
//
// It is not for a Cluster, where a node that is down would hold up the requests
// for the others.
type combiner struct {
	client *redis.Client

	mu    sync.Mutex
	busy  int
	queue []*request
}

func (c *combiner) do(ctx context.Context, r *request) (any, error) {
	c.mu.Lock()
	if c.busy < mostLeaders {
		c.busy++
		c.mu.Unlock()
		defer c.handOver()
		return r.send(ctx, c.client)
	}
	r.turn = make(chan []*request, 1)
	c.queue = append(c.queue, r)
	c.mu.Unlock()

	select {
	case batch := <-r.turn:
		c.lead(ctx, batch)
	case <-ctx.Done():
		c.lead(ctx, c.leave(r))
		return nil, ctx.Err()
	}
	if reply, err := r.cmd.Result(); reply != nil || errors.Is(err, redis.Nil) {
		return reply, err
	}
	// Whatever ended the pipeline, such as its leader's context, says nothing of
	// this request; or the server does not know the script.
	return r.send(ctx, c.client)
}

// leave takes a request whose ctx has ended out of the queue. If it was to lead,
// it returns its batch: the pipeline fails, and the others go on alone.
func (c *combiner) leave(r *request) []*request {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.queue, r); i >= 0 {
		c.queue = slices.Delete(c.queue, i, i+1)
	}
	select {
	case batch := <-r.turn:
		return batch
	default:
		return nil
	}
}

// lead sends the batch, the first of which is the caller's. There is none for
// those who were led.
func (c *combiner) lead(ctx context.Context, batch []*request) {
	if len(batch) == 0 {
		return
	}
	defer func() {
		c.handOver()
		for _, r := range batch[1:] {
			r.turn <- nil
		}
	}()
	pipe := c.client.Pipeline()
	for _, r := range batch {
		r.cmd = r.script.EvalSha(ctx, pipe, r.keys, r.args...)
	}
	_, _ = pipe.Exec(ctx) // each request has its own error
}

// handOver ends a leader's turn: the head of the queue leads next, or there is
// room for another one.
func (c *combiner) handOver() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 {
		c.busy--
		return
	}
	n := min(len(c.queue), mostAtOnce)
	batch := slices.Clone(c.queue[:n])
	c.queue = slices.Delete(c.queue, 0, n)
	batch[0].turn <- batch
}
