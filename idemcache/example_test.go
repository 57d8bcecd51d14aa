package idemcache_test

import (
	"context"
	"fmt"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemcache"
	"github.com/idem-go/idem/memstore"
)

func Example() {
	store, err := idemcache.New(memstore.New(), 64<<20) // memstore stands for the database
	if err != nil {
		fmt.Println(err)
		return
	}
	key := idem.Key{User: "alice", Scope: "orders.create", Key: "8e03978e-40d5"}
	for range 3 {
		res, err := idem.Do(context.Background(), store, key, "two coffees",
			func(context.Context) (string, idem.Status, error) { return "order 17", 201, nil })
		fmt.Println(res.Value, res.Replayed, err)
	}
	// Output:
	// order 17 false <nil>
	// order 17 true <nil>
	// order 17 true <nil>
}
