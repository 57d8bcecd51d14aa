package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem"
)

// underPurge is what callers notice of a purge: stretches of work with one and
// without one, in turn, until so many expired records are gone.
type underPurge struct {
	Rows, Callers, Purged int
	PurgePerSecond        float64 // while it worked
	P50, P99              time.Duration
	P50Alone, P99Alone    time.Duration
	P50Ratio, P99Ratio    float64 // medians of the ratios of neighbours in time
	Low, High             float64 // quartiles of the p99's
	FirstRuns, Found      int64   // closures that ran, and the records of them that are there
	HOT                   float64
}

const mostPurgeRounds = 100

func measureUnderPurge(ctx context.Context, t *table, callers, purge int, stretch time.Duration) (*underPurge, error) {
	var began time.Time
	if err := t.pool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&began); err != nil {
		return nil, err
	}
	before, err := t.anatomy(ctx)
	if err != nil {
		return nil, err
	}
	var firstRuns, purged, failed atomic.Int64
	first := t.firstRun(nil)
	work := func(ctx context.Context, n int) error {
		if n%2 == 0 {
			return t.replay(ctx, n)
		}
		err := first(ctx, n)
		if err == nil {
			firstRuns.Add(1)
		}
		return err
	}
	observer := idem.WithObserver(func(_ context.Context, e idem.Event) {
		switch e.Kind {
		case idem.EventPurged:
			purged.Add(int64(e.Purge.Deleted))
		case idem.EventPurgeFailed:
			failed.Add(1)
		}
	})

	if _, err := measure(ctx, callers, stretch/4, work); err != nil { // statements are prepared, caches filled
		return nil, err
	}

	u := &underPurge{Rows: t.rows, Callers: callers}
	var left int
	if err := t.pool.QueryRow(ctx, `SELECT count(*) FROM `+t.name+` WHERE purge_after <= clock_timestamp()`).Scan(&left); err != nil {
		return nil, err
	}
	if purge = min(purge, left); purge == 0 {
		return nil, errors.New("nothing has expired")
	}
	var alone, under []sample
	var purging time.Duration
	for round := 0; purged.Load() < int64(purge) && round < mostPurgeRounds; round++ {
		var got [2]sample
		for j := range 2 {
			side := (round + j) % 2
			stop := func() {}
			if side == 1 {
				ctx, cancel := context.WithCancel(ctx)
				done := make(chan struct{})
				go func() {
					defer close(done)
					_ = idem.RunPurge(ctx, t.store, time.Second, observer)
				}()
				stop = func() { cancel(); <-done }
			}
			start := time.Now()
			got[side], err = measure(ctx, callers, stretch, work)
			if side == 1 {
				purging += time.Since(start)
			}
			stop()
			if err != nil {
				return nil, err
			}
		}
		alone, under = append(alone, got[0]), append(under, got[1])
	}
	if failed.Load() > 0 {
		return nil, fmt.Errorf("%d batches of the purge failed", failed.Load())
	}
	after, err := t.anatomy(ctx)
	if err != nil {
		return nil, err
	}
	u.HOT = after.hotSince(before)
	u.Purged, u.PurgePerSecond = int(purged.Load()), float64(purged.Load())/purging.Seconds()
	u.FirstRuns = firstRuns.Load()
	base := latencyOf(alone, alone)
	with := latencyOf(under, alone)
	u.P50, u.P99, u.P50Alone, u.P99Alone, u.P50Ratio = with.P50, with.P99, base.P50, base.P99, with.Ratio
	var ratios []float64
	for i := range under {
		ratios = append(ratios, float64(under[i].p99)/float64(alone[i].p99))
	}
	u.P99Ratio, u.Low, u.High = quantile(ratios, .5), quantile(ratios, .25), quantile(ratios, .75)
	err = t.pool.QueryRow(ctx, `SELECT count(*) FROM `+t.name+` WHERE inserted_at >= $1 AND status = 'succeeded' AND attempt = 1`, began).Scan(&u.Found)
	if err == nil && u.Found != u.FirstRuns {
		err = fmt.Errorf("%d first runs, and %d records of them", u.FirstRuns, u.Found)
	}
	return u, err
}

func (u *underPurge) print() {
	fmt.Printf("\n%d callers on %d rows, half first runs, half replays; %d expired rows purged at %.0f/s beside them:\n\n", u.Callers, u.Rows, u.Purged, u.PurgePerSecond)
	fmt.Println("| | without a purge | with one | ratio (quartiles) |")
	fmt.Println("|---|---|---|---|")
	fmt.Printf("| p50 | %v | %v | %.2f |\n", u.P50Alone.Round(time.Microsecond), u.P50.Round(time.Microsecond), u.P50Ratio)
	fmt.Printf("| p99 | %v | %v | **%.2f** (%.2f–%.2f) |\n", u.P99Alone.Round(time.Microsecond), u.P99.Round(time.Microsecond), u.P99Ratio, u.Low, u.High)
	fmt.Printf("\n%d first runs, %d records of them; HOT %.1f %%\n", u.FirstRuns, u.Found, 100*u.HOT)
}
