package storetests_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
)

// A lease of an hour is alive, and one that is over is over, whatever the zones of the role and of the process.
func TestB45LeasesInEveryZone(t *testing.T) {
	t.Parallel()
	config := migrated(t)
	pool := connect(t, config)
	for _, zone := range []string{"Asia/Tokyo", "America/Los_Angeles", "Pacific/Kiritimati", "UTC"} {
		role := newRole(t, pool, "SET timezone = '"+zone+"'")
		for _, mode := range modes(pgx.QueryExecModeCacheStatement, pgx.QueryExecModeSimpleProtocol) {
			store := pg.New(connect(t, config, maxConns(1), execMode(mode), as(role)))
			key := k("%s %v", zone, mode)
			var n runs
			crash(t, store, key, "p", idem.WithLease(time.Hour))
			_, err := n.do(watchdog(t), store, key, "p")
			wantErr(t, err, idem.ErrInProgress)
			endLease(t, pool, key)
			n.mustDo(t, store, key, "p")
		}
	}
}

func TestB45ProcessInKiritimati(t *testing.T) {
	t.Parallel()
	config := migrated(t)
	pool := connect(t, config)
	far := startProcess(t, "far", config, "TZ=Pacific/Kiritimati")
	for _, lease := range []time.Duration{time.Hour, time.Minute} {
		key := k("%v", lease)
		crash(t, pg.New(pool), key, "p", idem.WithLease(lease))
		a := far.call(call{Key: key.Key, Lease: lease})
		if !strings.Contains(a.Err, idem.ErrInProgress.Error()) {
			t.Errorf("lease of %v: %+v, want %v", lease, a, idem.ErrInProgress)
		}
		endLease(t, pool, key)
		if a := far.call(call{Key: key.Key, Lease: lease}); a.Err != "" || a.Replayed {
			t.Errorf("after a lease of %v: %+v", lease, a)
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

// newRole makes a role that may use the schema of the pool, with an ALTER ROLE of its own. It is dropped when the test
// ends.
func newRole(t *testing.T, pool *pgxpool.Pool, alter string) (name string) {
	t.Helper()
	name = query[string](t, pool, "SELECT 'idem_' || replace(gen_random_uuid()::text, '-', '')")
	schema := query[string](t, pool, "SELECT current_schema()")
	roles.Lock()
	defer roles.Unlock()
	mustExec(t, pool, "CREATE ROLE "+name+" LOGIN PASSWORD 'secret'")
	t.Cleanup(func() { // before the pool is closed
		roles.Lock()
		defer roles.Unlock()
		for _, sql := range []string{"DROP OWNED BY ", "DROP ROLE "} {
			if _, err := pool.Exec(context.Background(), sql+name); err != nil {
				t.Error(err)
			}
		}
	})
	if alter != "" {
		mustExec(t, pool, "ALTER ROLE "+name+" "+alter)
	}
	mustExec(t, pool, "GRANT USAGE ON SCHEMA "+schema+" TO "+name)
	mustExec(t, pool, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "+schema+" TO "+name)
	return name
}

// roles is held while rights are granted or taken: at once on one table, Postgres refuses it.
var roles sync.Mutex

// as connects as a role of newRole.
func as(role string) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.ConnConfig.User, c.ConnConfig.Password = role, "secret" }
}
