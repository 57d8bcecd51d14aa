package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
)

// A churn is what a setting of autovacuum makes of a table whose records are
// purged as fast as new ones come, a hundredth of them in each cycle. The
// server looks for work every second instead of every minute, since weeks are pressed
// into a minute here.
type churn struct {
	Setting            string
	Vacuums            int
	Heap, Key, Purge   float64 // size in the end, to that at first
	PurgeP50, PurgeP95 time.Duration
}

func measureChurn(ctx context.Context, pool *pgxpool.Pool, rows, cycles int, pause time.Duration) ([]churn, error) {
	settings := []struct{ name, sql string }{
		{"defaults (scale factor 0.2)", `SELECT`},
		{"scale factor 0.1", `ALTER TABLE {{table}} SET (autovacuum_vacuum_scale_factor = 0.1)`},
		{"scale factor 0.05", `ALTER TABLE {{table}} SET (autovacuum_vacuum_scale_factor = 0.05)`},
		{"scale factor 0.02", `ALTER TABLE {{table}} SET (autovacuum_vacuum_scale_factor = 0.02)`},
		{"scale factor 0.01", `ALTER TABLE {{table}} SET (autovacuum_vacuum_scale_factor = 0.01)`},
		{"off", `ALTER TABLE {{table}} SET (autovacuum_enabled = off)`},
	}
	server := &table{pool: pool}
	if err := server.exec(ctx, `ALTER SYSTEM SET autovacuum_naptime = '1s'`, `SELECT pg_reload_conf()`); err != nil {
		return nil, err
	}
	tables := make([]*table, len(settings))
	start := make([]anatomy, len(settings))
	for i, s := range settings {
		t, err := newTable(ctx, pool, fmt.Sprintf("churn_%d", i), callWith(samplePayment), `ALTER TABLE {{table}} RESET (autovacuum_vacuum_scale_factor)`, s.sql)
		if err != nil {
			return nil, err
		}
		if err := t.fill(ctx, rows, rows); err != nil {
			return nil, err
		}
		if start[i], err = t.anatomy(ctx); err != nil {
			return nil, err
		}
		tables[i] = t
	}
	batches := make([][]float64, len(tables))
	for cycle := range cycles {
		n := rows / 100
		for i, t := range tables {
			if err := t.insert(ctx, rows+cycle*n, rows+(cycle+1)*n); err != nil {
				return nil, err
			}
			for left := n; left > 0; left -= purgeBatch {
				before := time.Now()
				if _, err := t.store.Purge(ctx, idem.PurgeRequest{Limit: min(left, purgeBatch)}); err != nil {
					return nil, err
				}
				batches[i] = append(batches[i], float64(time.Since(before)))
			}
		}
		// Time for autovacuum, which has a pause of a second itself.
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	results := make([]churn, len(settings))
	fmt.Println("\n| autovacuum | vacuums | heap, key, purge index: size in the end to that at first | a batch of the purge: p50, p95 |")
	fmt.Println("|---|---|---|---|")
	for i, t := range tables {
		end, err := t.anatomy(ctx)
		if err != nil {
			return nil, err
		}
		c := churn{
			Setting: settings[i].name,
			Heap:    float64(end.Heap) / float64(start[i].Heap), Key: float64(end.Key) / float64(start[i].Key), Purge: float64(end.Purge) / float64(start[i].Purge),
			PurgeP50: time.Duration(quantile(batches[i], .5)), PurgeP95: time.Duration(quantile(batches[i], .95)),
		}
		if err := pool.QueryRow(ctx, `SELECT autovacuum_count FROM pg_stat_user_tables WHERE relid = $1::text::regclass`, t.name).Scan(&c.Vacuums); err != nil {
			return nil, err
		}
		fmt.Printf("| %s | %d | %.2f, %.2f, %.2f | %v, %v |\n", c.Setting, c.Vacuums, c.Heap, c.Key, c.Purge,
			c.PurgeP50.Round(10*time.Microsecond), c.PurgeP95.Round(10*time.Microsecond))
		results[i] = c
	}
	return results, server.exec(ctx, `ALTER SYSTEM RESET autovacuum_naptime`, `SELECT pg_reload_conf()`)
}
