//go:build services

package idemredis_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemredis"
)

func TestB62AStoreThatIsDownRunsNothing(t *testing.T) {
	t.Parallel()
	server := start(t)
	s := idemredis.New(server.client(t, func(o *redis.Options) { o.MaxRetries, o.DialerRetries = -1, 1 }))
	res, err := idem.Do(t.Context(), s, key, "payload", func(context.Context) (string, idem.Status, error) {
		server.kill()
		return "done", 201, nil
	}, idem.WithLease(2*time.Second))
	if !errors.Is(err, idem.ErrNotRecorded) || res.Value != "done" {
		t.Errorf("a server that is killed between claim and completion: got %+v, %v", res, err)
	}
	refuses(t, s, "refused", false)
}

func TestWrongPassword(t *testing.T) {
	t.Parallel()
	server := start(t, "--requirepass", "right")
	for want, password := range map[string]string{
		"WRONGPASS invalid username-password pair": "wrong",
		"NOAUTH": "",
	} {
		refuses(t, idemredis.New(server.client(t, func(o *redis.Options) { o.Password = password })), want, true)
	}
}

func TestMissingRight(t *testing.T) {
	t.Parallel()
	server := start(t)
	do(t, server.client(t), "ACL", "SETUSER", "reader", "on", ">pass", "~*", "+@read")
	s := idemredis.New(server.client(t, func(o *redis.Options) { o.Username, o.Password = "reader", "pass" }))
	refuses(t, s, "NOPERM", true)
}

func TestReadOnlyReplica(t *testing.T) {
	t.Parallel()
	primary, replica := start(t), start(t)
	c := replica.client(t)
	follow(t, c, primary)
	refuses(t, idemredis.New(c), "READONLY You can't write against a read only replica", false)
}

func TestFullMemory(t *testing.T) {
	t.Parallel()
	c := start(t, "--maxmemory-policy", "noeviction").client(t)
	s := idemredis.New(c)
	if _, err := idem.Do(t.Context(), s, numbered(1), "payload", returns("done")); err != nil {
		t.Fatal(err)
	}
	do(t, c, "CONFIG", "SET", "maxmemory", "1")
	refuses(t, s, "OOM", false)
	if c.Exists(t.Context(), recordKey(t, s, key)).Val() != 0 {
		t.Error("a claim without memory has left something")
	}
}

// The snapshots of a server fail, as they do on a full disk.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	server := start(t, "--save", "3600 1000000", "--stop-writes-on-bgsave-error", "yes")
	c := server.client(t)
	s := idemredis.New(c)
	fill := func(ctx context.Context) (string, idem.Status, error) {
		if err := os.MkdirAll(filepath.Join(server.dir, "dump.rdb", "in the way"), 0o700); err != nil {
			return "", 0, err
		}
		do(t, c, "BGSAVE")
		until(t, "the snapshot to fail", func(ctx context.Context) bool {
			return strings.Contains(c.Info(ctx, "persistence").Val(), "rdb_last_bgsave_status:err")
		})
		return "done", 201, nil
	}
	if _, err := idem.Do(t.Context(), s, numbered(1), "payload", returns("done")); err != nil {
		t.Fatal(err)
	}
	res, err := idem.Do(t.Context(), s, numbered(2), "payload", fill, idem.WithLease(time.Second))
	if !errors.Is(err, idem.ErrNotRecorded) || res.Value != "done" || !strings.Contains(err.Error(), "MISCONF") {
		t.Errorf("a disk that gets full between claim and completion: got %+v, %v", res, err)
	}
	refuses(t, s, "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk", false)
	res, err = idem.Do(t.Context(), s, numbered(1), "payload", mustNotRun(t))
	if err != nil || !res.Replayed {
		t.Errorf("a replay needs no disk: got %+v, %v", res, err)
	}
}

// The server forgets its scripts while callers are at work.
func TestScriptFlush(t *testing.T) {
	t.Parallel()
	c := start(t).client(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	s := idemredis.New(c)
	var runs atomic.Int64
	var callers sync.WaitGroup
	for i := range 20 {
		callers.Go(func() {
			for n := range 10 {
				if _, err := idem.Do(t.Context(), s, numbered(100*i+n), "payload", func(ctx context.Context) (string, idem.Status, error) {
					runs.Add(1)
					return "done", 201, c.ScriptFlush(ctx).Err()
				}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	callers.Wait()
	if n := runs.Load(); n != 200 {
		t.Errorf("%d closures ran for 200 keys", n)
	}
}
