//go:build services && unix

package txtests_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
)

// PgBouncer in transaction mode, so set up that each transaction gets another server connection than the one before.
// Which exec modes work there is known for each version, and exactly those must.
//
// It needs PgBouncer, so it is not part of a plain go test: go test -tags services ./...
func TestPgBouncerInTransactionMode(t *testing.T) {
	t.Parallel()
	path, version := findPgBouncer(t)
	direct := migrated(t)
	config := startPgBouncer(t, path, version, direct)
	beside := connect(t, direct)
	openAll(t, connect(t, config))
	var works []string
	for _, mode := range execModes {
		pool := connect(t, config, execMode(mode), maxConns(4))
		if err := tryPooler(t, pool, beside, direct.ConnConfig.RuntimeParams["search_path"], mode); err != nil {
			t.Logf("PgBouncer %s: %s does not work: %v", version.text, mode, err)
			continue
		}
		works = append(works, mode.String())
	}
	t.Logf("PgBouncer %s in transaction mode works with %s", version.text, strings.Join(works, ", "))
	want := []string{pgx.QueryExecModeCacheDescribe.String(), pgx.QueryExecModeExec.String(), pgx.QueryExecModeSimpleProtocol.String()}
	if version.atLeast(1, 21) { // it keeps track of prepared statements
		want = slices.Insert(want, 0, pgx.QueryExecModeCacheStatement.String())
	}
	if diff := cmp.Diff(want, works); diff != "" {
		t.Errorf("exec modes that work with PgBouncer %s (-want +got):\n%s", version.text, diff)
	}
}

// openAll makes PgBouncer open as many server connections as it may.
func openAll(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	var open []pgx.Tx
	for range serverConns {
		tx, err := pool.BeginTx(watchdog(t), pgx.TxOptions{BeginQuery: "BEGIN; SELECT 1"})
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, tx)
	}
	for _, tx := range open {
		wantErr(t, tx.Rollback(watchdog(t)), nil)
	}
}

const serverConns = 3

// tryPooler makes calls of every kind, many times: what one of them has prepared must not be missed by the next one.
func tryPooler(t *testing.T, pool, beside *pgxpool.Pool, schema string, mode pgx.QueryExecMode) error {
	ctx := watchdog(t)
	s := pg.New(pool, pg.WithSchema(schema)) // no search_path of one's own through a pooler
	insert := `INSERT INTO ` + pgx.Identifier{schema, "payments"}.Sanitize() + ` (key) VALUES ($1)`
	for i := range 10 {
		for _, c := range []struct {
			name string
			call func(idem.Key) (idem.Result[string], error)
		}{
			{"DoTx", func(key idem.Key) (idem.Result[string], error) {
				return pg.DoTx(ctx, s, key, "p", func(ctx context.Context, tx pgx.Tx) (string, idem.Status, error) {
					_, err := tx.Exec(ctx, insert, key.Key)
					return "", 201, err
				})
			}},
			{"Do", func(key idem.Key) (idem.Result[string], error) {
				return idem.Do(ctx, s, key, "p", func(ctx context.Context) (string, idem.Status, error) {
					_, err := pool.Exec(ctx, insert, key.Key)
					return "", 201, err
				})
			}},
			{"Do with pg.Begin", func(key idem.Key) (idem.Result[string], error) {
				return idem.Do(ctx, s, key, "p", func(ctx context.Context) (string, idem.Status, error) {
					tx, err := pg.Begin(ctx, s)
					if err == nil {
						_, err = tx.Exec(ctx, insert, key.Key)
					}
					return "", 201, err
				})
			}},
		} {
			key := k("%v %s %d", mode, c.name, i)
			for call, replayed := range []bool{false, true} {
				res, err := c.call(key)
				if err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
				if res.Replayed != replayed {
					t.Errorf("%s, call %d: %+v", key.Key, call, res)
				}
			}
			wantEffects(t, beside, key, 1)
		}
	}
	return nil
}

type bouncerVersion struct {
	text         string
	major, minor int
}

