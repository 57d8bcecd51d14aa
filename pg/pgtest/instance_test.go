package pgtest

import (
	"bufio"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func TestStart(t *testing.T) {
	t.Parallel()

	t.Run("a killed server keeps what was committed", func(t *testing.T) {
		t.Parallel()
		server := Start(t, "fsync=on", "max_connections=20")
		url := server.URL()
		pool := connectURL(t, url)
		got := []string{query[string](t, pool, "show fsync"), query[string](t, pool, "show max_connections")}
		if diff := cmp.Diff([]string{"on", "20"}, got); diff != "" {
			t.Errorf("settings (-want +got):\n%s", diff)
		}
		mustExec(t, pool, "create table names (name text)")
		mustExec(t, pool, "insert into names values ('committed')")
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		mustExec(t, tx, "insert into names values ('in flight')")

		server.Kill()
		if err := tx.Commit(t.Context()); err == nil {
			t.Error("a connection outlived the server")
		}
		if err := execute(url, "select 1"); err == nil {
			t.Error("the killed server accepts connections")
		}
		server.Restart()
		if server.URL() != url {
			t.Error("the URL has changed")
		}
		if got, want := query[string](t, connectURL(t, url), "select name from names"), "committed"; got != want {
			t.Errorf("found the row %q, want %q", got, want)
		}
	})

	t.Run("the password is needed", func(t *testing.T) {
		t.Parallel()
		server := Start(t)
		err := execute(regexp.MustCompile(`:[^:@/]+@`).ReplaceAllString(server.URL(), ":wrong@"), "select 1")
		if pgErr := new(pgconn.PgError); !errors.As(err, &pgErr) || pgErr.Code != "28P01" { // invalid_password
			t.Errorf("connected with a wrong password: %v", err)
		}
	})
}

// Of servers from binaries. Where there are none, containers do their work, and TestContainer is what there is to see.
func TestLocalServer(t *testing.T) {
	t.Parallel()
	bin := binaries()
	if bin == "" {
		t.Logf("not a local server: there are %s", noBinaries)
		return
	}

	t.Run("a port that is taken is given up for another", func(t *testing.T) {
		t.Parallel()
		taken, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer taken.Close()
		next := taken.Addr().(*net.TCPAddr).Port
		s, err := startLocal(bin, func() int {
			defer func() { next = randomPort() }()
			return next
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		if err := execute(s.url(), "select 1"); err != nil {
			t.Error(err)
		}
	})

	t.Run("a server that does not start tells why, and leaves nothing", func(t *testing.T) {
		t.Parallel()
		ports := 0
		_, err := startLocal(bin, func() int { ports++; return randomPort() }, []string{"no_such_setting=1"})
		if want := `unrecognized configuration parameter "no_such_setting"`; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
		if ports != 1 {
			t.Errorf("tried %d ports: another port does not help", ports)
		}
	})

	t.Run("the directory is gone after the test", func(t *testing.T) {
		t.Parallel()
		var dir string
		t.Run("", func(t *testing.T) { dir = Start(t).server.(*localServer).dir })
		if !removed(dir) {
			t.Errorf("%s is still there", dir)
		}
	})
}

func TestServerVanishesWithAKilledTestProcess(t *testing.T) {
	t.Parallel()
	process, url := startHelper(t, "server")
	dir := query[string](t, connectURL(t, url), "show data_directory")
	if err := process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server is stopped and its directory removed", func() bool {
		return execute(url, "select 1") != nil && (binaries() == "" || removed(dir))
	})
}

// startHelper runs this program as another test process, and returns the URL of the server that this has started.
func startHelper(t *testing.T, mode string) (*os.Process, string) {
	t.Helper()
	helper := exec.CommandContext(t.Context(), os.Args[0])
	helper.Env = append(os.Environ(), "PGTEST_HELPER="+mode, urlVariable+"=")
	stdin, err := helper.StdinPipe() // keeps the helper waiting
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := helper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		helper.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	url := strings.TrimSpace(line)
	if _, parseErr := pgx.ParseConfig(url); err != nil || parseErr != nil || url == "" {
		t.Fatalf("the helper process has no server: %s %v", line, err)
	}
	return helper.Process, url
}

func removed(dir string) bool {
	_, err := os.Stat(dir)
	return errors.Is(err, fs.ErrNotExist)
}
