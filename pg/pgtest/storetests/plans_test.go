package storetests_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
)

// seqRead returns how many rows of the table have been read from end to end.
func seqRead(t *testing.T, pool *pgxpool.Pool) int {
	t.Helper()
	flushStats(t, pool)
	return query[int](t, pool, "SELECT seq_tup_read::int FROM pg_stat_user_tables WHERE relid = '"+table+"'::regclass")
}

// A pooled session keeps the plans that it made while the table was new. They do not read the table from end to end when
// it has grown.
func TestCallsPlannedOnANewTable(t *testing.T) {
	t.Parallel()
	pool := open(t, maxConns(1))
	mustExec(t, pool, "ALTER TABLE "+table+" SET (autovacuum_enabled = off)")
	store := pg.New(pool)
	var n runs
	for i := range 20 {
		n.mustDo(t, store, k("small %d", i), "p")
		n.mustDo(t, store, k("small %d", i), "p")
	}
	fill(t, pool, "k", 20_000, 0)
	for name, call := range map[string]func(){
		"first run": func() { n.mustDo(t, store, k("large"), "p") },
		"replay":    func() { n.mustDo(t, store, k("small 1"), "p") },
		"peek": func() {
			_, err := idem.Peek(watchdog(t), store, k("small 1"), "p")
			wantErr(t, err, nil)
		},
	} {
		before := seqRead(t, pool)
		call()
		if read := seqRead(t, pool) - before; read > 0 {
			t.Errorf("%s: %d rows are read from end to end", name, read)
		}
	}
}
