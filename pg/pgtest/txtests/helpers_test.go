package txtests_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
	"github.com/idem-go/idem/pg/pgtest"
)

const table = "idempotency_requests"

// watchdog returns the test's context with a limit, after which whatever hangs fails.
func watchdog(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// migrated returns the configuration of a schema of the test's own. It has the table, and payments, which is what
// closures write to.
func migrated(t testing.TB) *pgxpool.Config {
	t.Helper()
	config := pgtest.Config(t)
	config.ConnConfig.RuntimeParams["application_name"] = config.ConnConfig.RuntimeParams["search_path"] // for heldLocks
	pool, err := pgxpool.NewWithConfig(t.Context(), config.Copy())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := pg.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	mustExec(t, pool, `CREATE TABLE payments (key text NOT NULL)`)
	return config
}

// connect returns a pool, which is closed when the test ends. A connection that is held by then fails the test.
func connect(t testing.TB, config *pgxpool.Config, change ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config = config.Copy()
	for _, f := range change {
		f(config)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if wantReleased(t, pool) {
			pool.Close() // it would wait for them
		}
	})
	return pool
}

// wantReleased checks that no connection of the pool is held. A broken one is given back in the background.
func wantReleased(t testing.TB, pool *pgxpool.Pool) bool {
	t.Helper()
	for limit := time.After(5 * time.Second); pool.Stat().AcquiredConns() > 0; {
		select {
		case <-time.After(time.Millisecond):
		case <-limit:
			t.Errorf("%d connections are not given back", pool.Stat().AcquiredConns())
			return false
		}
	}
	return true
}

// open returns a pool on a schema of the test's own, see migrated.
func open(t testing.TB, change ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	return connect(t, migrated(t), change...)
}

func maxConns(n int32) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.MaxConns = n }
}

func execMode(m pgx.QueryExecMode) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = m }
}

func setting(name, value string) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams[name] = value }
}

var execModes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
	pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

func mustExec(t testing.TB, db querier, sql string, args ...any) int64 {
	t.Helper()
	tag, err := db.Exec(t.Context(), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return tag.RowsAffected()
}

func query[T any](t testing.TB, db querier, sql string, args ...any) (v T) {
	t.Helper()
	if err := db.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// eventually returns when the SQL condition holds.
func eventually(t testing.TB, db querier, condition string, args ...any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		var holds bool
		if err := db.QueryRow(ctx, "SELECT "+condition, args...).Scan(&holds); err != nil {
			t.Errorf("waiting for %s: %v", condition, err)
			return
		}
		if holds {
			return
		}
		_, _ = db.Exec(ctx, "SELECT pg_sleep(0.01)")
	}
}

func k(format string, args ...any) idem.Key {
	return idem.Key{User: "u1", Scope: "payments.create", Key: fmt.Sprintf(format, args...)}
}

// pay is what closures do: one INSERT.
func pay(ctx context.Context, db querier, key idem.Key) error {
	_, err := db.Exec(ctx, `INSERT INTO payments (key) VALUES ($1)`, key.Key)
	return err
}

// effects returns how often the closures' work for the key was committed.
func effects(t testing.TB, db querier, key idem.Key) int {
	t.Helper()
	return query[int](t, db, `SELECT count(*) FROM payments WHERE key = $1`, key.Key)
}

// records returns how many settled records the key has that say that its work was done.
func records(t testing.TB, db querier, key idem.Key) int {
	t.Helper()
	return query[int](t, db, `SELECT count(*) FROM `+table+` WHERE idempotency_key = $1 AND status = 'succeeded'`, key.Key)
}

func wantEffects(t testing.TB, db querier, key idem.Key, want int) {
	t.Helper()
	if got := effects(t, db, key); got != want {
		t.Errorf("%s: %d effects, want %d", key.Key, got, want)
	}
	if got := records(t, db, key); got != want {
		t.Errorf("%s: %d records of success, want %d", key.Key, got, want)
	}
}

// runs counts how often a closure ran. Its value is the number of the run.
type runs struct{ atomic.Int64 }

// pays is a closure that counts and pays.
func (r *runs) pays(key idem.Key) func(context.Context, pgx.Tx) (int64, idem.Status, error) {
	return func(ctx context.Context, tx pgx.Tx) (int64, idem.Status, error) {
		return r.Add(1), 201, pay(ctx, tx, key)
	}
}

func (r *runs) doTx(ctx context.Context, s *pg.Store, key idem.Key, payload any, opts ...idem.Option) (idem.Result[int64], error) {
	return pg.DoTx(ctx, s, key, payload, r.pays(key), opts...)
}

func (r *runs) mustDoTx(t testing.TB, s *pg.Store, key idem.Key, payload any, opts ...idem.Option) idem.Result[int64] {
	t.Helper()
	res, err := r.doTx(watchdog(t), s, key, payload, opts...)
	if err != nil {
		t.Fatalf("DoTx(%s): %v", key.Key, err)
	}
	return res
}

func (r *runs) want(t testing.TB, n int64) {
	t.Helper()
	if got := r.Load(); got != n {
		t.Errorf("the closure ran %d times, want %d", got, n)
	}
}

// crash makes a claim whose owner never settles it.
func crash(t testing.TB, s idem.Store, key idem.Key, payload any, opts ...idem.Option) {
	t.Helper()
	_, err := idem.Do(watchdog(t), s, key, payload, func(context.Context) (int64, idem.Status, error) {
		return 0, 0, idem.Unknown(nil)
	}, opts...)
	wantErr(t, err, idem.ErrOutcomeUnknown)
}

// endLease makes the lease of a claim end, as time would.
func endLease(t testing.TB, db querier, key idem.Key) {
	t.Helper()
	if mustExec(t, db, "UPDATE "+table+" SET lease_expires_at = clock_timestamp() WHERE idempotency_key = $1", key.Key) != 1 {
		t.Fatalf("no claim of %s", key.Key)
	}
}

// expire makes the retention of the record end.
func expire(t testing.TB, db querier, key idem.Key) {
	t.Helper()
	mustExec(t, db, "UPDATE "+table+` SET expires_at = clock_timestamp() - interval '1s', purge_after = clock_timestamp() - interval '1s'
		WHERE idempotency_key = $1`, key.Key)
}

// wantErr checks for one of idem's errors; nil is none.
func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if want == nil && err != nil || !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

func sqlState(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code
	}
	return ""
}

// heldLocks counts the advisory locks that connections of the test hold.
const heldLocks = `SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)
	WHERE locktype = 'advisory' AND application_name = current_setting('application_name')`
