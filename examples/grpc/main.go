// Command grpc pays orders over a connection that loses answers, and shows that
// each card is charged once.
//
//	go run ./examples/grpc
//	go run ./examples/grpc -seed 7       # other accidents
//	go run ./examples/grpc -unprotected  # the same without idem: see what it is for
//
// Server and client are one process and talk over a loopback connection. It ends
// by itself, with exit status 0 only if every order was charged exactly once.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"

	"google.golang.org/grpc"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/examples/grpc/shop"
	"github.com/idem-go/idem/idemgrpc"
	"github.com/idem-go/idem/memstore"
)

func main() {
	seed := flag.Uint64("seed", 1, "of the accidents on the network")
	orders := flag.Int("orders", 8, "how many to pay")
	unprotected := flag.Bool("unprotected", false, "leave idem out")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, *seed, *orders, *unprotected); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer, seed uint64, orders int, unprotected bool) error {
	network, err := badNetwork(seed)
	if err != nil {
		return err
	}
	bank := &bank{}
	server, err := newServer(network, bank, unprotected)
	if err != nil {
		return err
	}
	go func() { _ = server.Serve(network) }()
	defer server.Stop()

	client, hangUp, err := dial(network.Addr().String())
	if err != nil {
		return err
	}
	defer hangUp()
	var answers []answer
	for i := range orders {
		answers = append(answers, pay(ctx, client, order(i)))
	}
	server.GracefulStop() // handlers of lost connections, too
	return report(w, network.attempts, answers, bank.charges)
}

// newServer is all there is to do on the server's side. The network's
// interceptors are there to play accidents.
func newServer(n *network, bank *bank, unprotected bool) (*grpc.Server, error) {
	once, err := idemgrpc.New(memstore.New(), caller, idemgrpc.Methods{
		shop.Shop_Pay_FullMethodName: nil,
	})
	if err != nil {
		return nil, err
	}
	interceptors := grpc.ChainUnaryInterceptor(n.around, once.Unary, n.within)
	if unprotected {
		interceptors = grpc.ChainUnaryInterceptor(n.around, n.within)
	}
	server := grpc.NewServer(interceptors, grpc.ChainStreamInterceptor(once.Stream))
	shop.RegisterShopServer(server, &payments{bank: bank})
	return server, once.Check(server)
}

// caller would look at the token that authentication has verified.
func caller(context.Context) (string, error) { return idem.NoUser, nil }
