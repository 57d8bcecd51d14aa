package storetest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/idem-go/idem"
)

const (
	long  = time.Hour            // of a lease or a retention that does not end during a check
	short = time.Millisecond     // of one whose end is waited for
	slack = 2 * time.Millisecond // stores may round times to milliseconds
)

// A probe is what a check works with: a store, and the means to use it and to
// say what is wrong. Its methods are safe for concurrent use.
type probe struct {
	t     tb
	ctx   context.Context
	store idem.Store

	id   string // part of every key, so that no other check has the same ones
	keys atomic.Int64

	mu                sync.Mutex
	failed, abandoned bool
}

func newProbe(ctx context.Context, t tb, store idem.Store) *probe {
	return &probe{t: t, ctx: ctx, store: store, id: strings.ToLower(rand.Text()[:12])}
}

// errorf fails the check, which goes on.
func (p *probe) errorf(format string, args ...any) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.abandoned {
		return
	}
	p.failed = true
	p.t.Errorf(format, args...)
}

// fatalf fails the check and ends the goroutine; see together.
func (p *probe) fatalf(format string, args ...any) {
	p.t.Helper()
	p.errorf(format, args...)
	runtime.Goexit()
}

// must ends the check if an operation failed.
func (p *probe) must(err error, operation string) {
	p.t.Helper()
	if err != nil {
		p.fatalf("%s: %v", operation, err)
	}
}

// wantError fails the check if err is not the one that is wanted.
func (p *probe) wantError(err, want error, when string, args ...any) {
	p.t.Helper()
	if !errors.Is(err, want) {
		p.errorf("%s: got error %v, want %v", fmt.Sprintf(when, args...), err, want)
	}
}

// abandon silences a check whose test has ended without it.
func (p *probe) abandon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.abandoned = true
}

func (p *probe) hasFailed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// thorough says that checks take the time that they need for all of their rounds.
var thorough = os.Getenv("IDEM_TEST_LARGE") != ""

// rounds yields the numbers of n rounds of a race. On a slow store it ends sooner:
// after a second, but not before a tenth of them.
func (p *probe) rounds(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		end := time.Now().Add(time.Second)
		for i := range n {
			if !thorough && i >= n/10 && time.Now().After(end) || !yield(i) {
				return
			}
		}
	}
}

// together runs f n times at once, all let go by one barrier, and returns when
// they have ended. If the check has failed by then, it ends here.
func (p *probe) together(n int, f func(i int)) {
	var ready, ended sync.WaitGroup
	barrier := make(chan struct{})
	ready.Add(n)
	for i := range n {
		ended.Go(func() {
			ready.Done()
			<-barrier
			f(i)
		})
	}
	ready.Wait()
	close(barrier)
	ended.Wait()
	if p.hasFailed() {
		runtime.Goexit()
	}
}

// await waits for a channel to be closed.
func (p *probe) await(c <-chan struct{}, what string) {
	p.t.Helper()
	select {
	case <-c:
	case <-p.ctx.Done():
		p.fatalf("waited in vain for %s", what)
	}
}

// until asks again and again until the answer is yes.
func (p *probe) until(what string, yes func() bool) {
	p.t.Helper()
	for pause := time.Millisecond; !yes(); pause = min(2*pause, 20*time.Millisecond) {
		select {
		case <-time.After(pause):
		case <-p.ctx.Done():
			p.fatalf("waited in vain for %s", what)
		}
	}
}

// key returns a key that nobody else uses.
func (p *probe) key() idem.Key {
	return idem.Key{User: "storetest " + p.id, Scope: "check", Key: strconv.FormatInt(p.keys.Add(1), 10)}
}

func newID() (id idem.ID) {
	rand.Read(id[:]) // never fails
	return id
}

// find returns the key's record, if it has one.
func (p *probe) find(key idem.Key) (idem.Record, bool) {
	p.t.Helper()
	rec, found, err := p.store.Lookup(p.ctx, key)
	p.must(err, "Lookup")
	return rec, found
}

// lookup returns the key's record.
func (p *probe) lookup(key idem.Key) idem.Record {
	p.t.Helper()
	rec, found := p.find(key)
	if !found {
		p.fatalf("Lookup finds no record, although there must be one")
	}
	return rec
}

// snapshot is what a key had at some time.
type snapshot struct {
	key   idem.Key
	rec   idem.Record
	found bool
	since time.Time // not later than the record was read
}

func (p *probe) snapshot(key idem.Key) snapshot {
	p.t.Helper()
	s := snapshot{key: key, since: time.Now()}
	s.rec, s.found = p.find(key)
	return s
}

// unchanged fails the check if the key has another record than before. What
// has expired may have been forgotten by the store itself.
func (p *probe) unchanged(before snapshot, after string, args ...any) {
	p.t.Helper()
	rec, found := p.find(before.key)
	if !found && before.rec.Expired() {
		return
	}
	if found != before.found {
		p.errorf("%s: the key's record was there: %v, and is there now: %v", fmt.Sprintf(after, args...), before.found, found)
		return
	}
	p.same(before, rec, after, args...)
}

// diffRecords compares all but what goes by while one looks at it.
func diffRecords(want, got idem.Record) string {
	return cmp.Diff(want, got, cmpopts.IgnoreFields(idem.Record{}, "ExpiresIn"))
}

// same fails the check if rec is another record than it was before. Its lease
// has run on meanwhile.
func (p *probe) same(before snapshot, rec idem.Record, after string, args ...any) {
	p.t.Helper()
	ran := before.rec.LeaseLeft - rec.LeaseLeft
	if ran < -slack || ran > time.Since(before.since)+slack {
		p.errorf("%s: the lease had %v left and has %v, %v later", fmt.Sprintf(after, args...),
			before.rec.LeaseLeft, rec.LeaseLeft, time.Since(before.since))
	}
	was, is := before.rec, rec
	was.LeaseLeft, is.LeaseLeft = 0, 0
	if diff := diffRecords(was, is); diff != "" {
		p.errorf("%s: the record has changed (-before +after):\n%s", fmt.Sprintf(after, args...), diff)
	}
}
