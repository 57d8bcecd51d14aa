package rapidtest

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/memstore"
)

// A flaw is a store broken on purpose, and the half of the suite that must
// find it.
type flaw struct {
	name   string
	store  func(honest) idem.Store
	caught func(testing.TB, idem.Store)
	by     string // part of what is said
}

const (
	byModel     = "the answer is not the model's"
	byPorcupine = "no order of these requests explains their answers"
)

var flaws = []flaw{
	{"a claim is checked first and inserted then", func(h honest) idem.Store { return checkThenInsert{h} }, histories, byPorcupine},
	{"a takeover is checked first and made then", func(h honest) idem.Store { return checkThenTakeOver{h} }, histories, byPorcupine},
	{"a completion is fenced first and made then", func(h honest) idem.Store { return fenceThenComplete{h} }, histories, byPorcupine},
	{"completion is by key only", func(h honest) idem.Store { return completeByKey{h} }, sequences, byModel},
	{"release is by key only", func(h honest) idem.Store { return releaseByKey{h} }, sequences, byModel},
	{"renewal is by key only", func(h honest) idem.Store { return renewByKey{h} }, sequences, byModel},
	{"a takeover does not compare the token", func(h honest) idem.Store {
		return comparing{h, func(seen, is *idem.Record) { seen.Token = is.Token }}
	}, sequences, byModel},
	{"a takeover does not compare the attempt", func(h honest) idem.Store {
		return comparing{h, func(seen, is *idem.Record) { seen.Attempt = is.Attempt }}
	}, sequences, byModel},
	{"a takeover does not compare the state", func(h honest) idem.Store {
		return comparing{h, func(seen, is *idem.Record) { seen.State = is.State }}
	}, sequences, byModel},
	{"a takeover of what is gone inserts", func(h honest) idem.Store { return upsert{h} }, sequences, byModel},
	{"purge takes live claims", func(h honest) idem.Store { return purgesAll{h, new(sync.Map)} }, sequences, byModel},
	{"purge takes live claims, between other requests", func(h honest) idem.Store { return purgesAll{h, new(sync.Map)} }, histories, byPorcupine},
	{"purge leaves what has expired", func(h honest) idem.Store { return purgesNothing{h} }, sequences, byModel},
	{"a completion repeated with its token returns a new time", func(h honest) idem.Store { return forgetsTime{h} }, sequences, byModel},
	{"a lease is as long as the retention", func(h honest) idem.Store { return leasesLong{h} }, sequences, byModel},
	{"look-ups come from a replica that lags", func(h honest) idem.Store { return &lagging{honest: h} }, sequences, byModel},
}

func TestEveryFlawIsCaughtByName(t *testing.T) {
	setFlag(t, "nofailfile", "true")
	setFlag(t, "shrinktime", "0s")
	for _, flaw := range flaws {
		t.Run(flaw.name, func(t *testing.T) {
			// Chance decides whether a flaw shows.
			var found string
			for tries := 0; tries < 10 && found == ""; tries++ {
				found = failures(t, flaw.caught, flaw.store)
			}
			if !strings.Contains(found, flaw.by) {
				t.Errorf("a store passes although %s; what was said: %q", flaw.name, found)
			}
			t.Log(found)
		})
	}
}

func TestFailingSequencesShrink(t *testing.T) {
	setFlag(t, "nofailfile", "true")
	setFlag(t, "steps", "10")
	var found string
	for range 5 { // what memstore forgets by itself may keep a sequence from failing twice
		found = failures(t, sequences, func(h honest) idem.Store { return slowReleaseByKey{releaseByKey{h}} })
		if n := strings.Count(found, "draw action"); n > 0 && n <= 4 {
			return
		}
	}
	t.Errorf("two claims and a release with the second one's token would do, and this is said:\n%s", found)
}

// setFlag sets a flag of rapid for a test, which must not be parallel to others.
func setFlag(t *testing.T, name, value string) {
	f := flag.Lookup("rapid." + name)
	old := f.Value.String()
	if err := f.Value.Set(value); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Value.Set(old) })
}

// failures runs half of the suite, in a time of its own in which pauses take
// none, and returns what it says when it fails.
func failures(t *testing.T, half func(testing.TB, idem.Store), store func(honest) idem.Store) string {
	r := &recorder{}
	synctest.Test(t, func(t *testing.T) {
		r.TB = t
		ended := make(chan struct{})
		go func() { // the half may end its goroutine
			defer close(ended)
			half(r, store(honest{memstore.New()}))
		}()
		<-ended
	})
	if !r.failed {
		return ""
	}
	return r.said.String()
}

// A recorder is a test that only takes notes.
type recorder struct {
	testing.TB
	mu     sync.Mutex
	said   strings.Builder
	failed bool
}

func (r *recorder) Logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(&r.said, format+"\n", args...)
}

func (r *recorder) Errorf(format string, args ...any) {
	r.Logf(format, args...)
	r.Fail()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Logf(format, args...)
	r.FailNow()
}

func (r *recorder) Fail() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

