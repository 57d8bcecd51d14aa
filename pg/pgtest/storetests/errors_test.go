package storetests_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
)

// What keeps a store from working is told, with its SQLSTATE, before the closure runs. What no repetition mends is asked
// for once.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	config := migrated(t)
	admin := connect(t, config)
	mustExec(t, admin, "CREATE TABLE others (id int)")
	mustExec(t, admin, "CREATE TABLE locked (LIKE "+table+" INCLUDING ALL)")
	for name, test := range map[string]struct {
		alter  string // what a role is changed by, if one is needed
		change func(*pgxpool.Config)
		opts   []pg.Option
		grant  string // in the place of all rights
		state  string
		tries  int
	}{
		"missing table":       {opts: []pg.Option{pg.WithTable("missing")}, state: "42P01", tries: 1},
		"missing schema":      {opts: []pg.Option{pg.WithSchema("missing")}, state: "42P01", tries: 1},
		"empty table name":    {opts: []pg.Option{pg.WithTable("")}, state: "42601", tries: 1},
		"a table of others":   {opts: []pg.Option{pg.WithTable("others")}, state: "42703", tries: 1},
		"wrong password":      {change: func(c *pgxpool.Config) { c.ConnConfig.Password = "wrong" }, state: "28P01", tries: 1},
		"missing database":    {change: func(c *pgxpool.Config) { c.ConnConfig.Database = "missing" }, state: "3D000", tries: 1},
		"no right to insert":  {alter: "LOGIN", grant: "SELECT, UPDATE, DELETE", state: "42501", tries: 1},
		"no right at all":     {alter: "LOGIN", grant: "REFERENCES", state: "42501", tries: 1},
		"read-only session":   {alter: "SET default_transaction_read_only = on", state: "25006", tries: 3},
		"no connection left":  {alter: "CONNECTION LIMIT 0", state: "53300", tries: 3},
		"no server":           {change: func(c *pgxpool.Config) { c.ConnConfig.Port = 1 }, tries: 3},
		"a locked-away table": {alter: "SET lock_timeout = '20ms'", opts: []pg.Option{pg.WithTable("locked")}, state: "55P03", tries: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := watchdog(t)
			config := config.Copy()
			if test.alter != "" {
				role := newRole(t, admin, test.alter)
				if test.grant != "" {
					roles.Lock()
					mustExec(t, admin, "REVOKE ALL ON "+table+" FROM "+role)
					mustExec(t, admin, "GRANT "+test.grant+" ON "+table+" TO "+role)
					roles.Unlock()
				}
				as(role)(config)
			}
			if test.change != nil {
				test.change(config)
			}
			if test.state == "55P03" {
				lock, err := admin.Begin(ctx)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = lock.Rollback(context.Background()) }()
				mustExec(t, lock, "LOCK TABLE locked")
			}
			tries := 0
			store := pg.New(&hookedDB{connect(t, config), func(string, []any) { tries++ }}, test.opts...)
			var n runs
			_, err := n.do(ctx, store, k("x"), "p")
			wantErr(t, err, idem.ErrUnavailable)
			if sqlState(err) != test.state || tries != test.tries {
				t.Errorf("after %d tries (want %d): SQLSTATE %q (want %q) of %v", tries, test.tries, sqlState(err), test.state, err)
			}
			n.want(t, 0)
		})
	}
}

// A look-up needs no right to write, and works on a read-only session.
func TestPeekNeedsOnlySelect(t *testing.T) {
	t.Parallel()
	config := migrated(t)
	admin := connect(t, config)
	var n runs
	n.mustDo(t, pg.New(admin), k("x"), "p")
	role := newRole(t, admin, "SET default_transaction_read_only = on")
	mustExec(t, admin, "REVOKE ALL ON "+table+" FROM "+role)
	mustExec(t, admin, "GRANT SELECT ON "+table+" TO "+role)
	replay, err := idem.Peek(watchdog(t), pg.New(connect(t, config, as(role))), k("x"), "p")
	if err != nil || !replay {
		t.Errorf("%v, %v", replay, err)
	}
}

// The smallest rights that a service needs, without those to purge and to migrate.
func TestSmallestRights(t *testing.T) {
	t.Parallel()
	config := migrated(t)
	admin := connect(t, config)
	role := newRole(t, admin, "")
	mustExec(t, admin, "REVOKE ALL ON "+table+" FROM "+role)
	mustExec(t, admin, "GRANT SELECT, INSERT, UPDATE ON "+table+" TO "+role)
	wholeLife(t, pg.New(connect(t, config, as(role))), "x")
}

// The table becomes unusable while the closure runs: the value comes back, and at once, since waiting does not help.
func TestTableLostDuringTheRun(t *testing.T) {
	t.Parallel()
	pool := open(t)
	began := time.Now()
	res, err := idem.Do(watchdog(t), pg.New(pool), k("x"), "p", func(context.Context) (int, idem.Status, error) {
		mustExec(t, pool, "ALTER TABLE "+table+" RENAME TO elsewhere")
		return 7, 201, nil
	})
	wantErr(t, err, idem.ErrNotRecorded)
	if took := time.Since(began); res.Value != 7 || sqlState(err) != "42P01" || took > 20*time.Second {
		t.Errorf("after %v: %+v, %v", took, res, err)
	}
}

// A statement's time limit that is met once passes.
func TestStatementTimeout(t *testing.T) {
	t.Parallel()
	config := migrated(t)
	admin := connect(t, config)
	name, change := named(t)
	store := pg.New(connect(t, config, change, func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["statement_timeout"] = "1500"
	}))
	var n runs
	n.mustDo(t, store, k("warm-up"), "p")
	err := pgx.BeginFunc(watchdog(t), admin, func(tx pgx.Tx) error {
		mustExec(t, tx, "LOCK TABLE "+table)
		done := make(chan error, 1)
		go func() {
			_, err := n.do(watchdog(t), store, k("x"), "p")
			done <- err
		}()
		eventually(t, admin, waitsForLock, name)                                                                                         // the first try
		eventually(t, admin, "NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock')", name) // it was cut off
		mustExec(t, tx, "ROLLBACK")
		if err := <-done; err != nil {
			t.Errorf("error %v", err)
		}
		return nil
	})
	if err != nil && !errors.Is(err, pgx.ErrTxCommitRollback) {
		t.Error(err)
	}
	n.want(t, 2)
}
