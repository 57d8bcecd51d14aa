package storetest

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem"
)

// Spread returns a store that hands each request to the next of several: handles
// on the same records, such as two pools or two caches. A suite that runs on it
// tests what they make of each other's records.
func Spread(stores ...idem.Store) idem.Store { return &spread{stores: stores} }

type spread struct {
	stores []idem.Store
	n      atomic.Uint64
}

func (s *spread) next() idem.Store { return s.stores[s.n.Add(1)%uint64(len(s.stores))] }

func (s *spread) Claim(ctx context.Context, req idem.ClaimRequest) (idem.Record, error) {
	return s.next().Claim(ctx, req)
}

func (s *spread) Complete(ctx context.Context, req idem.CompleteRequest) (time.Time, error) {
	return s.next().Complete(ctx, req)
}

func (s *spread) Release(ctx context.Context, req idem.ReleaseRequest) error {
	return s.next().Release(ctx, req)
}

func (s *spread) Renew(ctx context.Context, req idem.RenewRequest) error {
	return s.next().Renew(ctx, req)
}

func (s *spread) Lookup(ctx context.Context, key idem.Key) (idem.Record, bool, error) {
	return s.next().Lookup(ctx, key)
}

func (s *spread) Purge(ctx context.Context, req idem.PurgeRequest) (idem.PurgeResult, error) {
	return s.next().Purge(ctx, req)
}
