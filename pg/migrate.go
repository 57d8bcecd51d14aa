package pg

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migration is one step of the schema.
type Migration struct {
	Version int
	Name    string // such as "create"
	SQL     string
}

// Migrations returns the steps of the schema in order, for the schema and table
// of opts: SQL to print, or to hand to goose, atlas or tern.
func Migrations(opts ...Option) []Migration {
	n := namesOf(opts)
	replace := strings.NewReplacer(
		"{{table}}", n.quoted(n.table),
		"{{purge_index}}", pgx.Identifier{n.table + "_purge_after_idx"}.Sanitize(),
	)
	files, _ := fs.Glob(migrations, "migrations/*.sql") // the pattern is valid, the order lexical
	steps := make([]Migration, len(files))
	for i, file := range files {
		sql, err := migrations.ReadFile(file)
		if err != nil {
			panic(err) // embedded
		}
		number, name, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(file, "migrations/"), ".sql"), "_")
		version, err := strconv.Atoi(number)
		if err != nil {
			panic(err)
		}
		steps[i] = Migration{version, name, replace.Replace(string(sql))}
	}
	return steps
}

// Migrate brings the table up to this release's schema, in one transaction, and
// creates the schema of [WithSchema] if it is missing. It is safe to call from
// many processes at once, and does nothing, needing no right to create
// anything, when there is nothing to do. What has been applied is kept in a
// table beside, its name followed by _migrations.
func Migrate(ctx context.Context, db DB, opts ...Option) error {
	n := namesOf(opts)
	if err := migrate(ctx, db, n, Migrations(opts...)); err != nil {
		return fmt.Errorf("pg: migrate %s: %w", n.quoted(n.table), err)
	}
	return nil
}

// maxTableName leaves room for the longest suffix, _purge_after_idx, in the 63
// bytes of a name. Longer ones are cut by the server, to the same name perhaps.
const maxTableName = 47

func migrate(ctx context.Context, db DB, n names, steps []Migration) error {
	if len(n.table) > maxTableName {
		return fmt.Errorf("the table's name is longer than %d bytes", maxTableName)
	}
	tx, err := db.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	run := func(sql string, args ...any) error {
		_, err := tx.Exec(ctx, sql, args...)
		return err
	}
	if bindingOf(db) != idem.BoundToTx {
		// The wait for the lock must not be what the transaction's snapshot is from.
		if err := run(`SET TRANSACTION ISOLATION LEVEL READ COMMITTED`); err != nil {
			return err
		}
	}
	// One at a time: CREATE IF NOT EXISTS alone can still fail in a race.
	if err := run(`SELECT pg_advisory_xact_lock(hashtextextended('idem migrate', 0))`); err != nil {
		return err
	}
	log := n.quoted(n.table + "_migrations")
	var logged bool
	if err := tx.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL`, log).Scan(&logged); err != nil {
		return err
	}
	if !logged {
		if err := n.createSchema(ctx, tx); err != nil {
			return err
		}
		if err := run(`CREATE TABLE ` + log + ` (version integer PRIMARY KEY, applied_at timestamptz NOT NULL)`); err != nil {
			return err
		}
	}
	var version int
	if err := tx.QueryRow(ctx, `SELECT coalesce(max(version), 0) FROM `+log).Scan(&version); err != nil {
		return err
	}
	for _, step := range steps {
		if step.Version <= version {
			continue
		}
		// A step has several statements, which only the simple protocol takes.
		if err := run(step.SQL, pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("step %d (%s): %w", step.Version, step.Name, err)
		}
		if err := run(`INSERT INTO `+log+` VALUES ($1, clock_timestamp())`, step.Version); err != nil {
			return err
		}
	}
	return tx.Commit(ctx)
}

func (n names) createSchema(ctx context.Context, tx pgx.Tx) error {
	if n.schema == "" {
		return nil
	}
	var exists bool
	err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)`, n.schema).Scan(&exists)
	if err != nil || exists {
		return err
	}
	_, err = tx.Exec(ctx, `CREATE SCHEMA `+pgx.Identifier{n.schema}.Sanitize())
	return err
}
