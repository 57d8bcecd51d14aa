package main

import (
	"context"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/idem-go/idem/examples/grpc/shop"
	"github.com/idem-go/idem/idemgrpc"
)

// retries makes gRPC repeat a call by itself. That is safe since all attempts
// have one key.
const retries = `{"methodConfig": [{
  "name": [{"service": "idem.example.shop.v1.Shop"}],
  "retryPolicy": {
    "maxAttempts": 4, "initialBackoff": "0.02s", "maxBackoff": "0.2s", "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE", "ABORTED"]
  }
}]}`

func dial(addr string) (client shop.ShopClient, hangUp func(), err error) {
	conn, err := grpc.NewClient(addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(retries),
		grpc.WithUnaryInterceptor(idemgrpc.UnaryClientInterceptor()))
	if err != nil {
		return nil, nil, err
	}
	return shop.NewShopClient(conn), func() { _ = conn.Close() }, nil
}

// An answer is what the client knows in the end.
type answer struct {
	order    string
	response *shop.PayResponse
	err      error
}

// pay pays one order. Should gRPC's own attempts not do, it goes on by hand, with
// the same key: the interceptor leaves a key alone that is there.
func pay(ctx context.Context, client shop.ShopClient, req *shop.PayRequest) answer {
	ctx, cancel := context.WithTimeout(idemgrpc.WithKey(ctx, idemgrpc.NewKey()), 30*time.Second)
	defer cancel()
	for {
		resp, err := client.Pay(ctx, req)
		if !passing(err) || ctx.Err() != nil {
			return answer{req.GetOrder(), resp, err}
		}
		time.Sleep(delay(err))
	}
}

// passing reports whether the same call may end in another way.
func passing(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable:
		return true
	case codes.Aborted:
		return idemgrpc.ReasonOf(err) != idemgrpc.ReasonOutcomeUnknown
	}
	return false
}

// delay is what the server advises.
func delay(err error) time.Duration {
	for _, d := range status.Convert(err).Details() {
		if d, ok := d.(*errdetails.RetryInfo); ok {
			return d.GetRetryDelay().AsDuration()
		}
	}
	return 50 * time.Millisecond
}
