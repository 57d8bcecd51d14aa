package idemsqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"time"

	"modernc.org/sqlite"
)

// A conn is a connection to the file with its statements, for one goroutine at a
// time. It is the driver's own: database/sql would add a fifth to what a look-up
// costs, and starts goroutines for each to watch a context, where there is
// nothing to wait for. No statement is ever interrupted; what may have to wait
// does so between statements.
type conn struct {
	driver.Conn
	prepared map[string]driver.Stmt
}

// own is a driver of this package's own, so that its function is nobody else's.
var own = func() *sqlite.Driver {
	d := &sqlite.Driver{}
	d.MustRegisterScalarFunction("idem_now", 0, func(*sqlite.FunctionContext, []driver.Value) (driver.Value, error) {
		return time.Now().UnixMicro(), nil // SQLite's own clock is this one in milliseconds
	})
	return d
}()

func connect(dsn string) (*conn, error) {
	c, err := own.Open(dsn)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, prepared: map[string]driver.Stmt{}}, nil
}

// prepare returns a statement that is kept for as long as the connection.
func (c *conn) prepare(query string) (driver.Stmt, error) {
	if stmt := c.prepared[query]; stmt != nil {
		return stmt, nil
	}
	stmt, err := c.Prepare(query)
	if err != nil {
		return nil, err
	}
	c.prepared[query] = stmt
	return stmt, nil
}

// exec carries out a statement and returns how many records it changed.
func (c *conn) exec(query string, args ...driver.Value) (int64, error) {
	stmt, err := c.prepare(query)
	if err != nil {
		return 0, err
	}
	res, err := stmt.(driver.StmtExecContext).ExecContext(context.Background(), named(args))
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// script carries out statements that are not needed again.
func (c *conn) script(statements string) error {
	_, err := c.Conn.(driver.ExecerContext).ExecContext(context.Background(), statements, nil)
	return err
}

// query calls each with every row of the answer. The row is valid until it
// returns.
func (c *conn) query(each func(row) error, query string, args ...driver.Value) (err error) {
	stmt, err := c.prepare(query)
	if err != nil {
		return err
	}
	rows, err := stmt.(driver.StmtQueryContext).QueryContext(context.Background(), named(args))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	r := make(row, len(rows.Columns()))
	for {
		switch err := rows.Next(r); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := each(r); err != nil {
			return err
		}
	}
}

// errNoRow is returned by one.
var errNoRow = errors.New("idemsqlite: no row")

// one is query for a single row.
func (c *conn) one(read func(row) error, query string, args ...driver.Value) error {
	found := false
	err := c.query(func(r row) error {
		found = true
		return read(r)
	}, query, args...)
	if err == nil && !found {
		return errNoRow
	}
	return err
}

// number is one for a single number.
func (c *conn) number(query string, args ...driver.Value) (n int64, err error) {
	err = c.one(func(row row) error {
		r := reader{row: row}
		n = r.must("of " + query)
		return r.err
	}, query, args...)
	return n, err
}

// close closes the connection.
func (c *conn) close() error {
	errs := make([]error, 0, len(c.prepared)+1)
	for _, stmt := range c.prepared {
		errs = append(errs, stmt.Close())
	}
	return errors.Join(append(errs, c.Close())...)
}

func named(args []driver.Value) []driver.NamedValue {
	values := make([]driver.NamedValue, len(args))
	for i, arg := range args {
		values[i] = driver.NamedValue{Ordinal: i + 1, Value: arg}
	}
	return values
}
