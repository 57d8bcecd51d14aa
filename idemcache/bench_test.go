package idemcache_test

import (
	"context"
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemcache"
	"github.com/idem-go/idem/memstore"
)

type order struct {
	ID, Customer, Note string
	Total              int64
}

var sample = order{"order-17", "alice", "two coffees, one of them to go, and the cake that was left over", 1299}

func BenchmarkReplay(b *testing.B) {
	store, err := idemcache.New(memstore.New(), 1<<20)
	if err != nil {
		b.Fatal(err)
	}
	do := func() error {
		_, err := idem.Do(b.Context(), store, key, sample,
			func(context.Context) (order, idem.Status, error) { return sample, 201, nil })
		return err
	}
	if err := do(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := do(); err != nil {
			b.Fatal(err)
		}
	}
}

// The store's part of a replay alone.
func BenchmarkClaim(b *testing.B) {
	store, err := idemcache.New(made{}, 1<<20)
	if err != nil {
		b.Fatal(err)
	}
	req := idem.ClaimRequest{Key: key, Lease: 300}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := store.Claim(b.Context(), req); err != nil {
				b.Error(err)
			}
		}
	})
}
