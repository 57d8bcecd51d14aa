package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/memstore"
)

// where says what keeps answers and payments: always both the same.
type where struct {
	dsn  string // of Postgres, if any
	file string // or else an SQLite file, or inMemory
}

const inMemory = ":memory:"

func (w where) String() string {
	switch {
	case w.dsn != "":
		return "in Postgres"
	case w.file == inMemory:
		return "in memory"
	}
	return "in " + w.file
}

// open returns the store of the answers and the ledger of the payments.
func open(ctx context.Context, w where) (idem.Store, Ledger, func(), error) {
	switch {
	case w.dsn != "":
		return openPostgres(ctx, w.dsn)
	case w.file == inMemory:
		return memstore.New(), &memoryLedger{}, func() {}, nil
	}
	return openFile(ctx, w.file)
}

// defaultFile is in a directory that only this user can read: answers are in it.
func defaultFile() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("%w; choose a file with -db", err)
	}
	dir = filepath.Join(dir, "idem")
	return filepath.Join(dir, "idem.db"), os.MkdirAll(dir, 0o700)
}
