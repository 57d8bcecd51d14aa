package storetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem"
)

// txMemory is an honest transactional store whose steps can be flawed.
type txMemory struct {
	*memory // guards what follows, too

	mu     sync.Mutex
	locks  map[idem.Key]*memoryTx
	things map[string]int // what closures wrote

	flaws map[string]bool
}

func newTxMemory(flaws ...string) *txMemory {
	s := &txMemory{memory: newMemory(), locks: map[idem.Key]*memoryTx{}, things: map[string]int{}, flaws: map[string]bool{}}
	for _, f := range flaws {
		s.flaws[f] = true
	}
	return s
}

func (s *txMemory) subject() TxSubject[*memoryTx] {
	return TxSubject[*memoryTx]{
		Store: s,
		Write: func(ctx context.Context, tx *memoryTx, name string) error { return tx.write(ctx, name) },
		Count: func(_ context.Context, name string) (int, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.things[name], nil
		},
	}
}

// Claim is kept out by a transaction at work.
func (s *txMemory) Claim(ctx context.Context, req idem.ClaimRequest) (idem.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec, found, err := s.memory.Lookup(ctx, req.Key)
	if err != nil {
		return rec, err
	}
	claims := req.Replace == nil && !found || req.Replace != nil && found && s.free(s.entries[req.Key], *req.Replace, s.clock())
	if s.held(req.Key) && claims && rec.Token != req.Token && !s.flaws["claims do not look for the lock"] {
		return req.Busy(), nil
	}
	return s.memory.Claim(ctx, req)
}

// held reports whether a transaction holds the key.
func (s *txMemory) held(key idem.Key) bool {
	tx := s.locks[key]
	return tx != nil && time.Since(tx.used) <= tx.idle
}

func (s *txMemory) BeginTx(ctx context.Context, req idem.BeginRequest) (idem.Transaction[*memoryTx], error) {
	if s.flaws["a begin reads before it locks"] {
		rec, _, err := s.memory.Lookup(ctx, req.Key)
		<-time.After(100 * time.Microsecond)
		tx, err2 := s.begin(ctx, req)
		if tx != nil {
			tx.rec = rec
		}
		return &memoryCall{tx}, errors.Join(err, err2)
	}
	tx, err := s.begin(ctx, req)
	return &memoryCall{tx}, err
}

func (s *txMemory) begin(ctx context.Context, req idem.BeginRequest) (*memoryTx, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec, _, err := s.memory.Lookup(ctx, req.Key)
	if err != nil {
		return nil, err
	}
	tx := &memoryTx{s: s, key: req.Key, rec: rec, idle: req.Idle, used: time.Now(), open: true}
	if s.flaws["the idle time is ignored"] {
		tx.idle = time.Hour
	}
	if !s.held(req.Key) || s.flaws["transactions do not lock"] {
		tx.locked, s.locks[req.Key] = true, tx
	}
	return tx, nil
}

// memoryTx is what closures see of a transaction.
type memoryTx struct {
	s      *txMemory
	key    idem.Key
	rec    idem.Record
	locked bool
	idle   time.Duration
	used   time.Time
	open   bool
	writes []string
}

func (tx *memoryTx) write(ctx context.Context, name string) error {
	tx.s.mu.Lock()
	defer tx.s.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case !tx.open && !tx.s.flaws["a transaction works after its end"], time.Since(tx.used) > tx.idle:
		return errors.New("the transaction has ended")
	case tx.s.flaws["writes are not part of the transaction"], !tx.open:
		tx.s.things[name]++
		return nil
	}
	tx.used, tx.writes = time.Now(), append(tx.writes, name)
	return nil
}

func (tx *memoryTx) Commit() error {
	if tx.s.flaws["a closure can commit"] {
		tx.s.mu.Lock()
		defer tx.s.mu.Unlock()
		tx.apply()
		return nil
	}
	return errors.New("not yours")
}

func (tx *memoryTx) Rollback() error { return errors.New("not yours") }

func (tx *memoryTx) apply() {
	for _, name := range tx.writes {
		tx.s.things[name]++
	}
	tx.writes = nil
}

func (tx *memoryTx) end() {
	tx.open = false
	if tx.s.locks[tx.key] == tx && !(tx.s.flaws["a rollback keeps the lock"] && len(tx.writes) > 0) {
		delete(tx.s.locks, tx.key)
	}
}

// memoryCall is what DoTx sees of it.
type memoryCall struct{ tx *memoryTx }

func (c *memoryCall) Record() (idem.Record, bool) { return c.tx.rec, c.tx.locked }
func (c *memoryCall) Tx() *memoryTx               { return c.tx }

func (c *memoryCall) Rollback(ctx context.Context) {
	c.tx.s.mu.Lock()
	defer c.tx.s.mu.Unlock()
	if c.tx.s.flaws["a rollback commits"] {
		c.tx.apply()
	}
	if c.tx.s.flaws["a rollback needs a ctx"] && ctx.Err() != nil {
		return
	}
	c.tx.end()
}

