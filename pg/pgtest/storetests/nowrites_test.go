package storetests_test

import (
	"encoding/json"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
)

// What answers without running the closure: the statements that the store sends for it, on the records beside.
func answers(t *testing.T, pool *pgxpool.Pool) map[string][]request {
	t.Helper()
	ctx := watchdog(t)
	var n runs
	n.mustDo(t, pg.New(pool), k("done"), "p")
	crash(t, pg.New(pool), k("held"), "p")
	return map[string][]request{
		"replay": sent(pool, func(s idem.Store) { n.mustDo(t, s, k("done"), "p") }),
		"mismatch": sent(pool, func(s idem.Store) {
			_, err := n.do(ctx, s, k("done"), "other")
			wantErr(t, err, idem.ErrPayloadMismatch)
		}),
		"in progress": sent(pool, func(s idem.Store) {
			_, err := n.do(ctx, s, k("held"), "p")
			wantErr(t, err, idem.ErrInProgress)
		}),
		"mismatch with a claim": sent(pool, func(s idem.Store) {
			_, err := n.do(ctx, s, k("held"), "other")
			wantErr(t, err, idem.ErrPayloadMismatch)
		}),
		"peek": sent(pool, func(s idem.Store) {
			_, err := idem.Peek(ctx, s, k("done"), "p")
			wantErr(t, err, nil)
		}),
	}
}

func TestAnswersAssignNoTransactionID(t *testing.T) {
	t.Parallel()
	pool := open(t)
	for name, requests := range answers(t, pool) {
		t.Run(name, func(t *testing.T) {
			err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
				for _, r := range requests {
					mustExec(t, tx, r.sql, r.args...)
				}
				if !query[bool](t, tx, "SELECT pg_current_xact_id_if_assigned() IS NULL") {
					t.Error("the statement assigned a transaction id")
				}
				locks := query[int](t, tx, `SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid()
					AND locktype IN ('tuple', 'transactionid', 'advisory')`)
				if locks != 0 {
					t.Errorf("the statement holds %d row locks", locks)
				}
				return nil
			})
			wantErr(t, err, nil)
		})
	}
}

func TestAnswersWriteNoWAL(t *testing.T) {
	t.Parallel()
	pool := open(t)
	for name, requests := range answers(t, pool) {
		t.Run(name, func(t *testing.T) {
			for _, r := range requests {
				// The first time may set hint bits or prune.
				query[[]byte](t, pool, "EXPLAIN (ANALYZE, WAL, FORMAT JSON) "+r.sql, r.args...)
				var plans []struct {
					Plan struct {
						Records int `json:"WAL Records"`
						Bytes   int `json:"WAL Bytes"`
					}
				}
				text := query[[]byte](t, pool, "EXPLAIN (ANALYZE, WAL, FORMAT JSON) "+r.sql, r.args...)
				if err := json.Unmarshal(text, &plans); err != nil || len(plans) != 1 {
					t.Fatalf("plan %s: %v", text, err)
				}
				if wal := plans[0].Plan; wal.Records != 0 || wal.Bytes != 0 {
					t.Errorf("the statement wrote %d WAL records, %d bytes", wal.Records, wal.Bytes)
				}
			}
		})
	}
}

// The same from outside: neither the counters of the table nor a byte of a row moves.
func TestAnswersChangeNoRow(t *testing.T) {
	t.Parallel()
	pool := open(t, maxConns(1)) // the one backend whose counters are flushed
	const counters = `SELECT (n_tup_ins, n_tup_upd, n_tup_del, n_dead_tup)::text FROM pg_stat_user_tables
		WHERE relid = '` + table + `'::regclass`
	const rows = `SELECT string_agg(r::text || r.xmin || r.xmax || r.ctid::text, E'\n' ORDER BY idempotency_key) FROM ` + table + ` r`
	stats := func() string {
		flushStats(t, pool)
		return query[string](t, pool, counters) + query[string](t, pool, rows)
	}
	all := answers(t, pool)
	before := stats()
	for _, requests := range all {
		for _, r := range requests {
			mustExec(t, pool, r.sql, r.args...)
		}
	}
	if after := stats(); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

// flushStats makes the counters of the pool's connection visible at once; before Postgres 15, which cannot be asked to,
// they lag.
func flushStats(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	if query[bool](t, pool, "SELECT to_regproc('pg_stat_force_next_flush') IS NOT NULL") {
		mustExec(t, pool, "SELECT pg_stat_force_next_flush()")
	}
}
