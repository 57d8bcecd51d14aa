package main

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net/url"
	"path/filepath"

	_ "modernc.org/sqlite"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemsqlite"
)

func openFile(ctx context.Context, path string) (idem.Store, Ledger, func(), error) {
	store, err := idemsqlite.Open(path)
	if err != nil {
		return nil, nil, nil, err
	}
	ledger, err := openLedger(ctx, path)
	if err != nil {
		return nil, nil, nil, errors.Join(err, store.Close())
	}
	return store, ledger, func() {
		if err := errors.Join(ledger.db.Close(), store.Close()); err != nil {
			slog.Error("closing the file", "err", err)
		}
	}, nil
}

// fileLedger keeps payments in the table "payments" of the file that the answers are in.
type fileLedger struct{ db *sql.DB }

func openLedger(ctx context.Context, path string) (*fileLedger, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if path = filepath.ToSlash(path); path[0] != '/' {
		path = "/" + path // C:/…
	}
	dsn := url.URL{Scheme: "file", Path: path, RawQuery: "mode=rw&_busy_timeout=10000&_synchronous=FULL"}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	_, err = db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS payments (
		n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, amount INTEGER NOT NULL, currency TEXT NOT NULL) STRICT`)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &fileLedger{db}, nil
}

// Add makes the payment before its answer is recorded: a process that is killed in between has made it, and the request
// that is sent again finds it by its id, which is the same for every attempt.
func (l *fileLedger) Add(ctx context.Context, p Payment) error {
	_, err := l.db.ExecContext(ctx, `INSERT INTO payments (id, amount, currency) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING`,
		p.ID, p.Amount, p.Currency)
	return err
}

func (l *fileLedger) List(ctx context.Context) ([]Payment, error) {
	rows, err := l.db.QueryContext(ctx, `SELECT id, amount, currency FROM payments ORDER BY n`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	payments := []Payment{}
	for rows.Next() {
		var p Payment
		if err := rows.Scan(&p.ID, &p.Amount, &p.Currency); err != nil {
			return nil, err
		}
		payments = append(payments, p)
	}
	return payments, rows.Err()
}
