package storetests_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
)

// fill inserts settled records: of each hundred as many as are given have expired.
func fill(t *testing.T, db querier, prefix string, n, expired int) {
	t.Helper()
	mustExec(t, db, `INSERT INTO `+table+` (user_id, scope, idempotency_key, request_hash, hash_version, status, token, execution_id,
			attempt, reclaimed, lease_expires_at, expires_at, purge_after, inserted_at, updated_at, completed_at, response_status)
		SELECT 'u1', 'payments.create', $1 || i, repeat('0', 64), 1, 'succeeded', gen_random_uuid(), gen_random_uuid(),
			1, false, at, at, at, at - interval '1 day', at - interval '1 day', at - interval '1 day', 200
		FROM generate_series(1, $2::int) AS i,
			LATERAL (SELECT now() + CASE WHEN i % 100 < $3::int THEN interval '-1h' ELSE interval '1 day' END + i * interval '1ms' AS at) AS at`,
		prefix, n, expired)
}

// A plan is a node of what EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) tells.
type plan struct {
	Type    string  `json:"Node Type"`
	Table   string  `json:"Relation Name"`
	Index   string  `json:"Index Name"`
	Rows    float64 `json:"Actual Rows"`
	Hit     int     `json:"Shared Hit Blocks"`
	Read    int     `json:"Shared Read Blocks"`
	Removed float64 `json:"Rows Removed by Filter"`
	Plans   []plan
}

func (p plan) walk(f func(plan)) {
	f(p)
	for _, child := range p.Plans {
		child.walk(f)
	}
}

// explain carries a statement out and returns how.
func explain(t *testing.T, db querier, r request) plan {
	t.Helper()
	var plans []struct{ Plan plan }
	text := query[[]byte](t, db, "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+r.sql, r.args...)
	if err := json.Unmarshal(text, &plans); err != nil || len(plans) != 1 {
		t.Fatalf("plan %s: %v", text, err)
	}
	return plans[0].Plan
}

// A batch reads what it deletes: by the index, not the live rows, however retentions are mixed.
func TestPurgePlan(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ rows, batch, expired int }{
		"few expired":              {50_000, 500, 2},
		"all expired":              {50_000, 500, 100},
		"all expired, small table": {20_000, 1000, 100}, // which might as well be read from end to end
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rows, batch := tt.rows, tt.batch
			pool := open(t)
			fill(t, pool, "k", rows, tt.expired)
			mustExec(t, pool, "ANALYZE "+table)
			purge := sent(pool, func(s idem.Store) {
				_, err := s.Purge(watchdog(t), idem.PurgeRequest{Limit: batch})
				wantErr(t, err, nil)
			})
			var byIndex bool
			p := explain(t, pool, purge[0])
			p.walk(func(p plan) {
				if p.Type == "Seq Scan" && p.Table == table {
					t.Errorf("the table of %d rows is read from end to end", rows)
				}
				if strings.Contains(p.Index, "purge_after") {
					byIndex = true
					if read := int(p.Rows + p.Removed); read > 2*batch {
						t.Errorf("%v rows are read by the index, for a batch of %d", read, batch)
					}
				}
			})
			if !byIndex {
				t.Errorf("the index on purge_after is not used: %+v", p)
			}
			if pages := p.Hit + p.Read; pages > 20*batch {
				t.Errorf("%d pages are read for a batch of %d", pages, batch)
			}
		})
	}
}

// A pooled session plans the purge while the table is empty, and uses the plan when it no longer is.
func TestPurgePlannedOnAnEmptyTable(t *testing.T) {
	t.Parallel()
	pool := open(t, maxConns(1))
	mustExec(t, pool, "ALTER TABLE "+table+" SET (autovacuum_enabled = off)")
	mustExec(t, pool, "VACUUM ANALYZE "+table)
	store := pg.New(pool)
	ctx := watchdog(t)
	for range 10 {
		_, err := store.Purge(ctx, idem.PurgeRequest{Limit: 50})
		wantErr(t, err, nil)
	}
	fill(t, pool, "k", 20_000, 50)
	before := seqRead(t, pool)
	if res, err := store.Purge(ctx, idem.PurgeRequest{Limit: 50}); err != nil || res.Deleted != 50 {
		t.Errorf("%+v, %v", res, err)
	}
	if read := seqRead(t, pool) - before; read > 2000 {
		t.Errorf("a batch of 50 read %d rows from end to end", read)
	}
}