func (v bouncerVersion) atLeast(major, minor int) bool {
	return v.major > major || v.major == major && v.minor >= minor
}

func findPgBouncer(t *testing.T) (path string, v bouncerVersion) {
	t.Helper()
	path, err := exec.LookPath("pgbouncer")
	if err != nil {
		if path, err = exec.LookPath("/usr/sbin/pgbouncer"); err != nil {
			t.Fatal("pgbouncer is not on PATH: install it, on Debian by apt-get install pgbouncer")
		}
	}
	out, err := exec.CommandContext(t.Context(), path, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(out), "\n")
	if _, err := fmt.Sscanf(first, "PgBouncer %d.%d", &v.major, &v.minor); err != nil {
		t.Fatalf("%s --version says %q: %v", path, first, err)
	}
	v.text = strings.TrimPrefix(first, "PgBouncer ")
	return path, v
}

// The supervisor ends PgBouncer when its input does: also when the test process is killed.
const supervisor = `"$1" "$2" </dev/null & pid=$!; cat >/dev/null; kill $pid; wait`

// startPgBouncer starts it on a port of the loopback interface, and returns the configuration of a pool through it.
func startPgBouncer(t *testing.T, path string, version bouncerVersion, server *pgxpool.Config) *pgxpool.Config {
	t.Helper()
	dir, err := os.MkdirTemp("", "pgbouncer")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file := filepath.Join(dir, "pgbouncer.ini")
	attr := unprivileged(t, dir)
	for range 5 { // another process may take the port meanwhile
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := listener.Addr().(*net.TCPAddr).Port
		listener.Close()
		if err := os.WriteFile(file, []byte(bouncerConfig(version, server.ConnConfig, port)), 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("sh", "-c", supervisor, "sh", path, file)
		cmd.SysProcAttr = attr
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := beside(func() { _ = cmd.Wait() })
		t.Cleanup(func() { stdin.Close(); <-ended })
		config := server.Copy()
		config.ConnConfig.Host, config.ConnConfig.Port = "127.0.0.1", uint16(port)
		config.ConnConfig.RuntimeParams = map[string]string{}
		config.ConnConfig.TLSConfig, config.ConnConfig.Fallbacks = nil, nil
		if answers(t, config) {
			return config
		}
		stdin.Close()
	}
	t.Fatal("pgbouncer does not answer")
	return nil
}

func bouncerConfig(version bouncerVersion, server *pgx.ConnConfig, port int) string {
	lines := []string{
		"[databases]",
		fmt.Sprintf("%s = host=%s port=%d dbname=%s user=%s password='%s'",
			server.Database, server.Host, server.Port, server.Database, server.User, strings.ReplaceAll(server.Password, "'", "''")),
		"[pgbouncer]",
		"listen_addr = 127.0.0.1",
		"listen_port = " + strconv.Itoa(port),
		"unix_socket_dir =",
		"auth_type = any",
		"pool_mode = transaction",
		"server_round_robin = 1",
		"default_pool_size = " + strconv.Itoa(serverConns),
		"server_reset_query =",
	}
	if version.atLeast(1, 21) {
		lines = append(lines, "max_prepared_statements = 100")
	}
	return strings.Join(lines, "\n") + "\n"
}

// unprivileged returns how to run a program as a user who owns dir, since PgBouncer refuses to be root.
func unprivileged(t *testing.T, dir string) *syscall.SysProcAttr {
	t.Helper()
	attr := &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() != 0 {
		return attr
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	if err := errors.Join(err1, err2, os.Chown(dir, uid, gid)); err != nil {
		t.Fatal(err)
	}
	attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return attr
}

// answers waits for a server to answer.
func answers(t *testing.T, config *pgxpool.Config) bool {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		conn, err := pgx.ConnectConfig(ctx, config.ConnConfig.Copy())
		if err == nil {
			_ = conn.Close(ctx)
			return true
		}
		select {
		case <-ctx.Done():
			t.Logf("pgbouncer: %v", err)
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
}
