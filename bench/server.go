package main

import (
	"context"
	"log"
	"net"
	"sync/atomic"
	"testing"
	"time"

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

// connect returns a pool that keeps its connections. Away is how much longer the
// way to the server and back takes.
func connect(ctx context.Context, url string, size int32, away time.Duration) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = size
	if dial := cfg.ConnConfig.DialFunc; away > 0 {
		cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			return &distant{Conn: conn, away: away}, err
		}
	}
	return pgxpool.NewWithConfig(ctx, cfg)
}

// distant is a connection whose answers come later.
type distant struct {
	net.Conn
	away  time.Duration
	asked atomic.Bool
}

func (c *distant) Write(b []byte) (int, error) {
	c.asked.Store(true)
	return c.Conn.Write(b)
}

func (c *distant) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.asked.Swap(false) {
		time.Sleep(c.away)
	}
	return n, err
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
