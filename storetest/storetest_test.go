package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem"
)

func TestAnHonestStorePasses(t *testing.T) {
	t.Parallel()
	Run(t, func(testing.TB) idem.Store { return newMemory() })
}

func TestStoresOverTheSameRecordsPass(t *testing.T) {
	t.Parallel()
	shared := newMemory()
	Run(t, func(testing.TB) idem.Store { return shared })
}

func TestAStoreThatForgetsExpiredRecordsPasses(t *testing.T) {
	t.Parallel()
	Run(t, func(testing.TB) idem.Store {
		m := newMemory()
		m.forgets = true
		return m
	})
}

func TestEveryFlawIsCaughtByName(t *testing.T) {
	t.Parallel()
	for _, flaw := range flaws {
		t.Run(flaw.name, func(t *testing.T) {
			t.Parallel()
			for _, rule := range flaw.rules {
				i := slices.IndexFunc(checks, func(c check) bool { return c.rule == rule })
				if i < 0 {
					t.Fatalf("there is no rule %q", rule)
				}
				// Chance decides in which round a race shows a flaw.
				var failures recorder
				for tries := 0; tries < 20 && len(failures.messages) == 0; tries++ {
					checks[i].examine(t.Context(), &failures, flaw.store(newMemory()), 20*time.Second)
				}
				if len(failures.messages) == 0 {
					t.Errorf("a store passes %q although %s", rule, flaw.name)
				}
			}
		})
	}
}

func TestEveryRuleCatchesAFlaw(t *testing.T) {
	t.Parallel()
	caught := []string{ // the promises of Do that no store can break alone
		"Do must run the closure once and replay its answer to every later call",
		"B19 an outcome must be recorded although its caller has gone",
		"B41 an owner whose claims are never answered must not run, and the key must free itself",
	}
	for _, flaw := range flaws {
		caught = append(caught, flaw.rules...)
	}
	for _, c := range checks {
		if !slices.Contains(caught, c.rule) {
			t.Errorf("no flaw breaks %q: it may test nothing", c.rule)
		}
	}
}

func TestAStoreThatHangsFailsInsteadOfHanging(t *testing.T) {
	t.Parallel()
	stuck := hanging{newMemory(), make(chan struct{})}
	defer close(stuck.end)
	var failures recorder
	checks[0].examine(t.Context(), &failures, stuck, 100*time.Millisecond)
	if len(failures.messages) != 1 || !strings.Contains(failures.messages[0], "did not end within 100ms") {
		t.Errorf("got failures %q", failures.messages)
	}
}

func TestRulesAreSentencesAndDiffer(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, c := range checks {
		if seen[c.rule] {
			t.Errorf("two checks have the rule %q", c.rule)
		}
		seen[c.rule] = true
		if !strings.Contains(c.rule, " must ") && !strings.Contains(c.rule, "exactly one") {
			t.Errorf("%q does not say what must be", c.rule)
		}
	}
}

// A flaw is caught, or not, whatever the load of the machine.
func init() { thorough = true }

// A recorder is a test that only takes notes.
type recorder struct {
	mu       sync.Mutex
	messages []string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.messages = append(r.messages, fmt.Sprintf(format, args...))
}

// hanging does not care for ctx.
type hanging struct {
	*memory
	end chan struct{}
}

func (s hanging) Lookup(context.Context, idem.Key) (idem.Record, bool, error) {
	<-s.end
	return idem.Record{}, false, nil
}
