package storetest

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/idem-go/idem"
)

// A TxSubject is what [RunTx] tests: a store that can do a whole call in one
// transaction, and the means to write in one and to see what was committed.
type TxSubject[Tx any] struct {
	Store idem.TxStore[Tx]

	// Write writes one thing of that name through a closure's transaction.
	Write func(ctx context.Context, tx Tx, name string) error

	// Count returns how many things of that name have been committed. It is
	// called outside of any transaction, also while one is at work.
	Count func(ctx context.Context, name string) (int, error)

	// Within returns a store whose calls are part of a closure's transaction;
	// nil if there is no such store.
	Within func(tx Tx) idem.TxStore[Tx]
}

// RunTx tests what [idem.TxStore], [idem.Transaction] and [idem.DoTx] promise,
// in parallel sub-tests. [Run] tests the rest of the store. It calls open once
// for each of them, under the rules of Run.
//
// If the closures' transaction has methods Commit and Rollback, with or without
// a context, it tests that they are refused.
func RunTx[Tx any](t *testing.T, open func(t testing.TB) TxSubject[Tx]) {
	t.Helper()
	for _, c := range txChecks[Tx]() {
		t.Run(c.rule, func(t *testing.T) {
			t.Parallel()
			c.examine(t.Context(), t, open(t), patience)
		})
	}
}

// A txCheck tests one rule.
type txCheck[Tx any] struct {
	rule string
	run  func(*txProbe[Tx])
}

func txChecks[Tx any]() []txCheck[Tx] {
	return slices.Concat(
		txKeepChecks[Tx](), txUndoChecks[Tx](), txLockChecks[Tx](), txFenceChecks[Tx](), txTakeoverChecks[Tx](), txRivalChecks[Tx](),
		txEndChecks[Tx](), txNestedChecks[Tx](), txErrorChecks[Tx](), txRaceChecks[Tx](),
	)
}

func (c txCheck[Tx]) examine(ctx context.Context, t tb, s TxSubject[Tx], limit time.Duration) {
	t.Helper()
	check{rule: c.rule, run: func(p *probe) {
		c.run(&txProbe[Tx]{probe: p, TxSubject: s, txStore: s.Store})
	}}.examine(ctx, t, s.Store, limit)
}

// A txProbe is a probe of a transactional store.
type txProbe[Tx any] struct {
	*probe
	TxSubject[Tx]
	txStore idem.TxStore[Tx] // what doTx calls
}

type txClosure[Tx any] = func(context.Context, Tx) (string, idem.Status, error)

func (p *txProbe[Tx]) doTx(key idem.Key, payload string, fn txClosure[Tx], opts ...idem.Option) (idem.Result[string], error) {
	return idem.DoTx(p.ctx, p.txStore, key, payload, fn, opts...)
}

// name is what closures write for a key.
func (p *txProbe[Tx]) name(key idem.Key) string { return p.id + " " + key.Key }

// write writes one thing for the key.
func (p *txProbe[Tx]) write(ctx context.Context, tx Tx, key idem.Key) {
	p.t.Helper()
	p.must(p.Write(ctx, tx, p.name(key)), "Write")
}

// ends returns a closure that writes and ends like that.
func (p *txProbe[Tx]) ends(key idem.Key, value string, status idem.Status, err error) txClosure[Tx] {
	return func(ctx context.Context, tx Tx) (string, idem.Status, error) {
		p.write(ctx, tx, key)
		return value, status, err
	}
}

// mustNotRunTx returns a closure that fails the check.
func (p *txProbe[Tx]) mustNotRunTx() txClosure[Tx] {
	return func(context.Context, Tx) (string, idem.Status, error) {
		p.errorf("a closure ran that must not")
		return "", 0, nil
	}
}

// wrote fails the check if another number of writes for the key were committed.
func (p *txProbe[Tx]) wrote(key idem.Key, want int, when string) {
	p.t.Helper()
	n, err := p.Count(p.ctx, p.name(key))
	p.must(err, "Count")
	if n != want {
		p.errorf("%s: %d writes of the key's closures are committed, want %d", when, n, want)
	}
}

// nothing fails the check if anything is left of a call.
func (p *txProbe[Tx]) nothing(key idem.Key, after string) {
	p.t.Helper()
	p.wrote(key, 0, after)
	if rec, found := p.find(key); found {
		p.errorf("%s: the key has the record %+v", after, rec)
	}
}

// runsAnew fails the check if the key does not run as if nothing had happened.
func (p *txProbe[Tx]) runsAnew(key idem.Key, after string) {
	p.t.Helper()
	p.nothing(key, after)
	res, err := p.doTx(key, "another payload", p.ends(key, "anew", 0, nil))
	if err != nil || res.Replayed || res.Attempt != 1 {
		p.errorf("%s: the next call gets %+v, error %v", after, res, err)
	}
	p.wrote(key, 1, "after the next call")
}

// replaysTx fails the check if the key does not replay a value to either kind
// of call.
func (p *txProbe[Tx]) replaysTx(key idem.Key, payload, want string) {
	p.t.Helper()
	p.replays(key, payload, want)
	res, err := p.doTx(key, payload, p.mustNotRunTx())
	if err != nil || !res.Replayed || res.Value != want {
		p.errorf("DoTx got %+v, error %v; want the replay of %q", res, err, want)
	}
}

// begin begins a transaction for the key.
func (p *txProbe[Tx]) begin(key idem.Key) idem.Transaction[Tx] {
	p.t.Helper()
	tx, err := p.Store.BeginTx(p.ctx, idem.BeginRequest{Key: key, Idle: long})
	p.must(err, "BeginTx")
	return tx
}

// isBusy fails the check if err is not what a caller gets while a transaction
// is at work.
func (p *txProbe[Tx]) isBusy(err error, who string) {
	p.t.Helper()
	p.wantError(err, idem.ErrInProgress, "%s", who)
	if d := retryAfter(err); d <= 0 {
		p.errorf("%s: the retry time is %v", who, d)
	}
}

// finished is a request that records a value in the place of what was seen.
func finished(req idem.ClaimRequest, value string) idem.FinishRequest {
	return idem.FinishRequest{Claim: req, State: idem.Succeeded, Response: idem.Response{
		Status: 200, Codec: "json", CodecVersion: 1, Body: strconv.AppendQuote(nil, value),
	}}
}

// retryAfter returns the retry time of an error, zero if it has none.
func retryAfter(err error) time.Duration {
	if e := (*idem.InProgressError)(nil); errors.As(err, &e) {
		return e.RetryAfter
	}
	return 0
}

// bounded returns the probe's context with a limit, for what a store may either
// carry out or keep waiting.
func (p *probe) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(p.ctx, time.Second)
}

// beside runs f beside the check and returns a function that waits for its end.
func (p *txProbe[Tx]) beside(f func()) (wait func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f()
	}()
	return func() {
		p.t.Helper()
		p.await(ended, "a call of the check")
	}
}
