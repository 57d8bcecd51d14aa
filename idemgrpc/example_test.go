package idemgrpc_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemgrpc"
	"github.com/idem-go/idem/memstore"
)

func Example() {
	caller := func(context.Context) (string, error) { return "alice", nil } // whom authentication has found
	once, err := idemgrpc.New(memstore.New(), caller, idemgrpc.Methods{
		"/shop.v1.Shop/Pay":    nil,
		"/shop.v1.Shop/Refund": {idemgrpc.OptionalKey()},
	}, idemgrpc.WithIdem(idem.WithWait(time.Second)))
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor( /* recovery, logging, authentication, */ once.Unary),
		grpc.ChainStreamInterceptor(once.Stream),
	)
	// Register the services, then:
	fmt.Println(once.Check(server))
	// Output:
	// idem: invalid option: /shop.v1.Shop/Pay: the server has no service shop.v1.Shop
	// idem: invalid option: /shop.v1.Shop/Refund: the server has no service shop.v1.Shop
}

// A worker that calls Do itself keeps messages, too.
func ExampleCodec() {
	ctx, store := context.Background(), memstore.New()
	key := idem.Key{User: idem.NoUser, Scope: "double", Key: "8e03978e"}
	request := durationpb.New(90 * time.Second)
	for range 2 {
		res, err := idem.Do(ctx, store, key, idemgrpc.Payload(request),
			func(context.Context) (*durationpb.Duration, idem.Status, error) {
				return durationpb.New(2 * request.AsDuration()), 0, nil
			}, idem.WithCodec(idemgrpc.Codec{}))
		fmt.Println(res.Value.AsDuration(), res.Replayed, err)
	}
	// Output:
	// 3m0s false <nil>
	// 3m0s true <nil>
}
