package memstore_test

import (
	"context"
	"fmt"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/memstore"
)

func Example() {
	store := memstore.New()
	key := idem.Key{User: "alice", Scope: "orders.create", Key: "8e03978e-40d5"}
	for range 2 {
		res, err := idem.Do(context.Background(), store, key, "two coffees",
			func(context.Context) (string, idem.Status, error) {
				fmt.Println("charging the card")
				return "order 17", 201, nil
			})
		fmt.Println(res.Value, res.Status, res.Replayed, err)
	}
	// Output:
	// charging the card
	// order 17 201 false <nil>
	// order 17 201 true <nil>
}

func ExampleMaxRecords() {
	store := memstore.New(memstore.MaxRecords(1))
	for _, key := range []string{"first", "second", "first"} {
		res, err := idem.Do(context.Background(), store, idem.Key{User: idem.NoUser, Scope: "jobs", Key: key}, nil,
			func(context.Context) (string, idem.Status, error) { return "done", 0, nil })
		fmt.Printf("%s: %q, %v\n", key, res.Value, err)
	}
	// Output:
	// first: "done", <nil>
	// second: "", idem: store unavailable: memstore: full
	// first: "done", <nil>
}
