// Command bench compares idem with SQL written by hand, on a Postgres of its
// own with fsync on: interleaved, A B A B …, as medians of the ratios of
// neighbours in time. Run it from the root:
//
//	go run ./bench
//
// It takes about a quarter of an hour; -short shows in a minute that it works.
// All figures and plots of the docs, in about half an hour and 20 GB of disk:
//
//	go run ./bench -all -json bench/figures.json -plots docs/img
//
// And those of a server that is further away:
//
//	go run ./bench -away 2ms -callers 1,16,64 -json bench/figures.json
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
)

const (
	user  = "user-1"
	scope = "payments.create"
)

// payment is payload and result: about 300 bytes of JSON.
type payment struct {
	ID       string            `json:"id"`
	Amount   int64             `json:"amount"`
	Currency string            `json:"currency"`
	Note     string            `json:"note"`
	Labels   map[string]string `json:"labels"`
}

var samplePayment = payment{
	ID: "pay_0192f0c1e4b87a6f", Amount: 1299, Currency: "EUR", Note: strings.Repeat("a note ", 22),
	Labels: map[string]string{"shop": "berlin-01", "order": "2026-000417", "channel": "web"},
}

func main() {
	log.SetFlags(0)
	var (
		short   = flag.Bool("short", false, "a minute, to see that it works: the figures mean nothing")
		rounds  = flag.Int("rounds", 7, "paired rounds per comparison")
		stretch = flag.Duration("stretch", time.Second, "length of one side of a round")
		callers = flag.String("callers", "1,16,64,256", "numbers of concurrent callers")
		away    = flag.Duration("away", 0, "compare with the server this much further away, there and back")
		only    = flag.String("only", "", "run the scenarios, and ask the questions of the design, whose name contains this")
		out     = flag.String("json", "", "write the figures to this file; parts that are not measured stay as it has them")
		growth  = flag.String("growth", "", "measure tables of these sizes instead, such as 10000,100000,1000000,10000000")
		buffers = flag.String("buffers", defaultBuffers, "shared_buffers of the server whose tables grow")
		design  = flag.Bool("design", false, "measure settings of the table instead")
		all     = flag.Bool("all", false, "measure all: the ratios, growth to ten million rows, and the design")
		redraw  = flag.Bool("redraw", false, "measure nothing: draw the plots of the -json file")
		plots   = flag.String("plots", "", "draw the figures into this folder")
	)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	p := plan{
		ratios: *all || !*redraw && *growth == "" && !*design,
		rounds: *rounds, stretch: *stretch, callers: *callers, away: *away, only: *only,
		growth: *growth, buffers: *buffers, purge: 1_000_000, design: *design || *all, designRows: 100_000, out: *out, plots: *plots,
	}
	switch {
	case *short:
		p.shorten()
	case *all && *growth == "":
		p.growth = "10000,100000,1000000,10000000"
	}
	if err := p.run(ctx); err != nil {
		log.Fatal(err)
	}
}

// sizes are those of the pools that each side may choose from.
var sizes = []int{4, 16, 64}

// A row is one line of the table.
type row struct {
	Scenario string
	Callers  int
	OurPool  int
	Pool     int // of the hand-written side: its best, too
	comparison
}

func bench(ctx context.Context, p *plan) ([]row, error) {
	url, stop := startServer(defaultBuffers)
	defer stop()

	pools := map[int]*pgxpool.Pool{}
	for _, size := range sizes {
		pool, err := connect(ctx, url, int32(size), p.away)
		if err != nil {
			return nil, err
		}
		defer pool.Close()
		pools[size] = pool
	}
	if _, err := pools[4].Exec(ctx, handSchema, pgx.QueryExecModeSimpleProtocol); err != nil {
		return nil, err
	}
	if err := pg.Migrate(ctx, pools[4]); err != nil {
		return nil, err
	}

	var rows []row
	fmt.Println("| scenario | callers | pool (idem) | pool (hand) | idem /s | by hand /s | ratio | quartiles | p99 idem | p99 by hand | p99 ratio |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|---|---|")
	for _, s := range scenarios {
		if !strings.Contains(s.name, p.only) {
			continue
		}
		for _, c := range strings.Split(p.callers, ",") {
			n, err := strconv.Atoi(c)
			if err != nil {
				return nil, err
			}
			r, err := s.run(ctx, pools, n, p.rounds, p.stretch)
			if err != nil {
				return nil, fmt.Errorf("%s, %d callers: %w", s.name, n, err)
			}
			rows = append(rows, r)
			fmt.Printf("| %s | %d | %d | %d | %.0f | %.0f | **%.2f** | %.2f–%.2f | %v | %v | %.2f |\n", r.Scenario, r.Callers, r.OurPool, r.Pool,
				r.Ours, r.Theirs, r.Ratio, r.Low, r.High, r.P99Ours.Round(10*time.Microsecond), r.P99Theirs.Round(10*time.Microsecond), r.P99Ratio)
		}
	}
	return rows, nil
}

// A scenario is a pair of operations to compare.
type scenario struct {
	name         string
	ours, theirs func(*pgxpool.Pool) operation
}

const settledKeys = 10_000

var scenarios = []scenario{
	{"first run", ours(doOnce, fresh), hand(byHand.firstRun, fresh)},
	{"replay", ours(doOnce, settled), hand(byHand.replay, settled)},
	{"replay, cache on", replayCached, hand(byHand.replay, hot)},
	{"in progress", ours(doBusy, processing), hand(byHand.inProgress, processing)},
	{"DoTx against the same by hand", ours(doTx, fresh), hand(byHand.transaction, fresh)},
	{"DoTx against a bare transaction", ours(doTx, fresh), hand(byHand.bare, fresh)},
}

