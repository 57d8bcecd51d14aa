package idemsqlite_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemsqlite"
)

// The processes that tests start are this test's binary, in another role. They
// are told what to do, and tell what they have done, in lines.
const (
	roleVariable = "IDEMSQLITE_TEST_ROLE"
	pathVariable = "IDEMSQLITE_TEST_FILE"
)

// A child is a process that works on a file.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func start(t testing.TB, role, path string, env ...string) *child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: exec.Command(self)}
	c.cmd.Env = append(os.Environ(), append(env, roleVariable+"="+role, pathVariable+"="+path)...)
	c.cmd.Stderr = os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewScanner(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.cmd.Process.Kill() })
	return c
}

// line returns the next line that the process writes; false at its end.
func (c *child) line() (string, bool) {
	ok := c.out.Scan()
	return c.out.Text(), ok
}

// ask sends a line and returns the answer.
func (c *child) ask(t testing.TB, line string) string {
	t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		t.Fatal(err)
	}
	answer, ok := c.line()
	if !ok {
		t.Fatalf("the process ended instead of answering %q", line)
	}
	return answer
}

// end lets the process end by itself.
func (c *child) end(t testing.TB) {
	t.Helper()
	_ = c.in.Close()
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("the process: %v", err)
	}
}

// kill is kill -9.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

var stdout sync.Mutex

func say(format string, args ...any) {
	stdout.Lock()
	defer stdout.Unlock()
	fmt.Printf(format+"\n", args...)
}

func runChild(role string) int {
	store, err := idemsqlite.Open(os.Getenv(pathVariable))
	if err != nil {
		say("error open %v", err)
		return 1
	}
	roles := map[string]func(idem.Store) error{"serve": serve, "load": load, "crash": crash}
	if err := errors.Join(roles[role](store), store.Close()); err != nil {
		say("error %v", err)
		return 1
	}
	return 0
}

// once is the work of these tests: its result is its execution's id, so that
// two runs have two. It has time, so that a busy machine is no fault.
func once(ctx context.Context, store idem.Store, k string, opts ...idem.Option) (idem.Result[string], error) {
	return idem.Do(ctx, store, numbered(k), "payload", func(ctx context.Context) (string, idem.Status, error) {
		say("ran %s", k)
		return idem.ExecutionID(ctx), 200, nil
	}, append(opts, patient)...)
}

var patient = idem.WithStoreTimeout(time.Minute)

// serve calls Do with each key that it is told, and answers with the result.
func serve(store idem.Store) error {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		k, hang := strings.CutPrefix(in.Text(), "hang ")
		k, waits := strings.CutPrefix(k, "wait ")
		wait := time.Duration(0)
		if waits {
			wait = time.Minute
		}
		res, err := idem.Do(context.Background(), store, numbered(k), "payload",
			func(ctx context.Context) (string, idem.Status, error) {
				if hang {
					say("hanging")
					select {}
				}
				return idem.ExecutionID(ctx), 200, nil
			}, idem.WithLease(time.Hour), idem.WithWait(wait), patient)
		switch {
		case errors.Is(err, idem.ErrInProgress):
			say("in progress")
		case err != nil:
			say("error %v", err)
		default:
			say("%s", res.Value)
		}
	}
	return nil
}

// each lets goroutines work on the keys from k0 on, until there are none or work
// fails.
func each(goroutines, keys int, work func(k string) error) error {
	var wg sync.WaitGroup
	next := make(chan string)
	failed := make(chan error, goroutines)
	for range goroutines {
		wg.Go(func() {
			for k := range next {
				if err := work(k); err != nil {
					failed <- fmt.Errorf("%s: %w", k, err)
					return
				}
			}
		})
	}
	defer wg.Wait()
	defer close(next)
	for i := range keys {
		select {
		case next <- fmt.Sprintf("k%d", i):
		case err := <-failed:
			return err
		}
	}
	return nil
}

func report(k string, res idem.Result[string]) { say("got %s %s", k, res.Value) }
