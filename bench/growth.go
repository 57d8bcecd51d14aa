package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
)

// A growth is how the library does on a table of some size. The tables of all
// sizes stand side by side, and a caller goes from one to the next with each call.
type growth struct {
	Rows int

	FirstRun, Claim, Retry, Replay latency // of one caller

	HeapBytes, KeyBytes, PurgeBytes float64 // per row, as filled
	HOT                             float64 // share of completions
	FirstRunWAL, ReplayWAL          walCost
	Purged                          int
	PurgePerSecond                  float64 // rows, in the default batches
}

// A latency is in the medians of rounds; the ratio is that of the p50 to that of
// the smallest table.
type latency struct {
	P50, P99         time.Duration
	Ratio, Low, High float64 // median, quartiles
}

// walCost is per operation.
type walCost struct {
	Records, Bytes float64
	Images         float64 // of the bytes, whole pages: each page's first change after a checkpoint
}

func (w wal) cost() walCost {
	n := float64(max(w.operations, 1))
	return walCost{float64(w.records) / n, float64(w.bytes) / n, float64(w.images) / n}
}

const (
	purgeBatch   = 1000 // idem.RunPurge's
	purgeBatches = 50   // measured at most, for each size
)

func measureGrowth(ctx context.Context, pool *pgxpool.Pool, sizes []int, rounds int, stretch time.Duration) ([]growth, []*table, error) {
	if err := (&table{pool: pool}).exec(ctx, `CREATE EXTENSION IF NOT EXISTS pg_walinspect`); err != nil {
		return nil, nil, err
	}
	tables := make([]*table, len(sizes))
	start := make([]anatomy, len(sizes))
	for i, n := range sizes {
		t, err := newTable(ctx, pool, "growth_"+strconv.Itoa(n), callWith(samplePayment))
		if err != nil {
			return nil, nil, err
		}
		before := time.Now()
		if err := t.fill(ctx, n, n/5); err != nil {
			return nil, nil, err
		}
		if start[i], err = t.anatomy(ctx); err != nil {
			return nil, nil, err
		}
		progress("filled %d rows in %v", n, time.Since(before).Round(time.Second))
		tables[i] = t
	}
	if err := tables[0].exec(ctx, `CHECKPOINT`); err != nil {
		return nil, nil, err
	}

	// One caller goes from table to table, so that the machine's mood is in all of
	// them alike.
	claims := make([][]time.Duration, len(tables))
	var firstRuns, retries, replays []operation
	for i, t := range tables {
		firstRuns = append(firstRuns, t.firstRun(func(d time.Duration) { claims[i] = append(claims[i], d) }))
		retries, replays = append(retries, t.retry), append(replays, t.replay)
	}
	first, claim := make([][]sample, len(tables)), make([][]sample, len(tables))
	retry, replay := make([][]sample, len(tables)), make([][]sample, len(tables))
	for round := range rounds + 1 {
		clear(claims)
		a, err := measureTurns(ctx, time.Duration(len(tables))*stretch, firstRuns)
		if err != nil {
			return nil, nil, err
		}
		b, err := measureTurns(ctx, time.Duration(len(tables))*stretch, retries)
		if err != nil {
			return nil, nil, err
		}
		c, err := measureTurns(ctx, time.Duration(len(tables))*stretch, replays)
		if err != nil {
			return nil, nil, err
		}
		for i := range tables {
			if round > 0 { // statements were prepared, caches filled
				first[i], retry[i], replay[i] = append(first[i], a[i]), append(retry[i], b[i]), append(replay[i], c[i])
				claim[i] = append(claim[i], sampleOf(claims[i]))
			}
		}
	}
	result := make([]growth, len(sizes))
	firstWAL, replayWAL := make([]wal, len(sizes)), make([]wal, len(sizes))
	for i, t := range tables {
		var err error
		if _, firstWAL[i], err = measureWAL(ctx, pool, 1, 2*stretch, firstRuns[i]); err != nil {
			return nil, nil, err
		}
		if _, replayWAL[i], err = measureWAL(ctx, pool, 1, 2*stretch, t.replay); err != nil {
			return nil, nil, err
		}
	}
	for i, t := range tables {
		a, err := t.anatomy(ctx)
		if err != nil {
			return nil, nil, err
		}
		n := float64(t.rows)
		result[i] = growth{
			Rows:     t.rows,
			FirstRun: latencyOf(first[i], first[0]), Claim: latencyOf(claim[i], claim[0]),
			Retry: latencyOf(retry[i], retry[0]), Replay: latencyOf(replay[i], replay[0]),
			HeapBytes: float64(start[i].Heap) / n, KeyBytes: float64(start[i].Key) / n, PurgeBytes: float64(start[i].Purge) / n,
			HOT: a.hotSince(start[i]), FirstRunWAL: firstWAL[i].cost(), ReplayWAL: replayWAL[i].cost(),
		}
	}

	// Purge, batch by batch in turn.
	took := make([]time.Duration, len(sizes))
	for range purgeBatches {
		for i, t := range tables {
			if result[i].Purged >= t.expired/2 {
				continue // the rest is for later
			}
			before := time.Now()
			res, err := t.store.Purge(ctx, idem.PurgeRequest{Limit: purgeBatch})
			if err != nil {
				return nil, nil, err
			}
			took[i] += time.Since(before)
			result[i].Purged += res.Deleted
		}
	}
	for i := range result {
		result[i].PurgePerSecond = float64(result[i].Purged) / took[i].Seconds()
	}
	return result, tables, nil
}

