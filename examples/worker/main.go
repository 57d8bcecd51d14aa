// Command worker bills 200 orders that a queue delivers with everything that can
// go wrong: duplicates, failures, panics, workers that are killed before or after
// the charge, and handlers slower than the broker is patient. Then it counts.
//
//	go run ./examples/worker                                   # all in this process
//	go run ./examples/worker -dsn postgres://localhost/billing # charges in Postgres
//	go run ./examples/worker -nats nats://localhost:4222       # a real JetStream
//
// It ends by itself, with exit status 0 only if every order was charged exactly
// once.
package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	orders  = 200
	workers = 8
	lease   = 2 * time.Second        // how long a killed worker blocks its order
	ackWait = 500 * time.Millisecond // how long the broker waits for a sign of life
	limit   = 2 * time.Minute        // of the whole program, which takes 5 s on an idle machine
)

func main() {
	url := flag.String("nats", "", "NATS server with JetStream; one in this process if empty")
	dsn := flag.String("dsn", "", "Postgres to keep charges and outcomes in; in memory if empty")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *url, *dsn); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, url, dsn string) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	js, disconnect, err := connect(url)
	if err != nil {
		return err
	}
	defer disconnect()
	name := rand.Text()[:8] // of this run, so that runs against real servers do not meet
	queue, err := newQueue(ctx, js, name)
	if err != nil {
		return err
	}
	defer queue.remove()
	books, closeBooks, err := openBooks(ctx, dsn, name)
	if err != nil {
		return err
	}
	defer closeBooks()

	fmt.Fprintf(out, "%d orders, %d workers, %s, %s\n", orders, workers, queue, books)
	if err := queue.publish(ctx); err != nil {
		return err
	}
	began := time.Now()
	count := newCount()
	if err := work(ctx, queue, books, count); err != nil {
		return err
	}
	charges, err := books.charges(ctx)
	if err != nil {
		return err
	}
	return report(out, queue, count, charges, time.Since(began))
}

// work has workers handle deliveries until the queue has nothing left.
func work(ctx context.Context, queue *queue, books books, count *count) error {
	messages, err := queue.consumer.Messages(jetstream.PullMaxMessages(2 * workers))
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			w := worker{queue, books, count}
			for {
				msg, err := messages.Next()
				if err != nil { // stopped
					return
				}
				w.handle(ctx, msg)
			}
		})
	}
	err = queue.drained(ctx)
	messages.Stop()
	wg.Wait()
	return err
}