func (c *memoryCall) Finish(ctx context.Context, req idem.FinishRequest) (time.Time, error) {
	tx, s := c.tx, c.tx.s
	s.mu.Lock()
	defer s.mu.Unlock()
	defer tx.end()
	if time.Since(tx.used) > tx.idle {
		return time.Time{}, errors.New("the transaction has ended")
	}
	claim := req.Claim
	if s.flaws["a finish is not fenced"] {
		delete(s.entries, claim.Key)
		claim.Replace = nil
	}
	rec, err := s.memory.Claim(ctx, claim)
	if err != nil {
		return time.Time{}, err
	}
	if rec.Token != claim.Token {
		if s.flaws["a finish that loses keeps the writes"] {
			tx.apply()
		}
		return time.Time{}, idem.ErrLeaseLost
	}
	completed, err := s.memory.Complete(ctx, idem.CompleteRequest{
		Key: claim.Key, Token: claim.Token, State: req.State, Response: req.Response, Retention: claim.Retention,
	})
	if !req.Undo || s.flaws["undo is ignored"] {
		tx.apply()
	}
	tx.writes = nil
	return completed, err
}

func TestAnHonestTransactionalStorePasses(t *testing.T) {
	t.Parallel()
	RunTx(t, func(testing.TB) TxSubject[*memoryTx] { return newTxMemory().subject() })
}

func TestEveryFlawOfTransactionsIsCaughtByName(t *testing.T) {
	t.Parallel()
	for flaw, rules := range txFlaws {
		t.Run(flaw, func(t *testing.T) {
			t.Parallel()
			for _, rule := range rules {
				all := txChecks[*memoryTx]()
				i := slices.IndexFunc(all, func(c txCheck[*memoryTx]) bool { return c.rule == rule })
				if i < 0 {
					t.Fatalf("there is no rule %q", rule)
				}
				var failures recorder
				all[i].examine(t.Context(), &failures, newTxMemory(flaw).subject(), 5*time.Second)
				if len(failures.messages) == 0 {
					t.Errorf("a store passes %q although %s", rule, flaw)
				}
			}
		})
	}
}

// txFlaws are stores broken on purpose, and the rules that must name what is
// broken.
var txFlaws = map[string][]string{
	"a finish is not fenced": {
		"Finish must be fenced by what was seen: a record that is in the way must stay, and everything be rolled back",
		"DoTx must lose against a rival that finishes first, and return its answer",
		"DoTx must lose against a rival that comes back to life, and find it in progress",
		"DoTx must lose against a rival that releases the key, and leave it released",
		"DoTx must return the failure of a rival that failed first",
		"DoTx that fails must lose against a rival too, and return its answer",
	},
	"a finish that loses keeps the writes": {
		"Finish must be fenced by what was seen: a record that is in the way must stay, and everything be rolled back",
		"DoTx must lose against a rival that finishes first, and return its answer",
	},
	"claims do not look for the lock": {
		"Claim must return Busy while a transaction is at work, and wait for nothing",
		"Callers that meet a transaction at work must get ErrInProgress and a retry time, whatever the payload",
		"Resolve must find a key at which a transaction is at work in progress",
	},
	"transactions do not lock": {
		"BeginTx must not wait for a transaction with the key, but say that it is not locked",
		"Callers that meet a transaction at work must get ErrInProgress and a retry time, whatever the payload",
		"The same key must be refused within itself, whatever its record was",
		"DoTx that waits must get the outcome of the transaction that it met",
		"DoTx that waits must run when the transaction that it met leaves nothing",
		"DoTx that waits in vain must get ErrInProgress",
	},
	"a begin reads before it locks": {"Of many callers of DoTx exactly one must run and commit"},
	"writes are not part of the transaction": {
		"DoTx: the closure's writes and the outcome must become visible together",
		"DoTx: an outcome that is released must leave nothing",
		"DoTx: an outcome that is unknown must leave nothing",
		"DoTx: a panic must go on unchanged and leave nothing",
		"DoTx: a closure that ends its goroutine must leave nothing",
		"Rollback must undo everything, with a ctx that has ended too",
	},
	"undo is ignored": {
		"Finish with Undo must keep the record alone",
		"DoTx: a final failure must be kept and its writes undone",
		"DoTx with StoreAll must keep a panic and undo its writes",
		"DoTx with StoreAll must keep an error without a status and undo its writes",
	},
	"a rollback commits": {
		"DoTx that takes a dead owner's claim over and leaves nothing must leave the claim as it was",
		"DoTx must tell what became of a commit that failed, and never run again",
		"DoTx whose rival finishes must not lose what it does not want to keep",
	},
	"a rollback keeps the lock": {"DoTx: an outcome that is released must leave nothing"},
	"a rollback needs a ctx":    {"Rollback must undo everything, with a ctx that has ended too"},
	"a closure can commit":      {"A closure must not be able to commit or roll back its transaction"},
	"a transaction works after its end": {
		"A transaction must not be usable after its call has ended, whichever way",
	},
	"the idle time is ignored": {"A transaction of no idle time must not be idle without limit"},
}

func TestRulesOfTransactionsDiffer(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, c := range txChecks[*memoryTx]() {
		if seen[c.rule] {
			t.Errorf("two checks have the rule %q", c.rule)
		}
		seen[c.rule] = true
	}
}
