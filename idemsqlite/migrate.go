package idemsqlite

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/idem-go/idem"
)

//go:embed migrations/*.sql
var migrations embed.FS

// A step is one step of the schema.
type step struct {
	version int64
	name    string
	sql     string
}

// steps are the steps of the schema in order.
var steps = func() (steps []step) {
	files, _ := fs.Glob(migrations, "migrations/*.sql") // the pattern is valid, the order lexical
	for _, file := range files {
		sql, err := migrations.ReadFile(file)
		if err != nil {
			panic(err) // embedded
		}
		number, name, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(file, "migrations/"), ".sql"), "_")
		version, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			panic(err)
		}
		steps = append(steps, step{version, name, string(sql)})
	}
	return steps
}()

// migrate brings the file up to this release's schema, in one transaction.
// What has been applied is kept in a table of its own and not in user_version,
// which may be another program's.
func migrate(ctx context.Context, c *conn) (err error) {
	if err := persist(ctx, nil, func() error { return c.script(`BEGIN IMMEDIATE`) }); err != nil { // one at a time
		return err
	}
	defer func() {
		if err != nil {
			_ = c.script(`ROLLBACK`)
		}
	}()
	if err := c.script(`CREATE TABLE IF NOT EXISTS idempotency_requests_migrations
		(version INTEGER PRIMARY KEY, applied_at INTEGER NOT NULL) STRICT`); err != nil {
		return err
	}
	version, err := c.number(`SELECT coalesce(max(version), 0) FROM idempotency_requests_migrations`)
	switch {
	case err != nil:
		return err
	case version > steps[len(steps)-1].version:
		return idem.Permanent(fmt.Errorf("%w: version %d", ErrNewerSchema, version))
	}
	for _, step := range steps {
		if step.version <= version {
			continue
		}
		if err := c.script(step.sql); err != nil {
			return fmt.Errorf("migration %d (%s): %w", step.version, step.name, err)
		}
		if _, err := c.exec(`INSERT INTO idempotency_requests_migrations VALUES (?, idem_now())`, step.version); err != nil {
			return err
		}
	}
	// A file that cannot be written is found now and not by the first claim: a
	// read-only one lets the transaction begin.
	if err := c.script(`DELETE FROM idempotency_requests_migrations WHERE version < 0`); err != nil {
		return err
	}
	return c.script(`COMMIT`)
}
