package idemmq_test

import (
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemmq"
)

func TestOutputID(t *testing.T) {
	t.Parallel()
	key := idem.Key{User: idem.NoUser, Scope: "billing", Key: "order-1"}
	// Ids must not change from one release to the next: consumers remember them.
	if got, want := idemmq.OutputID(key, 0), "b6ef8ddb6569a15d45212d7a6cc89f5d"; got != want {
		t.Errorf("OutputID = %s, want %s", got, want)
	}
	normal, err := key.Normalize()
	if err != nil {
		t.Fatal(err)
	}
	if idemmq.OutputID(normal, 0) != idemmq.OutputID(key, 0) {
		t.Error("a key and its normal form differ")
	}
	seen := map[string]bool{}
	for _, k := range []idem.Key{
		key,
		{User: idem.NoUser, Scope: "billing", Key: "order-2"},
		{User: idem.NoUser, Scope: "billingo", Key: "rder-1"},
		{User: "billing", Scope: "billing", Key: "order-1"},
	} {
		for i := range 100 {
			seen[idemmq.OutputID(k, i)] = true
		}
	}
	if len(seen) != 400 {
		t.Errorf("%d different ids, want 400", len(seen))
	}
	if got := idemmq.KeyFrom(t.Context()); got != (idem.Key{}) {
		t.Errorf("KeyFrom outside a handler = %+v", got)
	}
}
