package storetests_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
	"github.com/idem-go/idem/pg/pgtest"
)

const (
	helperVariable = "IDEM_STORETESTS_HELPER" // the helper's number
	urlVariable    = "IDEM_STORETESTS_URL"
	schemaVariable = "IDEM_STORETESTS_SCHEMA"
)

// A call is what a helper process is asked to do, one JSON object a line.
type call struct {
	Key   string
	Lease time.Duration
	Hang  bool // the closure says that it has started, and never returns
}

// An answer is what it tells.
type answer struct {
	Started, Replayed bool
	Value, Zone, Err  string
}

// helper is the other process: it answers calls until its input ends.
func helper(number string) {
	ctx := context.Background()
	out := json.NewEncoder(os.Stdout)
	config, err := pgxpool.ParseConfig(os.Getenv(urlVariable))
	if err != nil {
		_ = out.Encode(answer{Err: err.Error()})
		return
	}
	config.ConnConfig.RuntimeParams["search_path"] = os.Getenv(schemaVariable)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		_ = out.Encode(answer{Err: err.Error()})
		return
	}
	store := pg.New(pool)
	for in, n := json.NewDecoder(os.Stdin), 0; ; n++ {
		var c call
		if in.Decode(&c) != nil {
			return
		}
		res, err := idem.Do(ctx, store, k("%s", c.Key), "p", func(context.Context) (string, idem.Status, error) {
			if c.Hang {
				_ = out.Encode(answer{Started: true})
				select {}
			}
			return fmt.Sprintf("run %d of process %s", n, number), 201, nil
		}, idem.WithLease(c.Lease))
		a := answer{Replayed: res.Replayed, Value: res.Value, Zone: time.Local.String()}
		if err != nil {
			a.Err = err.Error()
		}
		_ = out.Encode(a)
	}
}

// A process is a helper process.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	in  *json.Encoder
	out *bufio.Reader
}

// startProcess starts a process that works on the schema of config.
func startProcess(t *testing.T, number string, config *pgxpool.Config, env ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(watchdog(t), self)
	cmd.Env = append(os.Environ(), helperVariable+"="+number, urlVariable+"="+pgtest.Server(t).URL,
		schemaVariable+"="+config.ConnConfig.RuntimeParams["search_path"])
	cmd.Env = append(cmd.Env, env...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Wait()
	})
	return &process{t, cmd, json.NewEncoder(stdin), bufio.NewReader(stdout)}
}

func (p *process) call(c call) (a answer) {
	p.t.Helper()
	if err := p.in.Encode(c); err != nil {
		p.t.Fatal(err)
	}
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		p.t.Fatalf("the helper process ended: %v", err)
	}
	if err := json.Unmarshal(line, &a); err != nil {
		p.t.Fatalf("the helper process said %q", line)
	}
	return a
}

// kill ends the process as a crash would.
func (p *process) kill() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
	_ = p.cmd.Wait()
}

func TestB01OwnerKilledWhileItRuns(t *testing.T) {
	t.Parallel()
	config := migrated(t)
	pool := connect(t, config)
	store := pg.New(pool)
	owner := startProcess(t, "owner", config)
	if a := owner.call(call{Key: "b01", Lease: 2 * time.Second, Hang: true}); !a.Started {
		t.Fatalf("the owner did not start its closure: %+v", a)
	}
	owner.kill()
	var n runs
	retention := idem.WithRetention(24 * time.Hour)
	_, err := n.do(watchdog(t), store, k("b01"), "p", retention)
	wantErr(t, err, idem.ErrInProgress)
	mustExec(t, pool, "SELECT pg_sleep_until(lease_expires_at) FROM "+table)

	for i, replayed := range []bool{false, true} {
		res := n.mustDo(t, store, k("b01"), "p", retention)
		if res.Replayed != replayed || res.Attempt != 2 {
			t.Errorf("call %d after the lease: %+v", i+1, res)
		}
	}
	n.want(t, 1)
}

func TestB27TwoProcessesOneResult(t *testing.T) {
	t.Parallel()
	config := migrated(t)
	both := [2]*process{startProcess(t, "0", config), startProcess(t, "1", config)}
	for i := range 10 {
		a := both[i%2].call(call{Key: "b27", Lease: time.Minute})
		if a.Err != "" || a.Value != "run 0 of process 0" || a.Replayed != (i > 0) {
			t.Errorf("call %d: %+v", i, a)
		}
	}
}
