package storetests_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
	"github.com/idem-go/idem/pg/pgtest"
	"github.com/idem-go/idem/storetest"
)

// One table with nasty names, and processes of every exec mode whose sessions are in zones all over the earth: each call
// goes to the next of them. At the large size, each of them runs the suite alone, too, which takes five times as long.
func TestB45SuiteInEveryExecModeAndZone(t *testing.T) {
	t.Parallel()
	config := pgtest.Config(t)
	names := []pg.Option{pg.WithSchema(newSchemaName(t, connect(t, config))), pg.WithTable(`Idem's "{{table}}" {{limit}} $1 %s`)}
	if err := pg.Migrate(t.Context(), connect(t, config), names...); err != nil {
		t.Fatal(err)
	}

	zones := []string{"Asia/Tokyo", "America/Los_Angeles", "Pacific/Kiritimati", "America/St_Johns", "UTC"}
	all := &spread{}
	for i, mode := range execModes {
		zone := func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["timezone"] = zones[i] }
		store := pg.New(connect(t, config, maxConns(8), execMode(mode), zone), names...)
		all.stores = append(all.stores, store)
		if large {
			t.Run(mode.String()+" in "+zones[i], func(t *testing.T) {
				storetest.Run(t, func(testing.TB) idem.Store { return store })
			})
		}
	}
	t.Run("spread over all", func(t *testing.T) {
		storetest.Run(t, func(testing.TB) idem.Store { return all })
	})
}

// A spread hands each call to the next of its stores.
type spread struct {
	stores []idem.Store
	calls  atomic.Uint64
}

func (s *spread) next() idem.Store { return s.stores[s.calls.Add(1)%uint64(len(s.stores))] }

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
