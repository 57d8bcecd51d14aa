package main

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// An operation is one request of a caller; n differs for each call of it.
type operation func(ctx context.Context, n int) error

// A sample is what one stretch of work came to.
type sample struct {
	operations int
	perSecond  float64
	p50, p99   time.Duration
}

// measure lets callers work for d and returns their throughput and latency.
func measure(ctx context.Context, callers int, d time.Duration, op operation) (sample, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		n      atomic.Int64
		group  sync.WaitGroup
		mu     sync.Mutex
		all    []time.Duration
		start  = time.Now()
		finish = start.Add(d)
	)
	for range callers {
		group.Go(func() {
			var latencies []time.Duration
			for now := time.Now(); ctx.Err() == nil && (len(latencies) == 0 || now.Before(finish)); {
				if err := op(ctx, int(n.Add(1))); err != nil {
					cancel(err)
					return
				}
				done := time.Now()
				latencies = append(latencies, done.Sub(now))
				now = done
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, latencies...)
		})
	}
	group.Wait()
	took := time.Since(start)
	if err := context.Cause(ctx); err != nil {
		return sample{}, err
	}
	s := sampleOf(all)
	s.perSecond = float64(len(all)) / took.Seconds()
	return s, nil
}

func sampleOf(latencies []time.Duration) sample {
	slices.Sort(latencies)
	n := len(latencies)
	return sample{operations: n, p50: latencies[n/2], p99: latencies[n*99/100]}
}

// measureTurns lets one caller work for d, with one operation after the other in
// turn, and returns the latency of each.
func measureTurns(ctx context.Context, d time.Duration, ops []operation) ([]sample, error) {
	latencies := make([][]time.Duration, len(ops))
	finish := time.Now().Add(d)
	for n := 0; n == 0 || time.Now().Before(finish); n++ {
		for i, op := range ops {
			start := time.Now()
			if err := op(ctx, n); err != nil {
				return nil, err
			}
			latencies[i] = append(latencies[i], time.Since(start))
		}
	}
	samples := make([]sample, len(ops))
	for i := range samples {
		samples[i] = sampleOf(latencies[i])
	}
	return samples, nil
}

// A comparison is what interleaved rounds of two sides came to: the median of
// the ratios of neighbours in time, and their spread. The machine's mood, which
// changes by the second, is in both sides of each ratio.
type comparison struct {
	Ours, Theirs       float64 // operations per second, medians
	Ratio, Low, High   float64 // ours / theirs: median, quartiles
	P99Ours, P99Theirs time.Duration
	P99Ratio           float64
}

func compare(ctx context.Context, rounds, callers int, d time.Duration, ours, theirs operation) (comparison, error) {
	var a, b, ratio, p99a, p99b, p99 []float64
	for i := range rounds + 1 {
		sides := [2]operation{ours, theirs}
		var got [2]sample
		for j := range sides {
			side := (i + j) % 2 // who is first changes
			s, err := measure(ctx, callers, d, sides[side])
			if err != nil {
				return comparison{}, err
			}
			got[side] = s
		}
		if i == 0 {
			continue // statements were prepared, caches filled
		}
		a, b = append(a, got[0].perSecond), append(b, got[1].perSecond)
		ratio = append(ratio, got[0].perSecond/got[1].perSecond)
		p99a, p99b = append(p99a, float64(got[0].p99)), append(p99b, float64(got[1].p99))
		p99 = append(p99, float64(got[0].p99)/float64(got[1].p99))
	}
	return comparison{
		Ours: quantile(a, .5), Theirs: quantile(b, .5),
		Ratio: quantile(ratio, .5), Low: quantile(ratio, .25), High: quantile(ratio, .75),
		P99Ours: time.Duration(quantile(p99a, .5)), P99Theirs: time.Duration(quantile(p99b, .5)),
		P99Ratio: quantile(p99, .5),
	}, nil
}

func quantile(v []float64, q float64) float64 {
	v = slices.Sorted(slices.Values(v))
	if len(v) == 0 {
		return math.NaN()
	}
	return v[int(q*float64(len(v)-1)+.5)]
}
