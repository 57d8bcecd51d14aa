package idemredis_test

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed testdata/supervisor.sh
var supervisor string

// A server is a redis-server process on the loopback interface.
type server struct {
	dir     string
	port    int
	process *exec.Cmd
	stdin   io.Closer
}

// binary returns the path of redis-server, or "".
func binary() string {
	path, _ := exec.LookPath("redis-server")
	if _, err := exec.LookPath("sh"); err != nil {
		return ""
	}
	return path
}

// start starts a server for this test alone.
func start(t testing.TB, args ...string) *server {
	t.Helper()
	s, err := newServer(args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.kill)
	return s
}

func newServer(args ...string) (*server, error) {
	if binary() == "" {
		return nil, errors.New("no redis-server in PATH")
	}
	var err error
	for range 10 { // only binding it tells whether a port is free
		s := &server{port: 10_000 + rand.IntN(10_000)} // a node's bus has a port 10,000 above
		if err = s.launch(args); err == nil {
			return s, nil
		}
	}
	return nil, err
}

func (s *server) launch(args []string) (err error) {
	if s.dir, err = os.MkdirTemp("", "idemredis"); err != nil {
		return err
	}
	script := filepath.Join(s.dir, "supervisor.sh")
	if err := os.WriteFile(script, []byte(supervisor), 0o600); err != nil {
		return err
	}
	s.process = exec.Command("sh", append([]string{
		script, s.dir, binary(), "--dir", s.dir, "--port", strconv.Itoa(s.port), "--bind", "127.0.0.1",
		"--save", "", "--appendonly", "no", "--maxclients", "200",
	}, args...)...)
	if s.stdin, err = s.process.StdinPipe(); err != nil {
		return err
	}
	// Stdout and stderr stay closed: go test would wait for a process that had inherited its own.
	if err := s.process.Start(); err != nil {
		return err
	}
	for deadline := time.Now().Add(20 * time.Second); ; {
		log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
		switch {
		case bytes.Contains(log, []byte("Ready to accept connections")):
			return nil
		case bytes.Contains(log, []byte("bind: ")), bytes.Contains(log, []byte("FATAL")), time.Now().After(deadline):
			s.kill()
			return fmt.Errorf("redis-server: %s", log)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// kill ends the server as kill -9 does. It returns when the server is gone.
func (s *server) kill() {
	s.stdin.Close()
	_ = s.process.Wait()
	os.RemoveAll(s.dir)
}

func (s *server) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// client returns a client of the server that is closed with the test.
func (s *server) client(t testing.TB, change ...func(*redis.Options)) *redis.Client {
	t.Helper()
	o := &redis.Options{Addr: s.addr()}
	for _, c := range change {
		c(o)
	}
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}

func do(t testing.TB, c redis.UniversalClient, args ...any) {
	t.Helper()
	if err := c.Do(t.Context(), args...).Err(); err != nil {
		t.Fatalf("%v: %v", args[0], err)
	}
}

// until asks again and again until the answer is yes.
func until(t testing.TB, what string, yes func(context.Context) bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !yes(t.Context()); {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// follow makes a server a replica of another and waits until it is in step.
func follow(t testing.TB, replica *redis.Client, primary *server) {
	t.Helper()
	do(t, replica, "REPLICAOF", "127.0.0.1", primary.port)
	until(t, "a replica to follow", func(ctx context.Context) bool {
		return strings.Contains(replica.Info(ctx, "replication").Val(), "master_link_status:up")
	})
}
