//go:build services

package idemredis_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemredis"
	"github.com/idem-go/idem/storetest"
)

// startCluster starts a Redis Cluster of three primaries, each with a replica.
func startCluster(t testing.TB) *redis.ClusterClient {
	t.Helper()
	const primaries, slots = 3, 16384
	var addrs, ids []string
	var nodes []*redis.Client
	for i := range 2 * primaries {
		s := start(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "20000")
		c := s.client(t)
		addrs, nodes = append(addrs, s.addr()), append(nodes, c)
		id, err := c.ClusterMyID(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
		do(t, c, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
		if i < primaries {
			if err := c.ClusterAddSlotsRange(t.Context(), i*slots/primaries, (i+1)*slots/primaries-1).Err(); err != nil {
				t.Fatal(err)
			}
		}
		if i > 0 {
			do(t, c, "CLUSTER", "MEET", "127.0.0.1", strings.TrimPrefix(addrs[0], "127.0.0.1:"))
		}
	}
	for i, c := range nodes[primaries:] {
		until(t, "a replica to know its primary", func(ctx context.Context) bool {
			return c.Do(ctx, "CLUSTER", "REPLICATE", ids[i]).Err() == nil
		})
	}
	for _, c := range nodes {
		until(t, "the cluster to agree", func(ctx context.Context) bool {
			info := c.ClusterInfo(ctx).Val()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d", len(nodes))) &&
				strings.Count(c.ClusterNodes(ctx).Val(), " connected") >= len(nodes) &&
				strings.Count(c.ClusterNodes(ctx).Val(), "slave ") == primaries
		})
	}
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	t.Cleanup(func() { c.Close() })
	return c
}

// Case B60 on six nodes: random keys, keys with braces, and the whole suite.
func TestB60Cluster(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	s := idemredis.New(c)
	var keys []idem.Key
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		part := func() string { return fmt.Sprintf("%c%x}", 0x4e00+random.IntN(5000), random.Uint64()) }
		keys = append(keys, idem.Key{User: part(), Scope: part(), Key: part()})
	}
	for _, user := range braces {
		for _, scope := range braces {
			for _, k := range braces {
				keys = append(keys, idem.Key{User: user, Scope: scope, Key: k})
			}
		}
	}
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			for n := i; n < len(keys); n += 8 {
				want := fmt.Sprint(n)
				for _, fn := range []closure{returns(want), mustNotRun(t)} {
					if res, err := idem.Do(t.Context(), s, keys[n], "payload", fn); err != nil || res.Value != want {
						t.Errorf("%q: got %+v, %v", keys[n], res, err)
					}
				}
			}
		})
	}
	callers.Wait()
	t.Run("every primary has its share", func(t *testing.T) {
		if err := c.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
			if n, err := node.DBSize(ctx).Result(); err != nil || n < int64(len(keys)/5) {
				t.Errorf("%d of %d keys, error %v", n, len(keys), err)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
	storetest.Run(t, func(testing.TB) idem.Store { return s })
}
