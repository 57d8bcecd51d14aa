package rapidtest

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemsqlite"
	"github.com/idem-go/idem/memstore"
	"github.com/idem-go/idem/pg"
	"github.com/idem-go/idem/pg/pgtest"
)

func TestMemstore(t *testing.T) {
	t.Parallel()
	Run(t, func(testing.TB) idem.Store { return memstore.New() })
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	pool := pgtest.Open(t)
	if err := pg.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	Run(t, func(testing.TB) idem.Store { return &spread{stores: []idem.Store{pg.New(pool), pg.New(pool)}} })
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	Run(t, func(t testing.TB) idem.Store {
		s, path := &spread{}, filepath.Join(t.TempDir(), "idem.db")
		for range 2 {
			store, err := idemsqlite.Open(path, idemsqlite.WithNormalSync())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { store.Close() })
			s.stores = append(s.stores, store)
		}
		return s
	})
}

// A spread hands each request to the next of several stores over the same
// records.
type spread struct {
	stores []idem.Store
	n      atomic.Int64
}

func (s *spread) next() idem.Store { return s.stores[int(s.n.Add(1))%len(s.stores)] }

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
