package idemredis_test

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
)

// Case B58, the first half: duplicates do not prolong a record.
func TestB58DuplicatesDoNotProlongARecord(t *testing.T) {
	t.Parallel()
	retention := time.Duration(size(1500, 10_000)) * time.Millisecond
	s, c := open(t), client(t)
	name := recordKey(t, s, key)
	if _, err := idem.Do(t.Context(), s, key, "payload", returns("done"), idem.WithRetention(retention)); err != nil {
		t.Fatal(err)
	}
	completed := time.Now()
	for last := retention + time.Millisecond; ; { // it is rounded up
		ttl, err := c.PTTL(t.Context(), name).Result()
		if err != nil {
			t.Fatal(err)
		}
		if ttl == -2 || ttl < retention/4 {
			break
		}
		if ttl > last {
			t.Fatalf("the time to live grew from %v to %v", last, ttl)
		}
		last = ttl
		if _, err := idem.Do(t.Context(), s, key, "payload", mustNotRunUnless(t, completed, retention)); err != nil {
			t.Fatal(err)
		}
		<-time.After(retention / 10)
	}
	for { // without duplicates, which would begin a new life
		if n, err := c.Exists(t.Context(), name).Result(); err != nil || n == 0 {
			break
		}
		<-time.After(5 * time.Millisecond)
	}
	if lasted := time.Since(completed); lasted < retention-20*time.Millisecond {
		t.Errorf("the record was kept for %v, want %v", lasted, retention)
	}
}

// mustNotRunUnless returns a closure that may run once a record's time is over.
func mustNotRunUnless(t *testing.T, completed time.Time, retention time.Duration) closure {
	if time.Since(completed) > retention*9/10 {
		return returns("done")
	}
	return mustNotRun(t)
}

// Case B58, the second half.
func TestB58OrphansAreReclaimedAndGetATimeToLive(t *testing.T) {
	t.Parallel()
	old := strings.Repeat("1", 13) // 1970
	future := "9000000000000000"   // 2255
	for name, orphan := range map[string]struct {
		expires   string
		attempt   int
		reclaimed bool
	}{
		"expired long ago":          {old, 1, false},
		"with a lease that is over": {future, 4, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, c := open(t), client(t)
			hash, err := idem.PayloadHash("payload")
			if err != nil {
				t.Fatal(err)
			}
			do(t, c, "SET", recordKey(t, s, key),
				fmt.Sprintf("1 %s %s processing %s 3 %s 0 1 %s ", orphan.expires, old, digits(1), digits(2), hash))
			res, err := idem.Do(t.Context(), s, key, "payload", returns("done"))
			if err != nil || res.Replayed || res.Attempt != orphan.attempt {
				t.Errorf("got %+v, %v, want a run, attempt %d", res, err, orphan.attempt)
			}
			if reclaimed := res.ExecutionID == id(2).String(); reclaimed != orphan.reclaimed {
				t.Errorf("reclaimed: %v, want %v", reclaimed, orphan.reclaimed)
			}
			if ttl := c.PTTL(t.Context(), recordKey(t, s, key)).Val(); ttl <= 0 || ttl > idem.DefaultRetention+time.Millisecond {
				t.Errorf("the time to live is %v", ttl)
			}
		})
	}
}

func TestADuplicateGivesBackATimeToLiveThatWasTakenAway(t *testing.T) {
	t.Parallel()
	s, c := open(t), client(t)
	name := recordKey(t, s, key)
	if _, err := idem.Do(t.Context(), s, key, "payload", returns("done"), idem.WithRetention(time.Hour)); err != nil {
		t.Fatal(err)
	}
	before := c.Get(t.Context(), name).Val()
	do(t, c, "PERSIST", name)
	if _, err := idem.Do(t.Context(), s, key, "payload", mustNotRun(t)); err != nil {
		t.Fatal(err)
	}
	if ttl := c.PTTL(t.Context(), name).Val(); ttl <= 59*time.Minute || ttl > time.Hour+time.Millisecond { // rounded up
		t.Errorf("the time to live is %v", ttl)
	}
	if diff := cmp.Diff(before, c.Get(t.Context(), name).Val()); diff != "" {
		t.Errorf("the record has changed (-before +after):\n%s", diff)
	}
}

// digits returns id(n) as it stands in a record.
func digits(n byte) string {
	id := id(n)
	return hex.EncodeToString(id[:])
}

// Every transition, read without the store: the words, and the time to live.
func TestWordsAndTimeToLive(t *testing.T) {
	t.Parallel()
	s, c := open(t), client(t)
	name := recordKey(t, s, key)
	first := fmt.Sprintf("1 1h1m0s 1m0s processing %s 1 %s 0 1 00ff ", digits(1), digits(101))
	released := fmt.Sprintf("1 1h0m0s 0s processing - 1 %s 0 1 00ff ", digits(101))
	second := fmt.Sprintf("1 1h1m0s 1m0s processing %s 2 %s 1 1 00ff ", digits(2), digits(102))
	renewed := strings.Replace(second, "1h1m0s 1m0s", "1h2m0s 2m0s", 1)
	completed := strings.Replace(second, "1h1m0s 1m0s processing", "1h0m0s 0s succeeded", 1) + `201 - "json" 1 "done"`

	check := func(step, want string, ttl time.Duration, do func() error) {
		t.Helper()
		before := time.Now()
		if err := do(); err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		got, wanted := strings.Split(c.Get(t.Context(), name).Val(), " "), strings.Split(want, " ")
		for i := 1; i < len(got) && i <= 2; i++ {
			got[i] = since(got[i], before, wanted[i])
		}
		if diff := cmp.Diff(wanted, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step, diff)
		}
		if left := c.PTTL(t.Context(), name).Val(); left > ttl+time.Second || left < ttl-10*time.Second {
			t.Errorf("%s: the time to live is %v, want %v", step, left, ttl)
		}
	}
	check("claim", first, time.Hour+time.Minute, func() error { mustClaim(t, s, claim(1)); return nil })
	check("release", released, time.Hour, func() error {
		return s.Release(t.Context(), idem.ReleaseRequest{Key: key, Token: id(1), Retention: time.Hour})
	})
	req := claim(2)
	req.Reclaimed = true
	check("reclaim", second, time.Hour+time.Minute, func() error {
		seen, _, err := s.Lookup(t.Context(), key)
		req.Replace = &seen
		mustClaim(t, s, req)
		return err
	})
	check("renew", renewed, time.Hour+2*time.Minute, func() error {
		return s.Renew(t.Context(), idem.RenewRequest{Key: key, Token: id(2), Lease: 2 * time.Minute, Retention: time.Hour})
	})
	check("complete", completed, time.Hour, func() error {
		_, err := s.Complete(t.Context(), completion(req))
		return err
	})
}

// since returns the wanted duration if an instant is that long after a time, by
// a clock that may differ by some seconds.
func since(us string, before time.Time, want string) string {
	d, err := time.ParseDuration(want)
	n, err2 := time.ParseDuration(us + "us")
	at := time.UnixMicro(n.Microseconds())
	if off := at.Sub(before.Add(d)); err != nil || err2 != nil || off < -15*time.Second || off > 15*time.Second {
		return us
	}
	return want
}
