// Command http is a small payments API whose requests can safely be sent again.
//
//	go run ./examples/http                                    # in memory
//	go run ./examples/http -dsn postgres://localhost/payments # survives kill -9
//
// It serves a page to see it work, and prints curl lines to try. Who is asking is taken from the X-User header,
// which a real service would not believe.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemhttp"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	dsn := flag.String("dsn", "", "Postgres to keep payments and answers in; in memory if empty")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *addr, *dsn); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run serves until ctx ends, and then until the requests at work are answered.
func run(ctx context.Context, addr, dsn string) error {
	store, ledger, closeAll, err := open(ctx, dsn)
	if err != nil {
		return err
	}
	defer closeAll()
	go idem.RunPurge(ctx, store, time.Minute) //nolint:errcheck // it returns when ctx ends

	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Println(usage(listener.Addr().String()))
	server := &http.Server{Handler: routes(store, ledger), ReadHeaderTimeout: 5 * time.Second}
	drained := make(chan error, 1)
	go func() {
		<-ctx.Done()
		limit, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		drained <- server.Shutdown(limit)
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-drained
}

func routes(store idem.Store, ledger Ledger) http.Handler {
	once := idemhttp.Middleware(store, user, idemhttp.RequireKey(),
		idemhttp.WithDo(idem.WithObserver(idem.LogEvents(slog.Default()))))

	mux := http.NewServeMux()
	mux.Handle("POST /payments", once(createPayment(ledger)))
	mux.Handle("GET /payments", listPayments(ledger))
	mux.Handle("GET /", page())
	return mux
}

func user(r *http.Request) (string, error) {
	if name := r.Header.Get("X-User"); name != "" {
		return name, nil
	}
	return "", errors.New("no X-User header")
}
