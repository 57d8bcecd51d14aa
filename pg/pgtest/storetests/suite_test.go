package storetests_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
	"github.com/idem-go/idem/storetest"
)

// suite runs the conformance suite over one pool.
func suite(t *testing.T, opts []pg.Option, change ...func(*pgxpool.Config)) {
	t.Helper()
	pool := connect(t, migrated(t, opts...), append(change, maxConns(8))...)
	storetest.Run(t, func(testing.TB) idem.Store { return pg.New(pool, opts...) })
}

func TestSuite(t *testing.T) {
	t.Parallel()
	suite(t, nil)
}

func TestSuiteInEveryExecMode(t *testing.T) {
	t.Parallel()
	for _, mode := range execModes[1:] { // the first is the default
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			suite(t, nil, execMode(mode))
		})
	}
}

func TestSuiteWithNastyNames(t *testing.T) {
	t.Parallel()
	suite(t, []pg.Option{pg.WithSchema(`My "Schéma'; --`), pg.WithTable(`Idem's "Table" {{table}} $1 %s`)})
}

// The clocks of the session and of this process may be anywhere on earth.
func TestB45SuiteInOtherZones(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"Asia/Tokyo", "America/Los_Angeles"} {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			suite(t, nil, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["timezone"] = zone })
		})
	}
}