// latencyOf sets rounds against those of another table.
func latencyOf(rounds, base []sample) latency {
	var p50, p99, ratio []float64
	for i, s := range rounds {
		p50, p99 = append(p50, float64(s.p50)), append(p99, float64(s.p99))
		ratio = append(ratio, float64(s.p50)/float64(base[i].p50))
	}
	return latency{
		P50: time.Duration(quantile(p50, .5)), P99: time.Duration(quantile(p99, .5)),
		Ratio: quantile(ratio, .5), Low: quantile(ratio, .25), High: quantile(ratio, .75),
	}
}

func printGrowth(all []growth) {
	fmt.Println("\n| rows | first run p50, p99 | ratio (quartiles) | of it the claim p50, p99 | ratio | retry of a recent one p50, p99 | ratio | replay of any p50, p99 | ratio | purge rows/s | HOT | heap, key, purge index: bytes/row | WAL of a first run: records, bytes (of them page images) | WAL of a replay: bytes |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|")
	for _, g := range all {
		fmt.Printf("| %d | %v | %v | %v | %v | %v | %v | %v | %v | %.0f | %.1f %% | %.0f, %.0f, %.0f | %.1f, %.0f (%.0f) | %.1f |\n", g.Rows,
			g.FirstRun.times(), g.FirstRun.ratios(), g.Claim.times(), g.Claim.ratios(),
			g.Retry.times(), g.Retry.ratios(), g.Replay.times(), g.Replay.ratios(),
			g.PurgePerSecond, 100*g.HOT, g.HeapBytes, g.KeyBytes, g.PurgeBytes,
			g.FirstRunWAL.Records, g.FirstRunWAL.Bytes, g.FirstRunWAL.Images, g.ReplayWAL.Bytes)
	}
}

func (l latency) times() string {
	return fmt.Sprintf("%v, %v", l.P50.Round(time.Microsecond), l.P99.Round(time.Microsecond))
}

func (l latency) ratios() string {
	return fmt.Sprintf("**%.2f** (%.2f–%.2f)", l.Ratio, l.Low, l.High)
}

func parseSizes(list string) (sizes []int, err error) {
	for _, s := range strings.Split(list, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 100 {
			return nil, fmt.Errorf("a table of %q rows: at least 100", s)
		}
		sizes = append(sizes, n)
	}
	return sizes, nil
}
