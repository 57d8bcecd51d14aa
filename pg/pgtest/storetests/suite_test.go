package storetests_test

import (
	"testing"

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
	var all []idem.Store
	for i, mode := range execModes {
		zone := func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["timezone"] = zones[i] }
		store := pg.New(connect(t, config, maxConns(8), execMode(mode), zone), names...)
		all = append(all, store)
		if large {
			t.Run(mode.String()+" in "+zones[i], func(t *testing.T) {
				storetest.Run(t, func(testing.TB) idem.Store { return store })
			})
		}
	}
	t.Run("spread over all", func(t *testing.T) {
		s := storetest.Spread(all...)
		storetest.Run(t, func(testing.TB) idem.Store { return s })
	})
}
