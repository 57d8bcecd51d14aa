package main

import (
	"context"
	"log"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/pg/pgtest"
)

const defaultBuffers = "512MB"

// startServer starts a Postgres that works as one in production does: fsync on.
func startServer(buffers string) (url string, stop func()) {
	h := &harness{}
	return pgtest.Start(h, "fsync=on", "max_connections=200", "shared_buffers="+buffers, "max_wal_size=4GB",
		"maintenance_work_mem=256MB").URL(), h.close
}

// connect returns a pool that keeps its connections.
func connect(ctx context.Context, url string, size int32) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = size
	return pgxpool.NewWithConfig(ctx, cfg)
}

// harness is the little that pgtest needs of a test.
type harness struct {
	testing.TB
	cleanups []func()
}

func (h *harness) Helper()                           {}
func (h *harness) Cleanup(f func())                  { h.cleanups = append(h.cleanups, f) }
func (h *harness) Fatalf(format string, args ...any) { log.Fatalf(format, args...) }
func (h *harness) Errorf(format string, args ...any) { log.Printf(format, args...) }
func (h *harness) Logf(format string, args ...any)   { log.Printf(format, args...) }

func (h *harness) close() {
	for i := len(h.cleanups) - 1; i >= 0; i-- {
		h.cleanups[i]()
	}
}
