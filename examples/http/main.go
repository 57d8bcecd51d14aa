// Command http is a small payments API whose requests can safely be sent again.
//
//	go run ./examples/http                                    # in a file: survives kill -9
//	go run ./examples/http -db :memory:                       # forgets all when it ends
//	go run ./examples/http -dsn postgres://localhost/payments
//
// The file is idem/idem.db in the user's cache directory, unless -db names another one. With Postgres a payment and
// its answer are one commit. In a file they are two: a payment has its execution's id, so that one that was made just
// before a kill is not made again.
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
	var w where
	flag.StringVar(&w.file, "db", "", "SQLite file to keep payments and answers in, or "+inMemory+"; idem/idem.db in the user's cache directory if empty")
	flag.StringVar(&w.dsn, "dsn", "", "Postgres to keep them in instead")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *addr, w); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run serves until ctx ends, and then until the requests at work are answered.
func run(ctx context.Context, addr string, w where) error {
	if w.dsn == "" && w.file == "" {
		var err error
		if w.file, err = defaultFile(); err != nil {
			return err
		}
	}
	store, ledger, closeAll, err := open(ctx, w)
	if err != nil {
		return err
	}
	defer closeAll()
	go idem.RunPurge(ctx, store, time.Minute) //nolint:errcheck // it returns when ctx ends

	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Println(usage(listener.Addr().String(), w.String()))
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
