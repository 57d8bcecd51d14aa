//go:build services && unix

package rabbitmq

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const urlVariable = "IDEM_TEST_RABBITMQ_URL"

// dial returns a connection to the broker that the variable names or, if it is
// not set, to one that is started for the test.
func dial(t *testing.T) *amqp.Connection {
	t.Helper()
	url := os.Getenv(urlVariable)
	if url == "" {
		url = start(t)
	}
	limit := time.After(5 * time.Minute) // it takes 5 s of two idle cores, and there may be none
	for {
		conn, err := amqp.Dial(url)
		if err == nil {
			t.Logf("broker: %v %v, at %s", conn.Properties["product"], conn.Properties["version"], conn.RemoteAddr())
			t.Cleanup(func() { conn.Close() })
			return conn
		}
		select {
		case <-limit:
			t.Fatalf("RabbitMQ at %s: %v", url, err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// start starts a broker with a directory, a name and ports of its own on
// loopback. It ends with the test process, even if that is killed: the shell
// between them then reads the end of its input. epmd, Erlang's directory of
// nodes, is started first: the broker would leave one of its own behind.
func start(t *testing.T) (url string) {
	t.Helper()
	binary := find(t)
	dir := t.TempDir()
	plugins := filepath.Join(dir, "enabled_plugins")
	if err := os.WriteFile(plugins, []byte("[].\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "output"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	port := freePort(t)

	cmd := exec.Command("sh", "-c", `epmd & "$0" & read -r _; kill -KILL 0`, binary)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Env = append(os.Environ(),
		"HOME="+dir,
		fmt.Sprintf("RABBITMQ_NODENAME=idem%d@localhost", port),
		"RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
		fmt.Sprintf("RABBITMQ_NODE_PORT=%d", port),
		fmt.Sprintf("RABBITMQ_DIST_PORT=%d", freePort(t)),
		"RABBITMQ_MNESIA_BASE="+dir,
		"RABBITMQ_LOG_BASE="+dir,
		"RABBITMQ_ENABLED_PLUGINS_FILE="+plugins,
		"RABBITMQ_CONFIG_FILE="+filepath.Join(dir, "none"),
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1} -rabbit disk_free_limit 1000000 +sbwt none +S 1:1",
		fmt.Sprintf("ERL_EPMD_PORT=%d", freePort(t)),
		"ERL_EPMD_ADDRESS=127.0.0.1",
	)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Wait()
		if t.Failed() {
			output, _ := os.ReadFile(log.Name())
			t.Logf("output of the broker:\n%s", output)
		}
	})
	t.Logf("started %s", binary)
	return fmt.Sprintf("amqp://guest:guest@127.0.0.1:%d/", port)
}

// find looks for the broker itself: Debian's command on PATH is a wrapper, for
// its own user and directories only.
func find(t *testing.T) string {
	t.Helper()
	for _, pattern := range []string{
		"/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server",
		"/opt/rabbitmq/sbin/rabbitmq-server",
		"/opt/homebrew/opt/rabbitmq/sbin/rabbitmq-server",
	} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return found[len(found)-1]
		}
	}
	if path, err := exec.LookPath("rabbitmq-server"); err == nil {
		return path
	}
	t.Fatalf("no RabbitMQ: install it (Debian: apt-get install rabbitmq-server), or set %s to the URL of one", urlVariable)
	return ""
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
