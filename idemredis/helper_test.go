package idemredis_test

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// follow makes a server a replica of another and waits until it is in step.
func follow(t testing.TB, replica *redis.Client, primary *server) {
	t.Helper()
	do(t, replica, "REPLICAOF", "127.0.0.1", primary.port)
	until(t, "a replica to follow", func(ctx context.Context) bool {
		return strings.Contains(replica.Info(ctx, "replication").Val(), "master_link_status:up")
	})
}