// Purges at once share the work: none waits, none deletes twice, and locked rows are left for later.
func TestPurgesAtOnce(t *testing.T) {
	t.Parallel()
	const rows = 4000
	config := migrated(t)
	pool := connect(t, config, maxConns(8))
	fill(t, pool, "k", rows, 100)
	store := pg.New(pool)
	ctx := watchdog(t)
	err := pgx.BeginFunc(ctx, connect(t, config), func(tx pgx.Tx) error {
		mustExec(t, tx, "SELECT FROM "+table+" WHERE purge_after = (SELECT min(purge_after) FROM "+table+") FOR UPDATE")
		var deleted atomic.Int64
		race(6, func(int) {
			for {
				res, err := store.Purge(ctx, idem.PurgeRequest{Limit: 100})
				if deleted.Add(int64(res.Deleted)); err != nil || res.Deleted == 0 {
					wantErr(t, err, nil)
					return
				}
			}
		})
		if deleted.Load() != rows-1 || count(t, tx) != 1 {
			t.Errorf("%d of %d were deleted, beside a locked one; %d are left", deleted.Load(), rows, count(t, tx))
		}
		return nil
	})
	wantErr(t, err, nil)
	if res, err := store.Purge(ctx, idem.PurgeRequest{Limit: 100}); err != nil || res.Deleted != 1 {
		t.Errorf("the row that was locked: %+v, %v", res, err)
	}
}

// Claims whose record has expired are renewed by late owners while purges run. Each is renewed or deleted, not both.
func TestPurgeRacesRenewal(t *testing.T) {
	t.Parallel()
	const claims, rounds = 50, 6
	pool := open(t, maxConns(10))
	store := pg.New(pool)
	ctx := watchdog(t)
	token := func(i int) idem.ID { return idem.ID{1, byte(i)} }
	for round := range rounds {
		for i := range claims {
			_, err := store.Claim(ctx, idem.ClaimRequest{
				Key: k("%d/%d", round, i), Token: token(i), ExecutionID: idem.ID{2}, Lease: 1, Retention: 1,
			})
			wantErr(t, err, nil)
		}
		var renewed [claims]atomic.Bool
		var deleted atomic.Int64
		race(4, func(caller int) {
			if caller == 0 {
				for range claims / 5 {
					res, err := store.Purge(ctx, idem.PurgeRequest{Limit: 7})
					wantErr(t, err, nil)
					deleted.Add(int64(res.Deleted))
				}
				return
			}
			for i := caller - 1; i < claims; i += 3 {
				err := store.Renew(ctx, idem.RenewRequest{Key: k("%d/%d", round, i), Token: token(i), Lease: time.Hour, Retention: time.Hour})
				if err != nil && !errors.Is(err, idem.ErrLeaseLost) {
					t.Error(err)
				}
				renewed[i].Store(err == nil)
			}
		})
		lost := 0
		for i := range claims {
			_, found, err := store.Lookup(ctx, k("%d/%d", round, i))
			if wantErr(t, err, nil); found != renewed[i].Load() {
				t.Errorf("round %d, claim %d: renewed %v, there %v", round, i, renewed[i].Load(), found)
			}
			if !found {
				lost++
			}
		}
		if int(deleted.Load()) != lost {
			t.Errorf("round %d: %d deleted, %d gone", round, deleted.Load(), lost)
		}
	}
}

// B107: the backlog is too much for one statement, whose time is limited. Batches work it off, beside live calls, and go
// on where an interruption left them.
func TestB107BacklogIsWorkedOff(t *testing.T) {
	t.Parallel()
	rows, limit := 20_000, "1s"
	if large {
		rows, limit = 2_000_000, "5s"
	}
	config := migrated(t)
	fillers := connect(t, config)
	fill(t, fillers, "k", rows, 100)
	mustExec(t, fillers, "ANALYZE "+table)
	pool := connect(t, config, maxConns(8), func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["statement_timeout"] = limit })
	store := pg.New(pool)
	ctx := watchdog(t)

	var deleted, calls atomic.Int64
	purge := func(ctx context.Context, stopAfter int64) {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		_ = idem.RunPurge(ctx, store, time.Millisecond, idem.WithObserver(func(_ context.Context, e idem.Event) {
			if e.Err != nil {
				t.Errorf("purge: %v", e.Err)
				stop()
			}
			if deleted.Add(int64(e.Purge.Deleted)) >= stopAfter {
				stop()
			}
		}))
	}
	live, stop := context.WithCancel(ctx)
	defer stop()
	callers := make(chan struct{})
	go func() {
		defer close(callers)
		race(2, func(caller int) {
			for i := 0; live.Err() == nil; i++ {
				var n runs
				if _, err := n.do(ctx, store, k("live %d/%d", caller, i), "p"); err != nil {
					t.Error(err)
				}
				calls.Add(1)
			}
		})
	}()
	purge(ctx, int64(rows)/4) // interrupted
	left := query[int](t, fillers, "SELECT count(*) FROM "+table+" WHERE idempotency_key LIKE 'k%'")
	if left >= rows || left == 0 {
		t.Errorf("%d of %d are left after an interrupted purge", left, rows)
	}
	purge(ctx, int64(rows))
	stop()
	<-callers
	if got := query[int](t, fillers, "SELECT count(*) FROM "+table+" WHERE idempotency_key LIKE 'k%'"); got != 0 {
		t.Errorf("%d of %d are left", got, rows)
	}
	if live := query[int](t, fillers, "SELECT count(*) FROM "+table); live != int(calls.Load()) {
		t.Errorf("%d live records are left of %d", live, calls.Load())
	}
}