func (r *recorder) FailNow() {
	r.Fail()
	runtime.Goexit()
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

// honest is the store that the flawed ones are made of, which act in more than
// one step.
type honest struct{ *memstore.Store }

func (h honest) find(ctx context.Context, key idem.Key) (idem.Record, bool) {
	rec, found, _ := h.Store.Lookup(ctx, key)
	return rec, found
}

// drop deletes a record, whatever it is.
func (h honest) drop(ctx context.Context, key idem.Key) {
	if rec, _ := h.find(ctx, key); rec.Token != (idem.ID{}) {
		_, _ = h.Store.Complete(ctx, idem.CompleteRequest{Key: key, Token: rec.Token})
		_, _ = h.Store.Purge(ctx, idem.PurgeRequest{Limit: 1000})
	}
}

// dawdle is when others come in between.
func dawdle() { <-time.After(100 * time.Microsecond) }

type checkThenInsert struct{ honest }

func (s checkThenInsert) Claim(ctx context.Context, req idem.ClaimRequest) (idem.Record, error) {
	if _, found := s.find(ctx, req.Key); !found && req.Replace == nil {
		dawdle()
		s.drop(ctx, req.Key)
	}
	return s.honest.Claim(ctx, req)
}

type checkThenTakeOver struct{ honest }

func (s checkThenTakeOver) Claim(ctx context.Context, req idem.ClaimRequest) (idem.Record, error) {
	if rec, found := s.find(ctx, req.Key); found && req.Replace != nil && rec.Token == req.Replace.Token &&
		rec.Attempt == req.Replace.Attempt && rec.State == req.Replace.State && (rec.Expired() || rec.LeaseLeft <= 0) {
		dawdle()
		if now, _ := s.find(ctx, req.Key); now.Token != (idem.ID{}) {
			_ = s.honest.Release(ctx, idem.ReleaseRequest{Key: req.Key, Token: now.Token})
			now, _ = s.find(ctx, req.Key)
			req.Replace = &now
		}
	}
	return s.honest.Claim(ctx, req)
}

type fenceThenComplete struct{ honest }

func (s fenceThenComplete) Complete(ctx context.Context, req idem.CompleteRequest) (time.Time, error) {
	if rec, found := s.find(ctx, req.Key); found && rec.Token == req.Token {
		dawdle()
		rec, _ = s.find(ctx, req.Key)
		req.Token = rec.Token
	}
	return s.honest.Complete(ctx, req)
}

type completeByKey struct{ honest }

func (s completeByKey) Complete(ctx context.Context, req idem.CompleteRequest) (time.Time, error) {
	rec, _ := s.find(ctx, req.Key)
	req.Token = rec.Token
	return s.honest.Complete(ctx, req)
}

type releaseByKey struct{ honest }

func (s releaseByKey) Release(ctx context.Context, req idem.ReleaseRequest) error {
	rec, _ := s.find(ctx, req.Key)
	req.Token = rec.Token
	return s.honest.Release(ctx, req)
}

// slowReleaseByKey takes time for the purge with which each sequence begins, so
// that the time for shrinking passes also where pauses take none.
type slowReleaseByKey struct{ releaseByKey }

func (s slowReleaseByKey) Purge(ctx context.Context, req idem.PurgeRequest) (idem.PurgeResult, error) {
	<-time.After(50 * time.Millisecond)
	return s.releaseByKey.Purge(ctx, req)
}

type renewByKey struct{ honest }

func (s renewByKey) Renew(ctx context.Context, req idem.RenewRequest) error {
	rec, _ := s.find(ctx, req.Key)
	req.Token = rec.Token
	return s.honest.Renew(ctx, req)
}

// comparing is a store for which something of what is seems to be as it was seen.
type comparing struct {
	honest
	equate func(seen, is *idem.Record)
}

func (s comparing) Claim(ctx context.Context, req idem.ClaimRequest) (idem.Record, error) {
	if is, found := s.find(ctx, req.Key); found && req.Replace != nil {
		seen := *req.Replace
		s.equate(&seen, &is)
		req.Replace = &seen
	}
	return s.honest.Claim(ctx, req)
}

type upsert struct{ honest }

func (s upsert) Claim(ctx context.Context, req idem.ClaimRequest) (idem.Record, error) {
	if _, found := s.find(ctx, req.Key); !found {
		req.Replace = nil
	}
	return s.honest.Claim(ctx, req)
}

// purgesAll knows what it purges by what was claimed.
type purgesAll struct {
	honest
	keys *sync.Map
}

func (s purgesAll) Claim(ctx context.Context, req idem.ClaimRequest) (idem.Record, error) {
	s.keys.Store(req.Key, nil)
	return s.honest.Claim(ctx, req)
}

func (s purgesAll) Purge(ctx context.Context, _ idem.PurgeRequest) (idem.PurgeResult, error) {
	s.keys.Range(func(key, _ any) bool {
		s.drop(ctx, key.(idem.Key))
		s.keys.Delete(key)
		return true
	})
	return idem.PurgeResult{}, nil
}

type purgesNothing struct{ honest }

func (purgesNothing) Purge(context.Context, idem.PurgeRequest) (idem.PurgeResult, error) {
	return idem.PurgeResult{}, nil
}

type forgetsTime struct{ honest }

func (s forgetsTime) Complete(ctx context.Context, req idem.CompleteRequest) (time.Time, error) {
	before, _ := s.find(ctx, req.Key)
	completed, err := s.honest.Complete(ctx, req)
	if err == nil && before.State != idem.Processing {
		completed = time.Now()
	}
	return completed, err
}

type leasesLong struct{ honest }

func (s leasesLong) Claim(ctx context.Context, req idem.ClaimRequest) (idem.Record, error) {
	req.Lease = req.Retention
	return s.honest.Claim(ctx, req)
}

// lagging shows a record as it was at the look before.
type lagging struct {
	honest
	seen sync.Map
}

func (s *lagging) Lookup(ctx context.Context, key idem.Key) (idem.Record, bool, error) {
	rec, found := s.find(ctx, key)
	if old, ok := s.seen.Swap(key, rec); ok && found {
		rec = old.(idem.Record)
	}
	return rec, found, nil
}
