// Package rapidtest tests implementations of [idem.Store] with requests that
// chance has chosen, beside the rules of package storetest.
//
//	func TestStore(t *testing.T) {
//		rapidtest.Run(t, func(t testing.TB) idem.Store { return mystore.New() })
//	}
//
// A model of the contract, in the size of one key, says what may be answered.
// It is a module of its own, so that nobody gets what it requires with idem.
package rapidtest

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"pgregory.net/rapid"

	"github.com/idem-go/idem"
)

// Run tests a store, in two sub-tests. It calls open once for each of them.
//
// The first sends requests one by one, and shrinks those that are answered
// wrongly to the few that it takes. The flags of [rapid] apply: -rapid.checks is
// the number of sequences, -rapid.seed repeats one. The second sends requests
// from several goroutines, and asks for an order in which their answers are
// right: a history must be linearizable. One that is not is told and drawn; the
// drawing is kept by go test -artifacts.
//
// open may return a fresh store each time, or the same one, or stores over the
// same records, for every sequence and history has keys of its own. But nobody
// else may purge while Run does. To test several handles on the same records,
// open a storetest.Spread of them.
//
// The store may forget expired records by itself. It uses its own clock, which
// must run as fast as the test's, so that Run takes a second or two in pauses.
func Run(t *testing.T, open func(t testing.TB) idem.Store) {
	t.Helper()
	t.Run("Requests one by one must be answered as the model is", func(t *testing.T) {
		sequences(t, open(t))
	})
	t.Run("Requests at once must be answered as in some order one by one", func(t *testing.T) {
		histories(t, open(t))
	})
}

// sequences compares the store with the model, request by request.
func sequences(t testing.TB, store idem.Store) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		p := &player{
			history: newHistory(t.Context(), store),
			pick:    func(n int, what string) int { return rapid.IntRange(0, n-1).Draw(t, what) },
		}
		if err := p.clear(); err != nil {
			t.Fatal(err)
		}
		model := map[idem.Key][]state{}
		for _, key := range p.keys {
			model[key] = []state{{}}
		}
		p.send = func(o *op) {
			o.alone = true
			// What ends a sequence must be the same words every time: others are
			// another failure for rapid, to which it does not shrink.
			if err := p.request(o); err != nil {
				t.Logf("%v: %v", o, err)
				t.Fatal("a request failed")
			}
			t.Logf("%v", o)
			for _, key := range p.keys {
				if key != o.Key && o.kind != purge {
					continue
				}
				before := model[key]
				model[key] = after(before, o)
				if len(model[key]) == 0 {
					t.Logf("in the model, key %s had %v", key.Key, before)
					t.Fatal("the answer is not the model's")
				}
			}
			if o.short() {
				<-time.After(pause)
			}
		}
		repeated := map[string]func(*rapid.T){}
		for _, a := range actions {
			repeated[a.name] = func(*rapid.T) { a.do(p) }
		}
		t.Repeat(repeated)
	})
}

// after returns the states that a key can have once o has been answered. They
// are several if the answer does not tell whether a record was forgotten.
func after(states []state, o *op) (next []state) {
	for _, s := range states {
		for _, n := range s.step(o) {
			if !slices.Contains(next, n) {
				next = append(next, n)
			}
		}
	}
	return next
}

const (
	rounds  = 40
	bursts  = 4 // in each of which all players begin at once
	players = 4
	turns   = 3 // of each player in a burst
)

// linear is the model for porcupine. It has one key: keys are independent.
var linear = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{state{}} },
	Step: func(s, o, _ any) (next []any) {
		for _, n := range s.(state).step(o.(*op)) {
			next = append(next, n)
		}
		return next
	},
	DescribeOperation: func(o, _ any) string { return o.(*op).String() },
	DescribeState:     func(s any) string { return s.(state).String() },
}).ToModel()

// histories looks for a request that was answered as if it, or another one, had
// not been one step.
func histories(t testing.TB, store idem.Store) {
	t.Helper()
	for range rounds {
		h := newHistory(t.Context(), store)
		for range bursts {
			h.burst(t)
			<-time.After(pause)
		}
		if t.Failed() {
			t.FailNow()
		}
		for _, key := range h.keys {
			h.check(t, key)
		}
	}
}

func (h *history) burst(t testing.TB) {
	var ended sync.WaitGroup
	begin := make(chan struct{})
	for n := range players {
		p := &player{history: h, pick: func(n int, _ string) int { return rand.IntN(n) }}
		p.send = func(o *op) {
			o.player = n
			if err := h.request(o); err != nil {
				t.Errorf("%v: %v", o, err)
				runtime.Goexit()
			}
		}
		ended.Go(func() {
			<-begin
			for range turns {
				actions[p.pick(len(actions), "")].do(p)
			}
		})
	}
	close(begin)
	ended.Wait()
}

// check fails the test if what happened to the key is not linearizable. Purges
// are left out: all that they may do, a store may do by itself.
func (h *history) check(t testing.TB, key idem.Key) {
	t.Helper()
	var (
		ops  []porcupine.Operation
		text strings.Builder
	)
	for _, o := range h.ops {
		if o.Key == key && o.kind != purge {
			ops = append(ops, porcupine.Operation{ClientId: o.player, Input: o, Call: o.called, Return: o.answered})
		}
	}
	result, info := porcupine.CheckOperationsVerbose(linear, ops, 0)
	if result == porcupine.Ok {
		return
	}
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	for _, o := range ops {
		text.WriteString("\n" + o.Input.(*op).String())
	}
	path := t.ArtifactDir() + "/history.html"
	if err := porcupine.VisualizePath(linear, info, path); err != nil {
		t.Log(err)
	}
	t.Fatalf("no order of these requests explains their answers (drawn in %s; see go test -artifacts):%s", path, text.String())
}
