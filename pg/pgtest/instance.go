package pgtest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

//go:embed supervisor.sh
var supervisor string

// An Instance is a Postgres server that belongs to one test. Its methods are safe for concurrent use.
type Instance struct {
	t      testing.TB
	server server
}

// A server is one that this process has started: local or in a container.
type server interface {
	url() string
	kill() error
	restart() error
}

// Start starts a server for this test alone, with its own data, and removes both when the test ends. Each of settings is
// a line of its configuration, such as "fsync=on", over the defaults: fsync=off, max_connections=200.
//
// It needs server binaries on this machine or Docker, as the second and third way to find a server do; without them the
// test fails.
func Start(t testing.TB, settings ...string) *Instance {
	t.Helper()
	s := &Instance{t: t}
	if bin := binaries(); bin != "" {
		local, err := startLocal(bin, randomPort, settings)
		if err != nil {
			t.Fatalf("pgtest: %v", err)
		}
		t.Cleanup(local.close)
		s.server = local
		return s
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // the image may have to be pulled
	defer cancel()
	container, err := startContainer(ctx, image(), settings)
	if err != nil {
		t.Fatalf("pgtest: a server that the test may kill needs server binaries, but there are %s; and %v", noBinaries, err)
	}
	t.Cleanup(container.close)
	s.server = container
	return s
}

// URL returns the server's address, for a superuser. It stays the same over a Restart.
func (s *Instance) URL() string { return s.server.url() }

// Kill stops the server as a crash would: connections are cut, transactions in flight are lost, and the next start
// recovers from the write-ahead log. It returns when the server is gone.
func (s *Instance) Kill() {
	s.t.Helper()
	if err := s.server.kill(); err != nil {
		s.t.Errorf("pgtest: %v", err)
	}
}

// Restart starts the server after a Kill, on the same port. It returns when the server accepts connections.
func (s *Instance) Restart() {
	s.t.Helper()
	if err := s.server.restart(); err != nil {
		s.t.Errorf("pgtest: %v", err)
	}
}

// defaults are the settings of every server that is started here.
var defaults = []string{"max_connections=200", "fsync=off"}

// A localServer runs from binaries on this machine.
type localServer struct {
	dir      string
	port     int
	password string

	mu      sync.Mutex // one command at a time
	process *exec.Cmd
	stdin   io.WriteCloser
	answers *bufio.Reader
}

func (s *localServer) url() string {
	return fmt.Sprintf("postgres://postgres:%s@127.0.0.1:%d/postgres?sslmode=disable", s.password, s.port)
}

func (s *localServer) kill() error    { return s.command("stop") }
func (s *localServer) restart() error { return s.command(fmt.Sprintf("start %d", s.port)) }

func startLocal(bin string, pickPort func() int, settings []string) (_ *localServer, err error) {
	dir, attr, err := makeDir()
	if err != nil {
		return nil, err
	}
	s := &localServer{dir: dir, password: rand.Text(), process: exec.Command("sh", "supervisor.sh", bin, dir)}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	// 0o644 as the server may run as another user; the directory is closed to the rest.
	for name, content := range map[string]string{"supervisor.sh": supervisor, "password": s.password} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return nil, err
		}
	}
	s.process.Dir = dir // also since the working directory may be closed to the user that the server runs as
	s.process.SysProcAttr = attr
	// For messages in English (see start), and for macOS, where Postgres does not start without a locale.
	s.process.Env = append(os.Environ(), "LC_ALL=C")
	if s.stdin, err = s.process.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := s.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.answers = bufio.NewReader(stdout)
	// Stderr stays closed: go test would wait for a process that had inherited its own.
	if err := s.process.Start(); err != nil {
		return nil, err
	}
	if err := s.start(pickPort, settings); err != nil {
		return nil, fmt.Errorf("server binaries in %s: %w", bin, err)
	}
	return s, nil
}

func (s *localServer) start(pickPort func() int, settings []string) error {
	if err := s.command("init"); err != nil {
		return err
	}
	settings = slices.Concat([]string{
		"listen_addresses='127.0.0.1'",
		"unix_socket_directories='" + s.dir + "'",
	}, defaults, settings)
	file, err := os.OpenFile(filepath.Join(s.dir, "data", "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString("\n" + strings.Join(settings, "\n") + "\n")
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	// Only binding it tells whether a port is free.
	for range 10 {
		s.port = pickPort()
		err = s.command(fmt.Sprintf("start %d", s.port))
		if err == nil || !strings.Contains(err.Error(), "Address already in use") {
			return err
		}
	}
	return err
}

// command has the supervisor run a command. Its error holds what the command and the server logged meanwhile.
func (s *localServer) command(command string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := filepath.Join(s.dir, "log")
	before, _ := os.ReadFile(log) // not there yet at the first command
	if _, err := fmt.Fprintln(s.stdin, command); err != nil {
		return fmt.Errorf("%s: supervisor: %w", command, err)
	}
	answer, err := s.answers.ReadString('\n')
	if err != nil {
		return fmt.Errorf("%s: supervisor: %w", command, err)
	}
	if answer != "ok\n" {
		after, _ := os.ReadFile(log)
		return fmt.Errorf("%s: %s", command, bytes.TrimSpace(bytes.TrimPrefix(after, before)))
	}
	return nil
}

// close returns when the server is stopped and its directory removed.
func (s *localServer) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stdin != nil {
		_ = s.stdin.Close()
	}
	_ = s.process.Wait() // its status says nothing: it is stopped, or was killed
	os.RemoveAll(s.dir)  // in case there was no supervisor to do it
}

// randomPort returns a port below those that systems give to outgoing connections. Such a connection could take the port
// of a killed server, and a client that retries there could even connect to itself.
func randomPort() int { return 20_000 + mathrand.IntN(12_000) }

// binaries returns the directory of the server binaries, "" if there are none.
func binaries() string {
	if !canStart {
		return ""
	}
	if initdb, err := exec.LookPath("initdb"); err == nil {
		// PATH may lead to links to single programs.
		if initdb, err = filepath.EvalSymlinks(initdb); err == nil && complete(filepath.Dir(initdb)) {
			return filepath.Dir(initdb)
		}
	}
	best, highest := "", 0.0
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	for _, dir := range dirs {
		version, err := strconv.ParseFloat(filepath.Base(filepath.Dir(dir)), 64)
		if err == nil && version > highest && complete(dir) {
			best, highest = dir, version
		}
	}
	return best
}

// complete reports whether dir holds all of the server: a client package brings some of its programs.
func complete(dir string) bool {
	for _, program := range []string{"initdb", "pg_ctl", "postgres"} {
		if _, err := exec.LookPath(filepath.Join(dir, program)); err != nil {
			return false
		}
	}
	return true
}
