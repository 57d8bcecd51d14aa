package idemsqlite_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem"
)

// The lease is short, so that what a killed process held can be waited for.
const crashLease = 300 * time.Millisecond

// crash works on keys until it is killed. It says what it is about to call and
// what has been acknowledged.
func crash(store idem.Store) error {
	round := os.Getenv("IDEMSQLITE_TEST_ROUND")
	return each(4, 1_000_000, func(k string) error {
		k = round + k
		say("call %s", k)
		res, err := once(context.Background(), store, k, idem.WithLease(crashLease))
		switch {
		case errors.Is(err, idem.ErrLeaseLost), errors.Is(err, idem.ErrNotRecorded):
			return nil // the machine is too slow for such a lease
		case err == nil:
			report(k, res)
		}
		return err
	})
}

func TestLargeKilledAtRandomPoints(t *testing.T) {
	t.Parallel()
	var (
		path   = file(t)
		rounds = size(20, 200)
		random = rand.New(rand.NewPCG(1, 2))
		acked  = map[string]string{}
		called []string
	)
	for round := range rounds {
		c := start(t, "crash", path, fmt.Sprintf("IDEMSQLITE_TEST_ROUND=%d-", round))
		lines := 1 + random.IntN(60)
		for n := 0; ; n++ {
			if n == lines {
				spin(time.Duration(random.IntN(2000)) * time.Microsecond)
				_ = c.cmd.Process.Kill()
			}
			line, ok := c.line() // until what it wrote before it died is read
			if !ok {
				break
			}
			switch f := strings.Fields(line); {
			case f[0] == "call" && len(f) == 2:
				called = append(called, f[1])
			case f[0] == "got" && len(f) == 3:
				acked[f[1]] = f[2]
			case f[0] == "error":
				t.Fatal(line)
			}
		}
		_ = c.cmd.Wait()
		db := plain(t, path)
		intact(t, db)
		db.Close()
	}
	if len(acked) == 0 || len(acked) == len(called) {
		t.Fatalf("%d of %d calls were acknowledged: nothing was tested", len(acked), len(called))
	}
	store := open(t, path)
	for _, k := range called {
		before, wasAcked := acked[k]
		rec, found, err := store.Lookup(t.Context(), numbered(k))
		switch {
		case err != nil:
			t.Fatal(err)
		case wasAcked && !(found && rec.State == idem.Succeeded):
			t.Errorf("the outcome of %s is lost: %+v", k, rec)
		case found && rec.LeaseLeft > crashLease:
			t.Errorf("%s is stuck for %v", k, rec.LeaseLeft)
		}
		res, err := once(t.Context(), store, k, idem.WithWait(time.Minute))
		if err != nil || wasAcked && res.Value != before {
			t.Errorf("%s: got %q, %v; it was acknowledged as %q", k, res.Value, err, before)
		}
	}
	t.Logf("%d of %d calls were acknowledged in %d rounds", len(acked), len(called), rounds)
}

// spin lets a short time pass, which the scheduler would make long.
func spin(d time.Duration) {
	for began := time.Now(); time.Since(began) < d; {
	}
}
