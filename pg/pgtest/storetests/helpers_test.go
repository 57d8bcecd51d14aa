package storetests_test

import (
	"context"
	"errors"
	"fmt"
	"os"
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

// large reports whether the cases run at their literal sizes, as make cases does.
var large = os.Getenv("IDEM_TEST_LARGE") != ""

// watchdog returns the test's context with a limit, after which whatever hangs fails.
func watchdog(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	if large {
		ctx, cancel = context.WithTimeout(t.Context(), 20*time.Minute)
	}
	t.Cleanup(cancel)
	return ctx
}

// migrated returns the configuration of a schema of the test's own that has the table.
func migrated(t testing.TB, opts ...pg.Option) *pgxpool.Config {
	t.Helper()
	config := pgtest.Config(t)
	pool, err := pgxpool.NewWithConfig(t.Context(), config.Copy())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := pg.Migrate(t.Context(), pool, opts...); err != nil {
		t.Fatal(err)
	}
	return config
}

// connect returns a pool, which is closed when the test ends.
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
	t.Cleanup(pool.Close)
	return pool
}

func maxConns(n int32) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.MaxConns = n }
}

func execMode(m pgx.QueryExecMode) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = m }
}

var execModes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
	pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

// open returns a pool on a schema of the test's own that has the table.
func open(t testing.TB, change ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	return connect(t, migrated(t), change...)
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

func count(t testing.TB, db querier) int {
	t.Helper()
	return query[int](t, db, "SELECT count(*) FROM "+table)
}

func k(format string, args ...any) idem.Key {
	return idem.Key{User: "u1", Scope: "payments.create", Key: fmt.Sprintf(format, args...)}
}

// runs counts how often a closure ran. Its value is the number of the run.
type runs struct{ atomic.Int64 }

func (r *runs) closure(context.Context) (int64, idem.Status, error) { return r.Add(1), 201, nil }

// do is Do with a closure that counts.
func (r *runs) do(ctx context.Context, s idem.Store, key idem.Key, payload any, opts ...idem.Option) (idem.Result[int64], error) {
	return idem.Do(ctx, s, key, payload, r.closure, opts...)
}

// mustDo is a call that must succeed.
func (r *runs) mustDo(t testing.TB, s idem.Store, key idem.Key, payload any, opts ...idem.Option) idem.Result[int64] {
	t.Helper()
	res, err := r.do(watchdog(t), s, key, payload, opts...)
	if err != nil {
		t.Fatalf("Do(%s): %v", key.Key, err)
	}
	return res
}

func (r *runs) want(t testing.TB, n int64) {
	t.Helper()
	if got := r.Load(); got != n {
		t.Errorf("the closure ran %d times, want %d", got, n)
	}
}

// crash makes a claim whose owner never settles it, with a lease of an hour.
func crash(t testing.TB, s idem.Store, key idem.Key, payload any, opts ...idem.Option) {
	t.Helper()
	_, err := idem.Do(watchdog(t), s, key, payload, func(context.Context) (int64, idem.Status, error) {
		return 0, 0, idem.Unknown(nil)
	}, append([]idem.Option{idem.WithLease(time.Hour)}, opts...)...)
	wantErr(t, err, idem.ErrOutcomeUnknown)
}

// endLease makes the lease of a claim end, as time would.
func endLease(t testing.TB, db querier, key idem.Key) {
	t.Helper()
	if mustExec(t, db, "UPDATE "+table+" SET lease_expires_at = clock_timestamp() WHERE idempotency_key = $1", key.Key) != 1 {
		t.Fatalf("no claim of %s", key.Key)
	}
}

// expire makes the retention of all records end.
func expire(t testing.TB, db querier) {
	t.Helper()
	mustExec(t, db, "UPDATE "+table+" SET expires_at = clock_timestamp() - interval '1s', purge_after = clock_timestamp() - interval '1s'")
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

// A hookedDB is a pool that tells what the store sends, before it does.
type hookedDB struct {
	pg.DB
	before func(sql string, args []any)
}

func (h *hookedDB) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	h.before(sql, args)
	return h.DB.QueryRow(ctx, sql, args...)
}

func (h *hookedDB) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	h.before(sql, args)
	return h.DB.Exec(ctx, sql, args...)
}

// A request is one statement that a store sent.
type request struct {
	sql  string
	args []any
}

// sent returns the statements that f makes a store over db send.
func sent(db pg.DB, f func(idem.Store)) (requests []request) {
	f(pg.New(&hookedDB{db, func(sql string, args []any) { requests = append(requests, request{sql, args}) }}))
	return requests
}
