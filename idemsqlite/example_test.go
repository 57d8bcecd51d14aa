package idemsqlite_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemsqlite"
)

// What was done before a restart is not done again after it.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "idem.db")

	for range 2 { // each time another store, as after a restart
		store, err := idemsqlite.Open(path)
		if err != nil {
			log.Fatal(err)
		}
		key := idem.Key{User: "ada", Scope: "orders.create", Key: "3f2a"}
		res, err := idem.Do(context.Background(), store, key, "two of the blue ones",
			func(context.Context) (string, idem.Status, error) {
				fmt.Println("working")
				return "order 1", 201, nil
			})
		fmt.Println(res.Value, res.Status, res.Replayed, err)
		if err := store.Close(); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// working
	// order 1 201 false <nil>
	// order 1 201 true <nil>
}
