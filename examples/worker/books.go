package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemmq"
	"github.com/idem-go/idem/memstore"
	"github.com/idem-go/idem/pg"
)

// consumer is the scope of the orders' keys.
const consumer = "billing"

// books keep the charges, and handle deliveries in the way that suits them.
type books interface {
	fmt.Stringer
	handle(ctx context.Context, d idemmq.Delivery, handler handler, opts ...idemmq.Option) (idemmq.Decision, error)
	charges(ctx context.Context) (map[int]int, error) // how often each order was charged
}

// A handler does its work with a function that charges an order.
type handler func(ctx context.Context, charge func(order) error) error

func openBooks(ctx context.Context, dsn, run string) (books, func(), error) {
	if dsn == "" {
		return &bank{store: memstore.New(), seen: map[string]bool{}, total: map[int]int{}}, func() {}, nil
	}
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return nil, nil, err
	}
	if err = pg.Migrate(ctx, pool); err == nil {
		_, err = pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS example_charges (run text, number int, cents bigint)`)
	}
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return &ledger{pool: pool, store: pg.New(pool), run: run}, pool.Close, nil
}

// A bank is somebody else's service. It cannot take part in a transaction, but it
// has idempotency keys, and a worker that runs again sends the same one.
type bank struct {
	store idem.Store

	mu    sync.Mutex
	seen  map[string]bool
	total map[int]int
}

func (b *bank) String() string { return "a bank in memory" }

func (b *bank) handle(ctx context.Context, d idemmq.Delivery, handler handler, opts ...idemmq.Option) (idemmq.Decision, error) {
	return idemmq.Handle(ctx, b.store, consumer, d, func(ctx context.Context) error {
		return handler(ctx, func(o order) error {
			b.charge(idem.ExecutionID(ctx), o)
			return nil
		})
	}, opts...)
}

func (b *bank) charge(idempotencyKey string, o order) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.seen[idempotencyKey] {
		b.seen[idempotencyKey] = true
		b.total[o.Number]++
	}
}

func (b *bank) charges(context.Context) (map[int]int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total, nil
}

// A ledger is a table in the same Postgres as the outcomes: charge and outcome
// commit together. Nothing else keeps an order from being charged twice.
type ledger struct {
	pool  *pgxpool.Pool
	store *pg.Store
	run   string
}

func (l *ledger) String() string { return "a ledger in Postgres" }

func (l *ledger) handle(ctx context.Context, d idemmq.Delivery, handler handler, opts ...idemmq.Option) (idemmq.Decision, error) {
	return idemmq.HandleTx(ctx, l.store, consumer, d, func(ctx context.Context, tx pgx.Tx) error {
		return handler(ctx, func(o order) error {
			_, err := tx.Exec(ctx, `INSERT INTO example_charges VALUES ($1, $2, $3)`, l.run, o.Number, o.Cents)
			return err
		})
	}, opts...)
}

func (l *ledger) charges(ctx context.Context) (map[int]int, error) {
	rows, err := l.pool.Query(ctx, `SELECT number, count(*) FROM example_charges WHERE run = $1 GROUP BY number`, l.run)
	if err != nil {
		return nil, err
	}
	total := map[int]int{}
	var number, n int
	_, err = pgx.ForEachRow(rows, []any{&number, &n}, func() error {
		total[number] = n
		return nil
	})
	return total, err
}
