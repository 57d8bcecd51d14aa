//go:build services

package rapidtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemredis"
)

func TestRedis(t *testing.T) {
	t.Parallel()
	options := redisServer(t)
	options.ContextTimeoutEnabled = true
	c := redis.NewClient(options)
	t.Cleanup(func() { c.Close() })
	Run(t, func(testing.TB) idem.Store { return idemredis.New(c) })
}

// redisServer finds or starts a server: IDEM_TEST_REDIS_URL or a redis-server
// binary. Miniredis is none: in it no time passes by itself.
func redisServer(t *testing.T) *redis.Options {
	if url := os.Getenv("IDEM_TEST_REDIS_URL"); url != "" {
		options, err := redis.ParseURL(url)
		if err != nil {
			t.Fatal("IDEM_TEST_REDIS_URL:", err)
		}
		return options
	}
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	socket := filepath.Join(dir, "redis.sock")
	// The shell waits for the end of its input and kills the server then, even
	// if it is this process that was killed.
	server := exec.Command("sh", "-c", `"$@" </dev/null & read -r _; kill -9 $!`, "sh",
		binary, "--port", "0", "--unixsocket", socket, "--dir", dir, "--save", "", "--appendonly", "no")
	stdin, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		_ = server.Wait()
	})
	for deadline := time.Now().Add(20 * time.Second); ; {
		if _, err := os.Stat(socket); err == nil {
			return &redis.Options{Network: "unix", Addr: socket}
		}
		if time.Now().After(deadline) {
			t.Fatal("redis-server does not start")
		}
		<-time.After(5 * time.Millisecond)
	}
}
