// Package storetest tests implementations of [idem.Store].
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t testing.TB) idem.Store { return mystore.New() })
//	}
//
// A store that passes [Run] keeps the contract in the documentation of
// [idem.Store]; there is no other place where store behaviour is tested. Each
// sub-test is named after the rule it tests, so a failure reads as the sentence
// that was broken. Numbers such as B35 are those of known faults of idempotency
// libraries, each of which the suite reproduces.
package storetest

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/idem-go/idem"
)

// Run tests a store, in parallel sub-tests. It calls open once for each of them.
//
// open may return a fresh store each time, or the same one, or stores over the
// same records: every sub-test uses keys of its own. Records may be left over
// from earlier tests, but nobody else may purge while Run does. To test several
// handles on the same records, open a [Spread] of them.
//
// The store is used by many goroutines at once, as one over a pool is. It may
// forget expired records by itself; those that it keeps until they are purged
// must be counted when they are.
//
// Stores use their own clocks, so the suite works in real time: it waits for
// what a store says, and takes a few seconds. A race is run again for a second, a
// thousand times at most; with IDEM_TEST_LARGE in the environment as often as that,
// however long it takes.
func Run(t *testing.T, open func(t testing.TB) idem.Store) {
	t.Helper()
	for _, c := range checks {
		t.Run(c.rule, func(t *testing.T) {
			if !c.alone {
				t.Parallel()
			}
			c.examine(t.Context(), t, open(t), patience)
		})
	}
}

// A check tests one rule.
type check struct {
	rule  string // what a store must do, in a sentence
	run   func(*probe)
	alone bool // it purges: no other check may need expired records meanwhile
}

// checks are all of them, those of the store first: what [idem.Do] promises
// rests on them.
var checks = slices.Concat(
	claimChecks, takeoverChecks, fenceChecks, completeChecks, releaseChecks,
	timeChecks, responseChecks, identityChecks, contextChecks, raceChecks, purgeChecks,
	doChecks, doRaceChecks, doManyChecks, doMismatchChecks, doTakeoverChecks, doReplyChecks, doPurgeChecks,
)

// patience is for how long a check may go on. It is never reached by a store
// that works, however slow the machine.
const patience = time.Minute

// tb is what a check needs of a test. The suite's own test records failures
// with another one than *testing.T.
type tb interface {
	Helper()
	Errorf(format string, args ...any)
}

// examine runs the check on a goroutine of its own, so that a method that does
// not return fails the check instead of stopping the suite.
func (c check) examine(ctx context.Context, t tb, store idem.Store, limit time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	p := newProbe(ctx, t, store)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.run(p)
	}()
	select {
	case <-ended:
	case <-time.After(limit + limit/4):
		p.abandon()
		stacks := make([]byte, 1<<20)
		t.Errorf("the check did not end within %v: methods must return soon after ctx ends\n%s",
			limit, stacks[:runtime.Stack(stacks, true)])
	}
}
