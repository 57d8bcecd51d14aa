package storetests_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
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

// The five exec modes run the suite, the first here and the others below, each under other circumstances. Each runs it
// under all of them at the large size.
func TestSuite(t *testing.T) {
	t.Parallel()
	suite(t, nil)
}

func TestSuiteWithNastyNames(t *testing.T) {
	t.Parallel()
	for _, mode := range modes(pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol) {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			suite(t, []pg.Option{pg.WithSchema(t.Name() + ` "Schéma'; --`), pg.WithTable(`Idem's "Table" {{table}} {{limit}} $1 %s`)}, execMode(mode))
		})
	}
}

// The clocks of the session and of this process may be anywhere on earth.
func TestB45SuiteInOtherZones(t *testing.T) {
	t.Parallel()
	for zone, mode := range map[string]pgx.QueryExecMode{
		"Asia/Tokyo":          pgx.QueryExecModeCacheDescribe,
		"America/Los_Angeles": pgx.QueryExecModeDescribeExec,
	} {
		for _, mode := range modes(mode) {
			t.Run(zone+" in "+mode.String(), func(t *testing.T) {
				t.Parallel()
				suite(t, nil, execMode(mode), func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["timezone"] = zone })
			})
		}
	}
}

// modes returns these exec modes, or all at the large size.
func modes(some ...pgx.QueryExecMode) []pgx.QueryExecMode {
	if large {
		return execModes
	}
	return some
}
