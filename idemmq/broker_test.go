package idemmq_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemmq"
	"github.com/idem-go/idem/memstore"
)

// A delivery is a broker's only one, and writes down what it is told.
type delivery struct {
	msg        idemmq.Message
	deadLetter error         // what DeadLetter returns
	extend     error         // what Extend returns
	slow       time.Duration // how long Extend takes unless its context ends

	mu  sync.Mutex
	log []string
}

func message(id string) *delivery {
	return &delivery{msg: idemmq.Message{ID: id, Body: []byte("body of " + id)}}
}

func (d *delivery) Message() idemmq.Message { return d.msg }

func (d *delivery) told(ctx context.Context, what string, err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log = append(d.log, what)
	return errors.Join(err, ctx.Err())
}

func (d *delivery) Ack(ctx context.Context) error { return d.told(ctx, "ack", nil) }

func (d *delivery) Nak(ctx context.Context, delay time.Duration) error {
	return d.told(ctx, fmt.Sprint("nak in ", delay), nil)
}

func (d *delivery) DeadLetter(ctx context.Context, reason idemmq.Reason) error {
	return d.told(ctx, "dead_letter: "+string(reason), d.deadLetter)
}

func (d *delivery) Extend(ctx context.Context) error {
	if d.slow > 0 {
		wait(ctx, d.slow)
	}
	return d.told(ctx, "extend", d.extend)
}

func (d *delivery) want(t *testing.T, want ...string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if diff := cmp.Diff(want, d.log); diff != "" {
		t.Errorf("what the broker was told (-want +got):\n%s", diff)
	}
}

// wait pauses for d, on the fake clock of a synctest bubble, and reports whether
// ctx is still alive.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// A broker delivers at least once: a message that is not decided within ackWait
// is delivered again. It counts deliveries and, like JetStream, takes a decision
// from any delivery of a message.
type broker struct {
	ackWait time.Duration
	ready   chan *brokered

	mu      sync.Mutex
	pending int
	acked   []string
	dead    []string
	naks    []time.Duration
	counts  map[string]int // deliveries by id
}

// brokered is one delivery of a message by a broker.
type brokered struct {
	b    *broker
	copy *copyOf
	msg  idemmq.Message
	mute bool // the consumer's process is dead: it says nothing any more
}

// copyOf is one published message.
type copyOf struct {
	msg   idemmq.Message
	timer *time.Timer // its next delivery
	done  bool
}

func newBroker(ackWait time.Duration) *broker {
	return &broker{ackWait: ackWait, ready: make(chan *brokered, 10_000), counts: map[string]int{}}
}

func (b *broker) publish(msg idemmq.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pending++
	b.deliver(&copyOf{msg: msg})
}

func (b *broker) deliver(c *copyOf) {
	c.msg.Deliveries++
	b.counts[c.msg.ID]++
	c.msg.AckWait = b.ackWait
	b.again(c, b.ackWait)
	b.ready <- &brokered{b: b, copy: c, msg: c.msg}
}

func (b *broker) again(c *copyOf, after time.Duration) {
	if c.timer != nil {
		c.timer.Stop()
	}
	c.timer = time.AfterFunc(after, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if !c.done {
			b.deliver(c)
		}
	})
}

// consume has n consumers handle deliveries until every message is done.
func (b *broker) consume(n int, handle func(*brokered)) {
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for d := range b.ready {
				handle(d)
			}
		})
	}
	wg.Wait()
}

func (d *brokered) Message() idemmq.Message { return d.msg }

// end changes the message unless its consumer is dead or it is done.
func (d *brokered) end(change func(b *broker)) error {
	d.b.mu.Lock()
	defer d.b.mu.Unlock()
	if !d.mute && !d.copy.done {
		change(d.b)
	}
	return nil
}

func (d *brokered) done(list *[]string) {
	d.copy.done = true
	d.copy.timer.Stop()
	*list = append(*list, d.msg.ID)
	if d.b.pending--; d.b.pending == 0 {
		close(d.b.ready)
	}
}

func (d *brokered) Ack(context.Context) error {
	return d.end(func(b *broker) { d.done(&b.acked) })
}

func (d *brokered) DeadLetter(context.Context, idemmq.Reason) error {
	return d.end(func(b *broker) { d.done(&b.dead) })
}

func (d *brokered) Nak(_ context.Context, delay time.Duration) error {
	return d.end(func(b *broker) {
		b.naks = append(b.naks, delay)
		b.again(d.copy, delay)
	})
}

func (d *brokered) Extend(context.Context) error {
	return d.end(func(b *broker) { b.again(d.copy, b.ackWait) })
}

// process is the store as seen by a process that may die: nothing that it sends
// from then on arrives.
type process struct {
	idem.Store
	dead bool
}

func newProcess(shared *memstore.Store) *process { return &process{Store: shared} }

func (p *process) Complete(ctx context.Context, req idem.CompleteRequest) (time.Time, error) {
	if p.dead {
		return time.Now(), nil
	}
	return p.Store.Complete(ctx, req)
}

func (p *process) Release(ctx context.Context, req idem.ReleaseRequest) error {
	if p.dead {
		return nil
	}
	return p.Store.Release(ctx, req)
}

// tally counts by name.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *tally) add(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[name]++
	return c.n[name]
}

// wantEach checks that each of the names was counted n times, and no other.
func (c *tally) wantEach(t *testing.T, what string, names []string, n int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	want := map[string]int{}
	for _, name := range names {
		want[name] = n
	}
	if diff := cmp.Diff(want, c.n); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func ids(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("order-%d", i)
	}
	return all
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }
