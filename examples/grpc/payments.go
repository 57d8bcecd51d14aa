package main

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/idem-go/idem/examples/grpc/shop"
)

// payments is the service. It knows nothing of keys and retries.
type payments struct {
	shop.UnimplementedShopServer
	bank *bank
}

func (p *payments) Pay(ctx context.Context, req *shop.PayRequest) (*shop.PayResponse, error) {
	ran(ctx)
	return p.bank.charge(req)
}

// A bank is the world outside: what it has done cannot be undone.
type bank struct {
	mu      sync.Mutex
	charges []string // the order of each charge
}

func (b *bank) charge(req *shop.PayRequest) (*shop.PayResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.charges = append(b.charges, req.GetOrder())
	if req.GetCard() == declined {
		return nil, status.Error(codes.FailedPrecondition, "the card was declined, for a fee")
	}
	return &shop.PayResponse{Payment: fmt.Sprintf("pay_%d", len(b.charges)), Cents: req.GetCents()}, nil
}

const declined = "4000 0000 0000 0002"

// order is the i-th order to pay. One in five has a card that is declined.
func order(i int) *shop.PayRequest {
	card := "4242 4242 4242 4242"
	if i%5 == 2 {
		card = declined
	}
	return &shop.PayRequest{Order: fmt.Sprintf("order-%d", i+1), Card: card, Cents: int64(1000 + 99*i)}
}
