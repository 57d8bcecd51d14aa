package txtests_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
)

const (
	childVariable  = "IDEM_TXTESTS_CHILD" // the connection string
	kindVariable   = "IDEM_TXTESTS_KIND"
	keyVariable    = "IDEM_TXTESTS_KEY"
	stopVariable   = "IDEM_TXTESTS_STOP" // where the child stops, after it has said so
	schemaVariable = "IDEM_TXTESTS_SCHEMA"
)

// Kinds of calls that commit the work with the outcome.
const (
	kindDoTx  = "DoTx"
	kindBegin = "Do with pg.Begin"
)

// Points in the process, as opposed to those on the wire.
const (
	beforeInsert = "in the closure, before its statement"
	afterInsert  = "in the closure, after its statement"
	afterCall    = "after the call"
)

// call makes one call of a kind. at is told when it passes a point.
func call(ctx context.Context, s *pg.Store, kind string, key idem.Key, at func(point string)) (idem.Result[string], error) {
	work := func(ctx context.Context, tx pgx.Tx) (string, idem.Status, error) {
		at(beforeInsert)
		if err := pay(ctx, tx, key); err != nil {
			return "", 0, err
		}
		at(afterInsert)
		return "paid", 201, nil
	}
	if kind == kindDoTx {
		return pg.DoTx(ctx, s, key, "p", work)
	}
	return idem.Do(ctx, s, key, "p", func(ctx context.Context) (string, idem.Status, error) {
		tx, err := pg.Begin(ctx, s)
		if err != nil {
			return "", 0, err
		}
		return work(ctx, tx)
	})
}

// child is the process that is killed.
func child() {
	config, err := pgxpool.ParseConfig(os.Getenv(childVariable))
	if err != nil {
		fmt.Println(err)
		return
	}
	schema := os.Getenv(schemaVariable)
	config.ConnConfig.RuntimeParams["search_path"] = schema
	config.ConnConfig.RuntimeParams["application_name"] = schema
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		fmt.Println(err)
		return
	}
	at := func(point string) {
		if point == os.Getenv(stopVariable) {
			fmt.Println("at", point)
			select {}
		}
	}
	_, err = call(context.Background(), pg.New(pool), os.Getenv(kindVariable), k("%s", os.Getenv(keyVariable)), at)
	if err != nil {
		fmt.Println(err)
		return
	}
	at(afterCall)
	select {} // it is killed at a point on the wire
}

// A victim is a child process to be killed.
type victim struct {
	cmd  *exec.Cmd
	said chan string // what the child says; closed at its end
}

// startVictim starts a child whose connections are those of config, and which stops at a point.
func startVictim(t *testing.T, config *pgxpool.Config, kind string, key idem.Key, stop string) *victim {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := config.ConnConfig
	cmd := exec.CommandContext(watchdog(t), self)
	cmd.Env = append(os.Environ(),
		childVariable+"="+fmt.Sprintf("host=%s port=%d user=%s password='%s' dbname=%s sslmode=disable",
			c.Host, c.Port, c.User, strings.ReplaceAll(c.Password, "'", `\'`), c.Database),
		schemaVariable+"="+c.RuntimeParams["search_path"], kindVariable+"="+kind, keyVariable+"="+key.Key, stopVariable+"="+stop)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	v := &victim{cmd, make(chan string, 1)}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := beside(func() {
		defer close(v.said)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			v.said <- lines.Text()
		}
	})
	t.Cleanup(func() {
		v.kill()
		<-read
		_ = cmd.Wait()
	})
	return v
}

// kill ends the process as a crash would.
func (v *victim) kill() { _ = v.cmd.Process.Kill() }
