package rapidtest

import (
	"path/filepath"
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemsqlite"
	"github.com/idem-go/idem/memstore"
	"github.com/idem-go/idem/pg"
	"github.com/idem-go/idem/pg/pgtest"
	"github.com/idem-go/idem/storetest"
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
	Run(t, func(testing.TB) idem.Store { return storetest.Spread(pg.New(pool), pg.New(pool)) })
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	Run(t, func(t testing.TB) idem.Store {
		path := filepath.Join(t.TempDir(), "idem.db")
		open := func() idem.Store {
			store, err := idemsqlite.Open(path, idemsqlite.WithNormalSync())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { store.Close() })
			return store
		}
		return storetest.Spread(open(), open())
	})
}
