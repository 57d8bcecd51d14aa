package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemmq"
)

// A count is of what happened, by name.
type count struct {
	mu sync.Mutex
	n  map[string]int
}

func newCount() *count { return &count{n: map[string]int{}} }

func (c *count) add(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[what]++
}

func (c *count) decided(d idemmq.Decision) {
	c.add(string(d.Action))
	if d.Reason != "" {
		c.add("put aside: " + string(d.Reason))
	}
}

// observe counts what idem tells.
func (c *count) observe(_ context.Context, e idem.Event) {
	switch {
	case e.Kind != idem.EventExecuted:
		c.add(string(e.Kind))
	case e.Disposition == idem.Keep:
		c.add("executed")
	default:
		c.add("interrupted")
	}
}

// report prints what happened, and returns an error unless each order was charged
// once and nothing but the unusable was put aside.
func report(out io.Writer, q *queue, c *count, charges map[int]int, took time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	dead, err := q.deadLetters(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()

	var killed int
	fmt.Fprintf(out, "\nwhat went wrong\n")
	line := func(n int, what string) { fmt.Fprintf(out, "%7d  %s\n", n, what) }
	line(q.published-orders, "duplicates and unusable messages")
	for _, f := range []fault{crash, killedBefore, killedAfter} {
		line(c.n[string(f)], string(f))
		killed += c.n[string(f)]
	}
	line(countFaults(failure), string(failure))
	line(countFaults(slow), string(slow))

	fmt.Fprintf(out, "\nwhat came of it in %v\n", took.Round(100*time.Millisecond))
	line(c.n["ack"]+c.n["nak"]+c.n["dead_letter"]+killed, "deliveries")
	line(c.n["executed"], "executions, and as many outcomes")
	line(c.n["replayed"], "replays of them, for duplicates")
	line(c.n["in_progress"], "deliveries put off while another was at work")
	line(dead, fmt.Sprintf("dead letters: %d ids with another sum, %d orders without an id",
		c.n["put aside: "+string(idemmq.ReasonMismatch)], c.n["put aside: "+string(idemmq.ReasonInvalid)]))

	times := map[int]int{} // how many orders were charged how often
	for n := range orders {
		times[charges[n]]++
	}
	for _, n := range slices.Sorted(maps.Keys(times)) {
		line(times[n], fmt.Sprintf("orders charged %d×", n))
	}
	switch {
	case times[1] != orders || len(charges) != orders:
		return fmt.Errorf("not every order was charged exactly once: %v", times)
	case dead != mismatches+nameless:
		return fmt.Errorf("%d dead letters, want %d", dead, mismatches+nameless)
	}
	return nil
}

func countFaults(f fault) (n int) {
	for i := range orders {
		if faults[i%20] == f {
			n++
		}
	}
	return n
}