func fresh(side string, n int) string { return fmt.Sprintf("%s-%d-%d", side, time.Now().UnixNano(), n) }
func settled(_ string, n int) string  { return fmt.Sprintf("settled-%d", n%settledKeys) }
func processing(string, int) string   { return "processing" }

// ours starts with a few replays, one after the other: from such calls, which
// every service has at times, a store learns how far away the server is.
func ours(op func(context.Context, *pg.Store, string, payment) error, key func(string, int) string) func(*pgxpool.Pool) operation {
	return func(pool *pgxpool.Pool) operation {
		store := pg.New(pool)
		learnt := sync.OnceValue(func() (err error) {
			for range 32 {
				err = errors.Join(err, doOnce(context.Background(), store, settled("", 0), samplePayment))
			}
			return err
		})
		return func(ctx context.Context, n int) error {
			if err := learnt(); err != nil {
				return err
			}
			return op(ctx, store, key("idem", n), samplePayment)
		}
	}
}

func hand(op func(byHand, context.Context, string, payment) error, key func(string, int) string) func(*pgxpool.Pool) operation {
	return func(pool *pgxpool.Pool) operation {
		return func(ctx context.Context, n int) error { return op(byHand{pool}, ctx, key("hand", n), samplePayment) }
	}
}

func doOnce(ctx context.Context, store *pg.Store, key string, p payment) error {
	_, err := idem.Do(ctx, store, idem.Key{User: user, Scope: scope, Key: key}, p,
		func(context.Context) (payment, idem.Status, error) { return p, 201, nil })
	return err
}

func doBusy(ctx context.Context, store *pg.Store, key string, p payment) error {
	err := doOnce(ctx, store, key, p)
	if !errors.Is(err, idem.ErrInProgress) {
		return fmt.Errorf("a key that is in progress gave %w", err)
	}
	return nil
}

func doTx(ctx context.Context, store *pg.Store, key string, p payment) error {
	_, err := pg.DoTx(ctx, store, idem.Key{User: user, Scope: scope, Key: key}, p,
		func(ctx context.Context, tx pgx.Tx) (payment, idem.Status, error) {
			_, err := tx.Exec(ctx, insertBusiness, p.Amount, p.Note)
			return p, 201, err
		})
	return err
}

// run lets both sides use the pool that suits them best.
func (s scenario) run(ctx context.Context, pools map[int]*pgxpool.Pool, callers, rounds int, stretch time.Duration) (row, error) {
	if err := prepare(ctx, pools[16]); err != nil {
		return row{}, err
	}
	best := func(side func(*pgxpool.Pool) operation) (int, operation, error) {
		ops, total := map[int]operation{}, map[int]float64{}
		for range 3 { // in turn: a single stretch would choose by the machine's mood
			for _, n := range sizes {
				if ops[n] == nil {
					ops[n] = side(pools[n])
				}
				got, err := measure(ctx, callers, stretch/2, ops[n])
				if err != nil {
					return 0, nil, err
				}
				total[n] += got.perSecond
			}
		}
		n := slices.MaxFunc(sizes, func(a, b int) int { return cmp.Compare(total[a], total[b]) })
		return n, ops[n], nil
	}
	size, theirs, err := best(s.theirs)
	if err != nil {
		return row{}, err
	}
	ourSize, mine, err := best(s.ours)
	if err != nil {
		return row{}, err
	}
	c, err := compare(ctx, rounds, callers, stretch, mine, theirs)
	return row{Scenario: s.name, Callers: callers, OurPool: ourSize, Pool: size, comparison: c}, err
}

// prepare makes the records that replays and refusals find.
func prepare(ctx context.Context, pool *pgxpool.Pool) error {
	store := pg.New(pool)
	p := samplePayment
	payloadHash, err := idem.PayloadHash(p)
	if err != nil {
		return err
	}
	claim := idem.ClaimRequest{
		Key:  idem.Key{User: user, Scope: scope, Key: "processing"},
		Hash: idem.Hash{Version: 1, Sum: payloadHash}, Token: idem.ID{1}, ExecutionID: idem.ID{1},
		Lease: time.Hour, Retention: time.Hour,
	}
	if _, err := store.Claim(ctx, claim); err != nil {
		return err
	}
	h := byHand{pool}
	if sum, err := hash(p); err != nil {
		return err
	} else if _, err := pool.Exec(ctx, `INSERT INTO hand (user_id, scope, idempotency_key, request_hash, status)
		VALUES ($1, $2, 'processing', $3, 'processing') ON CONFLICT DO NOTHING`, user, scope, sum); err != nil {
		return err
	}
	var done int
	if err := pool.QueryRow(ctx, `SELECT count(*) FROM hand WHERE idempotency_key LIKE 'settled-%'`).Scan(&done); err != nil || done > 0 {
		return err
	}
	work := make(chan int)
	failed := make(chan error, 16)
	for range 16 {
		go func() {
			var err error
			for n := range work {
				key := settled("", n)
				err = errors.Join(err, doOnce(ctx, store, key, p), h.firstRun(ctx, key, p))
			}
			failed <- err
		}()
	}
	for n := range settledKeys {
		work <- n
	}
	close(work)
	for range 16 {
		err = errors.Join(err, <-failed)
	}
	_, analyzed := pool.Exec(ctx, `VACUUM ANALYZE`)
	return errors.Join(err, analyzed)
}
