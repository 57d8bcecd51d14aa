package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
)

// A designTable compares settings of the table, in turn; ratios are to the first
// of them.
type designTable struct {
	Question string
	Rows     []designRow
}

type designRow struct {
	Setting           string
	FirstRun, Replay  float64 // per second, of sixteen callers: medians
	FirstRunRatio     float64
	ReplayRatio       float64
	HOT               float64 // share of completions
	BytesPerRow       float64 // as filled, of heap and overflow
	KeyBytes          float64
	OtherIndexBytes   float64
	WALBytes, Records float64 // of a first run, without page images
	PurgePerSecond    float64
}

type setting struct {
	name  string
	do    call
	alter []string
}

const designCallers = 16

// Bodies of JSON as orders have it: names again and again, ids that are random.
type order struct {
	ID    string      `json:"id"`
	Lines []orderLine `json:"lines"`
}

type orderLine struct {
	SKU       string `json:"sku"`
	Title     string `json:"title"`
	Quantity  int    `json:"quantity"`
	UnitPrice int64  `json:"unit_price"`
	Currency  string `json:"currency"`
	Tracking  string `json:"tracking"`
}

func orderOf(lines int) order {
	r := rand.New(rand.NewPCG(1, 2))
	words := []string{"blue", "cotton", "shirt", "steel", "bottle", "large", "oak", "table", "lamp", "linen"}
	o := order{ID: fmt.Sprintf("ord_%016x", r.Uint64())}
	for range lines {
		o.Lines = append(o.Lines, orderLine{
			SKU:   fmt.Sprintf("%08x", r.Uint32()),
			Title: words[r.IntN(10)] + " " + words[r.IntN(10)] + " " + words[r.IntN(10)], Quantity: 1 + r.IntN(9),
			UnitPrice: r.Int64N(100_000), Currency: "EUR", Tracking: fmt.Sprintf("%016x", r.Uint64()),
		})
	}
	return o
}

func (p *plan) measureDesign(ctx context.Context, f *figures) error {
	if !p.design {
		return nil
	}
	stretch, cycles := p.stretch, 80
	if p.short { // there are many settings
		stretch, cycles = stretch/4, 5
	}
	url, stop := startServer(defaultBuffers)
	defer stop()
	pool, err := connect(ctx, url, designCallers, 0)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := (&table{pool: pool}).exec(ctx, `CREATE EXTENSION pg_walinspect`); err != nil {
		return err
	}
	wanted := func(question string) bool { return strings.Contains(question, p.only) }
	if wanted("fillfactor") {
		if f.Room, err = measureRoom(ctx, url, p.designRows/40, p.short); err != nil {
			return err
		}
	}
	small := callWith(samplePayment)
	drop := `DROP INDEX {{purge_index}}`
	partitions := func(n int) setting {
		alter := []string{
			`CREATE TABLE {{table}}_p (LIKE {{table}} INCLUDING ALL) PARTITION BY HASH (user_id, scope, idempotency_key)`,
			`DROP TABLE {{table}}`,
			`ALTER TABLE {{table}}_p RENAME TO {{table}}`,
			`ALTER TABLE {{table}} RENAME CONSTRAINT {{table}}_p_pkey TO {{key}}`,
		}
		for i := range n {
			alter = append(alter, fmt.Sprintf(
				`CREATE TABLE {{table}}_%d PARTITION OF {{table}} FOR VALUES WITH (MODULUS %d, REMAINDER %d) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05)`, i, n, i))
		}
		return setting{fmt.Sprintf("%d by hash of the key", n), small, alter}
	}
	questions := []struct {
		name     string
		rows     int
		settings []setting
	}{
		{"index that purge uses", p.designRows, []setting{
			{"btree on purge_after", small, nil},
			{"BRIN on purge_after", small, []string{drop, `CREATE INDEX {{purge_index}} ON {{table}} USING brin (purge_after)`}},
			{"none", small, []string{drop}},
			{"btree on expires_at, which completing changes", small, []string{drop, `CREATE INDEX {{purge_index}} ON {{table}} (expires_at)`}},
		}},
		{"partitions", p.designRows, []setting{{"none", small, nil}, partitions(4), partitions(16)}},
		{"compression, body of 300 bytes", p.designRows, compressions(small)},
		{"compression, body of 2 kB", p.designRows / 5, compressions(callWith(orderOf(15)))},
		{"compression, body of 20 kB", p.designRows / 20, compressions(callWith(orderOf(150)))},
	}
	for i, q := range questions {
		if !wanted(q.name) {
			continue
		}
		rows, err := compareSettings(ctx, pool, fmt.Sprintf("design_%d", i), q.settings, q.rows, p.rounds, stretch)
		if err != nil {
			return fmt.Errorf("%s: %w", q.name, err)
		}
		d := designTable{q.name, rows}
		d.print()
		f.Design = append(slices.DeleteFunc(f.Design, func(d designTable) bool { return d.Question == q.name }), d)
	}
	if wanted("autovacuum") {
		f.Churn, err = measureChurn(ctx, pool, p.designRows, cycles, stretch/3)
	}
	return err
}

