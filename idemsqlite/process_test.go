package idemsqlite_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem"
)

// load works on as many keys as IDEMSQLITE_TEST_KEYS says, as other processes
// do on the same ones.
func load(store idem.Store) error {
	keys, err := strconv.Atoi(os.Getenv("IDEMSQLITE_TEST_KEYS"))
	if err != nil {
		return err
	}
	return each(8, keys, func(k string) error {
		res, err := once(context.Background(), store, k, idem.WithWait(time.Minute))
		if err == nil {
			report(k, res)
		}
		return err
	})
}

// No call may fail, with SQLITE_BUSY or otherwise: children end with an error
// then.
func TestLargeFourProcessesOnOneFile(t *testing.T) {
	t.Parallel()
	path := file(t)
	keys := size(2000, 20_000)
	var (
		mu      sync.Mutex
		ran     = map[string]int{}
		results = map[string]map[string]int{}
		wg      sync.WaitGroup
	)
	for range 4 {
		c := start(t, "load", path, fmt.Sprintf("IDEMSQLITE_TEST_KEYS=%d", keys))
		wg.Go(func() {
			for {
				line, ok := c.line()
				if !ok {
					break
				}
				mu.Lock()
				switch f := strings.Fields(line); f[0] {
				case "ran":
					ran[f[1]]++
				case "got":
					if results[f[1]] == nil {
						results[f[1]] = map[string]int{}
					}
					results[f[1]][f[2]]++
				default:
					t.Error(line)
				}
				mu.Unlock()
			}
			c.end(t)
		})
	}
	wg.Wait()
	if len(ran) != keys {
		t.Errorf("%d keys were executed, want %d", len(ran), keys)
	}
	for k, n := range ran {
		if n != 1 || len(results[k]) != 1 {
			t.Errorf("%s was executed %d times and has the results %v", k, n, results[k])
		}
		for result, n := range results[k] {
			if n != 4 {
				t.Errorf("%s: %d of 4 processes got %s", k, n, result)
			}
		}
	}
	db := plain(t, path)
	if got := value[int](t, db, `SELECT count(*) FROM idempotency_requests WHERE status = 'succeeded' AND attempt = 1`); got != keys {
		t.Errorf("%d records, want %d", got, keys)
	}
	intact(t, db)
}

func TestB27TenCallsToTwoProcessesHaveOneResult(t *testing.T) {
	t.Parallel()
	path := file(t)
	processes := [2]*child{start(t, "serve", path), start(t, "serve", path)}
	results := map[string]int{}
	for i := range 10 {
		results[processes[i%2].ask(t, "k")]++
	}
	for _, p := range processes {
		p.end(t)
	}
	if len(results) != 1 {
		t.Errorf("results: %v, want one", results)
	}
}

func TestAnOutcomeSurvivesARestart(t *testing.T) {
	t.Parallel()
	path := file(t)
	var results []string
	for range 2 {
		c := start(t, "serve", path)
		results = append(results, c.ask(t, "k"))
		c.end(t)
	}
	c := start(t, "serve", path)
	results = append(results, c.ask(t, "k"))
	c.kill()
	res, err := once(t.Context(), open(t, path), "k")
	if err != nil || !res.Replayed {
		t.Errorf("replayed: %v, %v", res.Replayed, err)
	}
	for _, got := range results {
		if got != res.Value {
			t.Errorf("results: %v, want %s", results, res.Value)
		}
	}
}

// B45: zones are nothing to a number of microseconds.
func TestB45ALiveClaimIsLiveInEveryZone(t *testing.T) {
	t.Parallel()
	path := file(t)
	owner := start(t, "serve", path, "TZ=Pacific/Kiritimati")
	if got := owner.ask(t, "hang k"); got != "hanging" {
		t.Fatal(got)
	}
	for _, zone := range []string{"Asia/Tokyo", "America/Los_Angeles", "UTC"} {
		c := start(t, "serve", path, "TZ="+zone)
		if got := c.ask(t, "k"); got != "in progress" {
			t.Errorf("in %s the claim is %s", zone, got)
		}
		c.end(t)
	}
	owner.kill()
}
