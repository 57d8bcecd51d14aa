package idemcache_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemcache"
)

// made is a store that has any record one asks for.
type made struct{ idem.Store }

func (made) Claim(_ context.Context, req idem.ClaimRequest) (idem.Record, error) {
	return idem.Record{
		State: idem.Succeeded, Hash: req.Hash, Token: idem.ID{9}, Attempt: 1, ExpiresIn: time.Hour, CompletedAt: time.Now(),
		Response: idem.Response{
			Status: 409, Codec: strings.Clone("json"), Body: make([]byte, req.Lease), Error: &idem.ErrorValue{Code: strings.Repeat("x", 8)},
		},
	}, nil
}

func TestTheBoundIsOneOfMemory(t *testing.T) { // not parallel: it looks at the heap
	const bound = 8 << 20
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for _, size := range []int64{1, 300, 10_000, 100_000} { // on average
		t.Run(fmt.Sprintf("bodies of %d bytes", size), func(t *testing.T) {
			before := heap()
			store, err := idemcache.New(made{}, bound)
			if err != nil {
				t.Fatal(err)
			}
			for n := range 3 * bound / (500 + size) {
				claim(t, store, idem.ClaimRequest{
					Key:  idem.Key{User: strings.Repeat("u", 20), Scope: strings.Repeat("s", 20), Key: fmt.Sprintf("%020d", n)},
					Hash: idem.Hash{Version: 1, Sum: strings.Repeat("0", 64)}, Lease: time.Duration(rand.Int64N(2 * size)),
				})
			}
			grown := heap() - before
			t.Logf("%.2f of the bound", float64(grown)/bound)
			if grown > bound || grown < bound/2 {
				t.Errorf("the heap has grown by %d bytes, the bound is %d", grown, bound)
			}
			runtime.KeepAlive(store)
		})
	}
}

func TestARecordLargerThanTheBoundIsNotKept(t *testing.T) {
	t.Parallel()
	shared := &counted{Store: made{}}
	store, err := idemcache.New(shared, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	small := idem.ClaimRequest{Key: numbered(1), Lease: 100}
	large := idem.ClaimRequest{Key: numbered(2), Lease: 10_000}
	for range 5 {
		claim(t, store, small)
		claim(t, store, large)
	}
	if n := shared.asked.Load(); n != 1+5 {
		t.Errorf("the store was asked %d times, want once for the small record and 5 times for the large one", n)
	}
}