func compressions(do call) []setting {
	body := func(sql string) []string { return []string{`ALTER TABLE {{table}} ALTER COLUMN response_body ` + sql} }
	return []setting{
		{"pglz", do, nil},
		{"lz4", do, body(`SET COMPRESSION lz4`)},
		{"none (EXTERNAL)", do, body(`SET STORAGE EXTERNAL`)},
		{"pglz, toast_tuple_target 512", do, []string{`ALTER TABLE {{table}} SET (toast_tuple_target = 512)`}},
	}
}

func compareSettings(ctx context.Context, pool *pgxpool.Pool, prefix string, settings []setting, rows, rounds int, stretch time.Duration) ([]designRow, error) {
	tables := make([]*table, len(settings))
	start, end := make([]anatomy, len(settings)), make([]anatomy, len(settings))
	results := make([]designRow, len(settings))
	for i, s := range settings {
		t, err := newTable(ctx, pool, fmt.Sprintf("%s_%d", prefix, i), s.do, s.alter...)
		if err != nil {
			return nil, err
		}
		defer t.exec(context.WithoutCancel(ctx), `DROP TABLE {{table}}, {{table}}_sample`)
		if err := t.fill(ctx, rows, rows/5); err != nil {
			return nil, err
		}
		if start[i], err = t.anatomy(ctx); err != nil {
			return nil, err
		}
		tables[i] = t
	}
	if err := tables[0].exec(ctx, `CHECKPOINT`); err != nil {
		return nil, err
	}

	first, replay := make([][]float64, len(settings)), make([][]float64, len(settings))
	written := make([]wal, len(settings))
	for round := range rounds + 1 {
		for j := range tables {
			i := (round + j) % len(tables)
			t := tables[i]
			f, w, err := measureWAL(ctx, pool, designCallers, stretch, t.firstRun(nil))
			if err != nil {
				return nil, err
			}
			r, err := measure(ctx, designCallers, stretch, t.replay)
			if err != nil {
				return nil, err
			}
			if round > 0 {
				first[i], replay[i] = append(first[i], f.perSecond), append(replay[i], r.perSecond)
				written[i].add(w)
			}
		}
	}
	for i, t := range tables {
		var err error
		if end[i], err = t.anatomy(ctx); err != nil {
			return nil, err
		}
		n := float64(rows)
		cost := written[i].cost()
		results[i] = designRow{
			Setting:  settings[i].name,
			FirstRun: quantile(first[i], .5), FirstRunRatio: quantile(over(first[i], first[0]), .5),
			Replay: quantile(replay[i], .5), ReplayRatio: quantile(over(replay[i], replay[0]), .5),
			HOT:         end[i].hotSince(start[i]),
			BytesPerRow: float64(start[i].Heap+start[i].Toast) / n,
			KeyBytes:    float64(start[i].Key) / n, OtherIndexBytes: float64(start[i].Purge) / n,
			WALBytes: cost.Bytes - cost.Images, Records: cost.Records,
		}
	}
	took, purged := make([]time.Duration, len(tables)), make([]int, len(tables))
	for range 10 {
		for i, t := range tables {
			before := time.Now()
			res, err := t.store.Purge(ctx, idem.PurgeRequest{Limit: purgeBatch})
			if err != nil {
				return nil, err
			}
			if res.Deleted > 0 {
				took[i] += time.Since(before)
				purged[i] += res.Deleted
			}
		}
	}
	for i := range results {
		results[i].PurgePerSecond = float64(purged[i]) / took[i].Seconds()
	}
	return results, nil
}

func over(a, b []float64) []float64 {
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = a[i] / b[i]
	}
	return ratios
}

func (d designTable) print() {
	fmt.Printf("\n| %s | first runs/s | ratio | replays/s | ratio | HOT | bytes/row | key, purge index: bytes/row | WAL: records, bytes | purge rows/s |\n", d.Question)
	fmt.Println("|---|---|---|---|---|---|---|---|---|---|")
	for _, r := range d.Rows {
		fmt.Printf("| %s | %.0f | %.2f | %.0f | %.2f | %.0f %% | %.0f | %.0f, %.0f | %.1f, %.0f | %.0f |\n", r.Setting, r.FirstRun, r.FirstRunRatio,
			r.Replay, r.ReplayRatio, 100*r.HOT, r.BytesPerRow, r.KeyBytes, r.OtherIndexBytes, r.Records, r.WALBytes, r.PurgePerSecond)
	}
}
