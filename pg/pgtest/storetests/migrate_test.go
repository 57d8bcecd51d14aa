package storetests_test

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/pg"
	"github.com/idem-go/idem/pg/pgtest"
)

// columns is what a migration leaves, without its names.
const columns = `SELECT string_agg(concat_ws(' ', column_name, data_type, collation_name, is_nullable), E'\n' ORDER BY ordinal_position)
	FROM information_schema.columns WHERE table_schema = $1 AND table_name = $2`

func TestMigrateIsIdempotentInEveryMode(t *testing.T) {
	t.Parallel()
	var first string
	for _, mode := range execModes {
		pool := connect(t, pgtest.Config(t), maxConns(2), execMode(mode))
		schema := query[string](t, pool, "SELECT current_schema()")
		for range 3 {
			wantErr(t, pg.Migrate(watchdog(t), pool), nil)
		}
		got := query[string](t, pool, columns, schema, table)
		if first == "" {
			first = got
		}
		if diff := cmp.Diff(first, got); diff != "" || !strings.Contains(got, "response_body bytea") {
			t.Errorf("%v (-want +got):\n%s", mode, diff)
		}
		steps := query[int](t, pool, "SELECT count(*) FROM "+table+"_migrations")
		if want := len(pg.Migrations()); steps != want {
			t.Errorf("%v: %d steps are logged, want %d", mode, steps, want)
		}
	}
}

func TestMigrateFromManyProcesses(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			pool := connect(t, pgtest.Config(t), maxConns(8), func(c *pgxpool.Config) {
				c.ConnConfig.RuntimeParams["default_transaction_isolation"] = level
			})
			warm(t, pool, 8)
			race(8, func(int) {
				if err := pg.Migrate(watchdog(t), pool); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestMigrateOverEveryHandle(t *testing.T) {
	t.Parallel()
	for name, migrate := range map[string]func(ctx context.Context, pool *pgxpool.Pool) error{
		"Conn": func(ctx context.Context, pool *pgxpool.Pool) error {
			return pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error { return pg.Migrate(ctx, c.Conn()) })
		},
		"pool's Conn": func(ctx context.Context, pool *pgxpool.Pool) error {
			return pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error { return pg.Migrate(ctx, c) })
		},
		"Tx": func(ctx context.Context, pool *pgxpool.Pool) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return pg.Migrate(ctx, tx) })
		},
		"nested Tx after a query": func(ctx context.Context, pool *pgxpool.Pool) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, "SELECT 1"); err != nil {
					return err
				}
				return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return pg.Migrate(ctx, tx) })
			})
		},
		"read-only Tx, nothing to do": func(ctx context.Context, pool *pgxpool.Pool) error {
			if err := pg.Migrate(ctx, pool); err != nil {
				return err
			}
			return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error { return pg.Migrate(ctx, tx) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Open(t)
			wantErr(t, migrate(watchdog(t), pool), nil)
			if got := pool.Stat().AcquiredConns(); got != 0 {
				t.Errorf("%d connections are still acquired", got)
			}
			wholeLife(t, pg.New(pool), "x")
		})
	}
}

// With nothing to do, a role needs no right to create anything; with something to do, it is told what it lacks.
func TestMigrateUnderASmallRole(t *testing.T) {
	t.Parallel()
	config := pgtest.Config(t)
	admin := connect(t, config)
	small := connect(t, config, as(newRole(t, admin, "")))
	if err := pg.Migrate(watchdog(t), small); sqlState(err) != "42501" {
		t.Errorf("error %v, want 42501", err)
	}
	wantErr(t, pg.Migrate(watchdog(t), admin), nil)
	schema := query[string](t, admin, "SELECT current_schema()")
	mustExec(t, admin, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "+schema+" TO "+small.Config().ConnConfig.User)
	wantErr(t, pg.Migrate(watchdog(t), small), nil)
	wholeLife(t, pg.New(small), "x")
}

func TestMigrateCreatesTheSchema(t *testing.T) {
	t.Parallel()
	pool := pgtest.Open(t)
	schema := newSchemaName(t, pool)
	opts := []pg.Option{pg.WithSchema(schema), pg.WithTable(`A "table"`)}
	for range 2 {
		wantErr(t, pg.Migrate(watchdog(t), pool, opts...), nil)
	}
	if got := query[string](t, pool, columns, schema, `A "table"`); got == "" {
		t.Error("the table is not there")
	}
	wholeLife(t, pg.New(pool, opts...), "x")
}

// newSchemaName returns the name of a schema that is not there yet. It is dropped when the test ends.
func newSchemaName(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	// Names are the whole database's, so these are unique.
	schema := query[string](t, pool, "SELECT 'New \"Schéma'';-- ' || gen_random_uuid()")
	t.Cleanup(func() {
		_, err := pool.Exec(context.Background(), "DROP SCHEMA "+pgx.Identifier{schema}.Sanitize()+" CASCADE")
		wantErr(t, err, nil)
	})
	return schema
}

// The printed steps, run by hand as psql would, make the same table as Migrate.
func TestMigrationsByHand(t *testing.T) {
	t.Parallel()
	byHand, byMigrate := pgtest.Open(t), open(t)
	for i, step := range pg.Migrations() {
		if step.Version != i+1 || step.Name == "" || strings.Contains(step.SQL, "{{") {
			t.Errorf("step %d: %+v", i+1, step)
		}
		mustExec(t, byHand, step.SQL, pgx.QueryExecModeSimpleProtocol)
	}
	of := func(pool *pgxpool.Pool) string {
		schema := query[string](t, pool, "SELECT current_schema()")
		indexes := query[string](t, pool, "SELECT string_agg(replace(indexdef, $1, ''), E'\n' ORDER BY indexname) FROM pg_indexes WHERE schemaname = $1 AND tablename = '"+table+"'", schema)
		return query[string](t, pool, columns, schema, table) + "\n" + indexes
	}
	if diff := cmp.Diff(of(byMigrate), of(byHand)); diff != "" {
		t.Errorf("by Migrate and by hand (-want +got):\n%s", diff)
	}
	wholeLife(t, pg.New(byHand), "x")
}

// Tables with every length of name that is allowed, next to each other, are apart.
func TestMigrateLongNames(t *testing.T) {
	t.Parallel()
	const limit = 47 // beside it there are names that are made of it, and Postgres cuts them at 63 bytes
	pool := pgtest.Open(t)
	for _, n := range []int{1, 2, limit - 1, limit, limit + 1, 62, 63, 64, 1000} {
		name := strings.Repeat("n", n)
		err := pg.Migrate(watchdog(t), pool, pg.WithTable(name))
		if n > limit {
			if err == nil || sqlState(err) != "" || !strings.Contains(err.Error(), strconv.Itoa(limit)) {
				t.Errorf("a name of %d bytes: error %v, want one that tells the limit", n, err)
			}
			continue
		}
		wantErr(t, err, nil)
		wholeLife(t, pg.New(pool, pg.WithTable(name)), strconv.Itoa(n))
	}
}
