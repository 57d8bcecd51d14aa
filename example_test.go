package idem_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/memstore"
)

type Order struct {
	Item   string
	Amount int
}

type Receipt struct{ Number int }

func ExampleDo() {
	ctx, store := context.Background(), memstore.New()
	key := idem.Key{User: "alice", Scope: "orders.create", Key: "c8a5f3"}
	order := Order{Item: "tea", Amount: 2}

	charges := 0
	charge := func(context.Context) (Receipt, idem.Status, error) {
		charges++
		return Receipt{Number: 1000 + charges}, 201, nil
	}

	for range 3 { // the client retries
		res, err := idem.Do(ctx, store, key, order, charge)
		fmt.Println(res.Value.Number, res.Status, res.Replayed, err)
	}
	fmt.Println("charged", charges, "time")

	order.Amount = 3 // under the same key
	_, err := idem.Do(ctx, store, key, order, charge)
	fmt.Println(err)
	// Output:
	// 1001 201 false <nil>
	// 1001 201 true <nil>
	// 1001 201 true <nil>
	// charged 1 time
	// idem: key was used with another payload
}

// A failure with a final status is an answer like any other. One with a passing
// status, or with none, frees the key.
func ExampleDefaultDisposition() {
	ctx, store := context.Background(), memstore.New()
	key := idem.Key{User: "alice", Scope: "orders.create", Key: "c8a5f3"}

	runs := 0
	call := func(status idem.Status, failure error) {
		res, err := idem.Do(ctx, store, key, "tea", func(context.Context) (string, idem.Status, error) {
			runs++
			return "", status, failure
		})
		fmt.Printf("run %d, status %d, replayed %v: %v\n", runs, res.Status, res.Replayed, err)
	}
	call(503, errors.New("till is closed"))
	call(0, errors.New("connection refused"))
	call(409, errors.New("out of tea"))
	call(200, nil) // does not run
	// Output:
	// run 1, status 503, replayed false: till is closed
	// run 2, status 0, replayed false: connection refused
	// run 3, status 409, replayed false: out of tea
	// run 3, status 409, replayed true: idem: recorded failure, status 409
}

// Errors that are registered under a code match on replay as they did at first.
func ExampleWithErrors() {
	ctx, store := context.Background(), memstore.New()
	key := idem.Key{User: "alice", Scope: "orders.create", Key: "c8a5f3"}
	errOutOfStock := errors.New("out of stock")
	codes := idem.WithErrors(map[string]error{"out_of_stock": errOutOfStock})

	for range 2 {
		res, err := idem.Do(ctx, store, key, "tea", func(context.Context) (string, idem.Status, error) {
			return "", 409, fmt.Errorf("shelf 7: %w", errOutOfStock)
		}, codes)
		fmt.Println(res.Replayed, errors.Is(err, errOutOfStock), err)
	}
	// Output:
	// false true shelf 7: out of stock
	// true true idem: recorded failure, status 409, code out_of_stock
}

// Of two callers at the same time one runs; the other waits for its answer.
func ExampleWithWait() {
	ctx, store := context.Background(), memstore.New()
	key := idem.Key{User: "alice", Scope: "orders.create", Key: "c8a5f3"}

	running := make(chan struct{})
	go func() {
		_, _ = idem.Do(ctx, store, key, "tea", func(context.Context) (string, idem.Status, error) {
			close(running)
			<-time.After(50 * time.Millisecond)
			return "first", 201, nil
		})
	}()
	<-running

	second := func(context.Context) (string, idem.Status, error) { return "second", 201, nil }
	_, err := idem.Do(ctx, store, key, "tea", second)
	fmt.Println(errors.Is(err, idem.ErrInProgress))

	res, err := idem.Do(ctx, store, key, "tea", second, idem.WithWait(10*time.Second))
	fmt.Println(res.Value, res.Replayed, err)
	// Output:
	// true
	// first true <nil>
}

// An exact retry need not pass the rate limiter: it will be replayed.
func ExamplePeek() {
	ctx, store := context.Background(), memstore.New()
	key := idem.Key{User: "alice", Scope: "orders.create", Key: "c8a5f3"}

	replay, err := idem.Peek(ctx, store, key, "tea")
	fmt.Println(replay, err)

	_, err = idem.Do(ctx, store, key, "tea", func(context.Context) (string, idem.Status, error) {
		return "done", 201, nil
	})
	fmt.Println(err)

	replay, err = idem.Peek(ctx, store, key, "tea")
	fmt.Println(replay, err)
	replay, err = idem.Peek(ctx, store, key, "coffee")
	fmt.Println(replay, err)
	// Output:
	// false <nil>
	// <nil>
	// true <nil>
	// false idem: key was used with another payload
}

// Nobody knows whether a payment was made. Once the provider can be asked, the
// answer is recorded, and later calls replay it.
func ExampleResolve() {
	ctx, store := context.Background(), memstore.New()
	key := idem.Key{User: "alice", Scope: "payments.create", Key: "c8a5f3"}
	opts := idem.Options(idem.WithLease(time.Millisecond), idem.WithStale(idem.Refuse))
	pay := func(context.Context) (Receipt, idem.Status, error) {
		return Receipt{}, 0, idem.Unknown(errors.New("no answer from the provider"))
	}

	_, err := idem.Do(ctx, store, key, "10 EUR", pay, opts)
	fmt.Println(err)
	<-time.After(10 * time.Millisecond) // the lease ends
	_, err = idem.Do(ctx, store, key, "10 EUR", pay, opts)
	fmt.Println(err)

	_, err = idem.Resolve(ctx, store, key, func(ctx context.Context) (Receipt, idem.Status, error) {
		// Ask the provider about idem.ExecutionID(ctx), which was sent along.
		return Receipt{Number: 1001}, 201, nil
	})
	fmt.Println(err)

	res, err := idem.Do(ctx, store, key, "10 EUR", pay, opts)
	fmt.Println(res.Value.Number, res.Replayed, err)
	// Output:
	// idem: outcome unknown: no answer from the provider
	// idem: outcome unknown
	// <nil>
	// 1001 true <nil>
}

// One program has one set of defaults.
func ExampleOptions() {
	defaults := idem.Options(
		idem.WithLease(30*time.Second),
		idem.WithRetention(24*time.Hour),
	)
	res, err := idem.Do(context.Background(), memstore.New(),
		idem.Key{User: idem.NoUser, Scope: "reports.nightly", Key: "2026-01-31"}, nil,
		func(ctx context.Context) (string, idem.Status, error) { return "report", 0, nil },
		defaults, idem.WithRetention(time.Hour))
	fmt.Println(res.Value, res.Status, res.ExpiresAt.Sub(res.CompletedAt), err)
	// Output: report 200 1h0m0s <nil>
}

func ExamplePayloadHash() {
	a, _ := idem.PayloadHash(Order{Item: "tea", Amount: 2})
	b, _ := idem.PayloadHash(map[string]any{"Amount": 2.0, "Item": "tea"})
	c, _ := idem.PayloadHash(Order{Item: "tea", Amount: 3})
	fmt.Println(len(a), a == b, a == c)
	// Output: 64 true false
}
