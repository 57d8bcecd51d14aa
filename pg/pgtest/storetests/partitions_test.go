package storetests_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
	"github.com/idem-go/idem/pg/pgtest"
	"github.com/idem-go/idem/storetest"
)

var storageParameters = regexp.MustCompile(`\) WITH \([^)]*\)`)

// partitioned makes the migrations' table a partitioned one.
func partitioned(t *testing.T, db querier, by, key string) {
	t.Helper()
	for _, step := range pg.Migrations() {
		sql := storageParameters.ReplaceAllString(step.SQL, ") PARTITION BY "+by)
		sql = strings.Replace(sql, "PRIMARY KEY (user_id, scope, idempotency_key)", key, 1)
		mustExec(t, db, sql, pgx.QueryExecModeSimpleProtocol)
	}
}

// The suite passes on partitions as it does on a plain table, whether by the whole key or by its user.
func TestSuiteOnPartitions(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"user_id, scope, idempotency_key", "user_id"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Open(t)
			partitioned(t, pool, "HASH ("+by+")", "PRIMARY KEY (user_id, scope, idempotency_key)")
			for i := range 4 {
				mustExec(t, pool, fmt.Sprintf("CREATE TABLE part%d PARTITION OF %s FOR VALUES WITH (MODULUS 4, REMAINDER %d)", i, table, i))
			}
			storetest.Run(t, func(testing.TB) idem.Store { return pg.New(pool) })
		})
	}
}

func TestB109PartitionedByTheKey(t *testing.T) {
	t.Parallel()
	pool := pgtest.Open(t)
	partitioned(t, pool, "HASH (user_id, scope, idempotency_key)", "PRIMARY KEY (user_id, scope, idempotency_key)")
	for _, part := range []string{"0", "1", "2", "3"} {
		mustExec(t, pool, "CREATE TABLE part"+part+" PARTITION OF "+table+" FOR VALUES WITH (MODULUS 4, REMAINDER "+part+")")
	}
	store := pg.New(pool)
	wholeLife(t, store, "life")
	var n runs
	const keys = 200
	race(4, func(int) {
		for i := range keys {
			_, _ = n.do(t.Context(), store, k("%d", i), "p")
		}
	})
	n.want(t, keys)
	if parts := query[int](t, pool, "SELECT count(DISTINCT tableoid) FROM "+table); parts != 4 {
		t.Errorf("the records are in %d partitions", parts)
	}
	// Every second record expires: the partitions' row addresses overlap.
	mustExec(t, pool, "UPDATE "+table+" SET expires_at = now() - interval '1s', purge_after = now() - interval '1s' WHERE idempotency_key ~ '[02468]$'")
	for want := keys / 2; want > 0; want -= 40 {
		res, err := store.Purge(watchdog(t), idem.PurgeRequest{Limit: 40})
		if err != nil || res.Deleted != min(40, want) {
			t.Errorf("purge: %+v, %v, want %d records", res, err, min(40, want))
		}
	}
	if left := query[int](t, pool, "SELECT count(*) FROM "+table+" WHERE expires_at > now()"); left != keys/2+1 || count(t, pool) != left {
		t.Errorf("%d of %d records are left that live", left, keys/2+1)
	}
}

// By time, the key alone cannot be unique: the same key would be there twice. Claims are refused, and nothing runs.
func TestB109PartitionedByTimeFailsClosed(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]string{
		"without a key":        "CHECK (true)",
		"time within the key":  "PRIMARY KEY (user_id, scope, idempotency_key, inserted_at)",
		"time first in it":     "PRIMARY KEY (inserted_at, user_id, scope, idempotency_key)",
		"more than one unique": "UNIQUE (user_id, inserted_at), UNIQUE (idempotency_key, inserted_at)",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Open(t)
			partitioned(t, pool, "RANGE (inserted_at)", key)
			mustExec(t, pool, "CREATE TABLE part PARTITION OF "+table+" DEFAULT")
			var n runs
			_, err := n.do(watchdog(t), pg.New(pool), k("x"), "p")
			wantErr(t, err, idem.ErrUnavailable)
			if sqlState(err) != "42P10" || !strings.Contains(err.Error(), "no unique or exclusion constraint matching the ON CONFLICT") {
				t.Errorf("error %v, want the one for the missing unique constraint", err)
			}
			n.want(t, 0)
		})
	}
}
