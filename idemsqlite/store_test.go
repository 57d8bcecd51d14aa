package idemsqlite_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemsqlite"
	"github.com/idem-go/idem/storetest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	t.Run("one store", func(t *testing.T) {
		store := open(t, file(t))
		storetest.Run(t, func(testing.TB) idem.Store { return store })
	})
	t.Run("several stores on one file", func(t *testing.T) {
		path := file(t)
		s := &spread{}
		for range 2 {
			s.stores = append(s.stores, open(t, path, idemsqlite.WithNormalSync()))
		}
		storetest.Run(t, func(testing.TB) idem.Store { return s })
	})
}

// spread sends each request to another one of several stores on one file.
type spread struct {
	stores []*idemsqlite.Store
	n      atomic.Int64
}

func (s *spread) next() *idemsqlite.Store {
	return s.stores[int(s.n.Add(1))%len(s.stores)]
}

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
