package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/idem-go/idem"
)

// flaws are stores broken on purpose, each with the rules that must name what
// is broken.
var flaws = []struct {
	name  string
	store func(*memory) idem.Store
	rules []string
}{
	{"a claim is checked first and inserted then", func(m *memory) idem.Store {
		m.insert = func() {
			m.mu.Unlock()
			<-time.After(100 * time.Microsecond)
			m.mu.Lock()
		}
		return m
	}, []string{
		"B56 of many claims of one key at once exactly one must win",
		"Of many takeovers of one stale claim at once exactly one must win",
		"Of many takeovers of one released claim at once exactly one must win",
		"B56 of many callers of one key exactly one must run",
		"B35 of two callers with different payloads exactly one must run",
	}},
	{"completion is by key only", func(m *memory) idem.Store { return completeByKey{m} }, []string{
		"A completion with another claim's token must change nothing",
		"B21 a completion by a late owner that was replaced must change nothing",
		"B21 a late owner that was replaced must get its value with ErrLeaseLost, and its rival's outcome stand",
	}},
	{"release is by key only", func(m *memory) idem.Store { return releaseByKey{m} }, []string{
		"B05 a release with another claim's token must change nothing",
		"B05 a release by a late owner that was replaced must change nothing",
		"B05 a late owner that fails must not free the claim of its rival",
	}},
	{"renewal is by key only", func(m *memory) idem.Store { return renewByKey{m} }, []string{
		"A renewal with another claim's token must change nothing",
		"A renewal by a late owner that was replaced must change nothing",
	}},
	{"the fence is the time instead of the token", func(m *memory) idem.Store {
		m.holds = func(e *entry, _ idem.ID, now time.Time) bool { return now.Before(e.leaseEnd) }
		return m
	}, []string{
		"A completion with another claim's token must change nothing",
		"An owner whose lease is over but who was not replaced must complete: the fence is the token, not the time",
	}},
	{"the fence is the time as well as the token", func(m *memory) idem.Store {
		m.holds = func(e *entry, token idem.ID, now time.Time) bool { return e.Token == token && now.Before(e.leaseEnd) }
		return m
	}, []string{
		"An owner whose lease is over but who was not replaced must complete: the fence is the token, not the time",
		"An owner whose lease is over but who was not replaced must renew: the fence is the token, not the time",
		"An owner whose lease is over but who was not replaced must release: the fence is the token, not the time",
		"An owner whose lease is over but who was not replaced must record its outcome",
	}},
	{"no token holds what has no token", func(m *memory) idem.Store {
		m.holds = func(e *entry, token idem.ID, _ time.Time) bool { return e.Token == token }
		return m
	}, []string{"No token must hold a released record"}},
	{"a takeover compares the token alone", func(m *memory) idem.Store {
		m.free = func(e *entry, seen idem.Record, _ time.Time) bool { return e.Token == seen.Token }
		return m
	}, []string{
		"A live claim must not be taken over",
		"A settled record must not be taken over before it expires",
		"A claim that was renewed after it was seen stale must not be taken over",
		"A claim that was completed after it was seen stale must not be taken over",
		"A completion and a takeover at once must not both succeed",
	}},
	{"a takeover compares the time alone", func(m *memory) idem.Store {
		m.free = func(e *entry, _ idem.Record, now time.Time) bool { return e.over(now) }
		return m
	}, []string{
		"A claim that a rival has taken over must not be taken over again",
		"A claim that was released after it was seen stale must not be taken over",
	}},
	{"a takeover does not compare the attempt", func(m *memory) idem.Store {
		m.free = func(e *entry, seen idem.Record, now time.Time) bool { return e.Token == seen.Token && e.over(now) }
		return m
	}, []string{"A claim that was claimed and released after it was seen released must not be taken over"}},
	{"a takeover does not compare the state", func(m *memory) idem.Store {
		m.free = func(e *entry, seen idem.Record, now time.Time) bool {
			return e.Token == seen.Token && e.Attempt == seen.Attempt && e.over(now)
		}
		return m
	}, []string{"A claim that was completed after it was seen stale must not be taken over even when it has expired"}},
	{"a takeover of what is gone inserts", func(m *memory) idem.Store { return upsert{m} }, []string{
		"A takeover of a record that is gone must return the zero Record and insert nothing",
		"B37 a takeover of a record that was purged must return the zero Record and insert nothing",
	}},
	{"a claim does not know its own earlier success", func(m *memory) idem.Store { return forgetful{m} }, []string{
		"B41 a claim repeated with its own token must return its own record",
		"B41 a takeover repeated with its own token must return its own record",
		"B41 an owner whose claim was carried out but not answered must recognise it and run",
	}},
	{"a completion does not know its own earlier success", func(m *memory) idem.Store {
		m.holds = func(e *entry, token idem.ID, _ time.Time) bool {
			return e.Token == token && e.State == idem.Processing && token != idem.ID{}
		}
		return m
	}, []string{
		"B41 a completion repeated with its token must return the first one's time and change nothing",
		"B41 a completion that was carried out but not answered must not be an error",
	}},
	{"the stored hash is not returned", func(m *memory) idem.Store { return hashless{m} }, []string{
		"A claim in vain must return the stored hash, not its own",
		"B33 another payload must be a mismatch, not a second run or a second record",
		"B53 another payload must be a mismatch while the key is in progress",
		"B53 another payload must be a mismatch when the owner has died",
		"B53 another payload must be a mismatch for those who wait",
		"B53 another payload must be a mismatch when its owner was slow and won the race for the key",
		"B53 another payload must be a mismatch when its owner came between a claim and its repetition",
	}},
	{"every process uses its own clock", func(m *memory) idem.Store {
		skew := time.Hour
		m.clock = func() time.Time {
			skew = -skew
			return time.Now().Add(skew)
		}
		return m
	}, []string{"All times must come from one clock, whatever clock the caller has"}},
	{"a lease is cut to whole seconds", func(m *memory) idem.Store {
		return leases{m, func(d time.Duration) time.Duration { return d.Truncate(time.Second) }}
	}, []string{
		"B13 a lease must last as long as was asked for",
		"B13 a lease below a millisecond must not be rounded to zero, nor to a second",
	}},
	{"a lease is rounded up to whole seconds", func(m *memory) idem.Store {
		return leases{m, func(d time.Duration) time.Duration { return (d + time.Second - 1).Truncate(time.Second) }}
	}, []string{
		"B13 a lease must last as long as was asked for",
		"B13 a lease below a millisecond must not be rounded to zero, nor to a second",
	}},
	{"a lease is taken for another unit", func(m *memory) idem.Store {
		return leases{m, func(d time.Duration) time.Duration { return d / 1000 }}
	}, []string{"A claim of an absent key must insert a processing record", "B13 a lease must last as long as was asked for"}},
	{"retention counts from the claim", func(m *memory) idem.Store {
		m.expiry = func(e *entry, _ time.Time, retention time.Duration) time.Time { return e.claimed.Add(retention) }
		return m
	}, []string{"B105 retention must count from completion, not from the claim or its lease"}},
	{"retention counts from the end of the lease", func(m *memory) idem.Store {
		m.expiry = func(e *entry, _ time.Time, retention time.Duration) time.Time { return e.leaseEnd.Add(retention) }
		return m
	}, []string{"B105 retention must count from completion, not from the claim or its lease"}},
	{"the life of an outcome is that of its lease", func(m *memory) idem.Store {
		m.expiry = func(e *entry, _ time.Time, _ time.Duration) time.Time { return e.leaseEnd }
		return m
	}, []string{"B105 an outcome that was recorded after its lease must outlive a purge"}},
	{"a duplicate prolongs the record", func(m *memory) idem.Store {
		m.conflict = func(e *entry) { e.ExpiresAt = m.clock().Add(long) }
		return m
	}, []string{"B58 a duplicate must not prolong a record"}},
	{"times are nanoseconds in 64 bits", func(m *memory) idem.Store { return nanoseconds{m} }, []string{
		"B13 a lease of 100 years and a retention of 290 must not overflow",
	}},
	{"no value and an empty value are one", func(m *memory) idem.Store {
		m.clone = func(r idem.Response) idem.Response {
			r.Body = append([]byte(nil), r.Body...)
			return r
		}
		return m
	}, []string{"B49 a response must come back byte for byte", "B83 a response without a value must not come back as one with an empty value"}},
	{"no value is an empty value", func(m *memory) idem.Store {
		m.clone = func(r idem.Response) idem.Response {
			r.Body = append([]byte{}, r.Body...)
			return r
		}
		return m
	}, []string{"B83 a response without a value must not come back as one with an empty value"}},
	{"the body is kept as JSON", func(m *memory) idem.Store {
		m.clone = func(r idem.Response) idem.Response {
			var v any
			if json.Unmarshal(r.Body, &v) == nil {
				r.Body, _ = json.Marshal(v)
			}
			return r
		}
		return m
	}, []string{"B49 a response must come back byte for byte"}},
	{"the body is kept as text", func(m *memory) idem.Store {
		m.clone = func(r idem.Response) idem.Response {
			r.Body = bytes.ToValidUTF8(r.Body, nil)
			return r
		}
		return m
	}, []string{"B49 a response must come back byte for byte"}},
	{"no error and an empty error are one", func(m *memory) idem.Store {
		m.clone = func(r idem.Response) idem.Response {
			if r.Error != nil && *r.Error == (idem.ErrorValue{}) {
				r.Error = nil
			}
			return r
		}
		return m
	}, []string{"A recorded error must come back, and no error as none"}},
	{"the record shares the caller's memory", func(m *memory) idem.Store {
		m.clone = func(r idem.Response) idem.Response { return r }
		return m
	}, []string{"A record must not change with the memory that it was made of, or that was handed out"}},
	{"key parts are joined", func(m *memory) idem.Store {
		m.identity = func(k idem.Key) any { return k.User + ":" + k.Scope + ":" + k.Key }
		return m
	}, []string{"B99 key parts must not meet by being joined"}},
	{"the user is not part of the key", func(m *memory) idem.Store {
		m.identity = func(k idem.Key) any { return k.Scope + "\x00" + k.Key }
		return m
	}, []string{"B97 another user's record must not be met", "B97 two users with one key must not learn of each other"}},
	{"keys are compared without case", func(m *memory) idem.Store {
		m.identity = func(k idem.Key) any { return idem.Key{User: k.User, Scope: k.Scope, Key: strings.ToLower(k.Key)} }
		return m
	}, []string{"Keys that differ in case, accents or invisible characters must be different"}},
	{"users are trimmed", func(m *memory) idem.Store {
		m.identity = func(k idem.Key) any { return idem.Key{User: strings.TrimSpace(k.User), Scope: k.Scope, Key: k.Key} }
		return m
	}, []string{"Spaces within a key and around a user must be kept", "The empty user must be a user of its own"}},
	{"long keys are cut", func(m *memory) idem.Store {
		m.identity = func(k idem.Key) any {
			return idem.Key{User: k.User, Scope: k.Scope, Key: k.Key[:min(len(k.Key), 1000)]}
		}
		return m
	}, []string{"B51 keys of full length must work whatever their characters"}},
	{"purge takes live claims", func(m *memory) idem.Store {
		m.purgeable = func(e *entry, _ time.Time) bool { return true }
		return m
	}, []string{
		"Purge must never delete a live claim",
		"B111 Purge must not delete a stale claim before it expires",
		"Purge must not delete a released claim before it expires",
		"Purge must not delete an outcome before it expires",
	}},
	{"purge takes stale claims", func(m *memory) idem.Store {
		m.purgeable = (*entry).over
		return m
	}, []string{"B111 Purge must not delete a stale claim before it expires", "Purge must not delete a released claim before it expires"}},
	{"purge leaves claims for ever", func(m *memory) idem.Store {
		m.purgeable = func(e *entry, now time.Time) bool { return e.State != idem.Processing && !now.Before(e.ExpiresAt) }
		return m
	}, []string{"B58 Purge must delete expired records, claims and outcomes alike"}},
	{"purge stops at the first record that is not expired", func(m *memory) idem.Store {
		m.scanAll = false
		return m
	}, []string{"Purge must find short-lived records behind long-lived ones"}},
	{"purge has no limit", func(m *memory) idem.Store {
		return purges{m, func(r idem.PurgeRequest) idem.PurgeRequest { return idem.PurgeRequest{Limit: 1 << 30} }, nil}
	}, []string{"B107 Purge must keep to its limit"}},
	{"purge does not count", func(m *memory) idem.Store {
		return purges{m, nil, func(done idem.PurgeResult) idem.PurgeResult { return idem.PurgeResult{} }}
	}, []string{"B107 Purge must keep to its limit", "B111 Overdue must tell for how long the oldest deleted record had been expired"}},
	{"purge counts twice", func(m *memory) idem.Store {
		return purges{m, nil, func(done idem.PurgeResult) idem.PurgeResult { done.Deleted *= 2; return done }}
	}, []string{"Purges at once must delete everything and count each record once"}},
	{"requests go on after their ctx has ended", func(m *memory) idem.Store { return tireless{m} }, []string{
		"B43 a request whose ctx has ended must fail and change nothing",
	}},
	{"release deletes the record", func(m *memory) idem.Store { return deletesOnRelease{m} }, []string{
		"A released record must stay, with its attempt, hash and execution, but without token and lease",
		"Attempt must grow by one with every claim of the key",
	}},
	{"release keeps the lease", func(m *memory) idem.Store { return keepsLease{m} }, []string{
		"A released record must stay, with its attempt, hash and execution, but without token and lease",
		"B31 a passing failure must free the key at once, for the same execution",
	}},
}

// Flawed methods. They act in more than one step, which is a flaw of its own.

type completeByKey struct{ *memory }

func (s completeByKey) Complete(ctx context.Context, req idem.CompleteRequest) (time.Time, error) {
	rec, _, _ := s.Lookup(ctx, req.Key)
	req.Token = rec.Token
	return s.memory.Complete(ctx, req)
}

type releaseByKey struct{ *memory }

func (s releaseByKey) Release(ctx context.Context, req idem.ReleaseRequest) error {
	rec, _, _ := s.Lookup(ctx, req.Key)
	req.Token = rec.Token
	return s.memory.Release(ctx, req)
}

type renewByKey struct{ *memory }

func (s renewByKey) Renew(ctx context.Context, req idem.RenewRequest) error {
	rec, _, _ := s.Lookup(ctx, req.Key)
	req.Token = rec.Token
	return s.memory.Renew(ctx, req)
}

type upsert struct{ *memory }

func (s upsert) Claim(ctx context.Context, req idem.ClaimRequest) (idem.Record, error) {
	if _, found, _ := s.Lookup(ctx, req.Key); !found {
		req.Replace = nil
	}
	return s.memory.Claim(ctx, req)
}

type forgetful struct{ *memory }

func (s forgetful) Claim(ctx context.Context, req idem.ClaimRequest) (idem.Record, error) {
	before, _, _ := s.Lookup(ctx, req.Key)
	rec, err := s.memory.Claim(ctx, req)
	if before.Token == req.Token {
		rec.Token = idem.ID{1} // somebody's
	}
	return rec, err
}

type hashless struct{ *memory }

func (s hashless) Claim(ctx context.Context, req idem.ClaimRequest) (idem.Record, error) {
	rec, err := s.memory.Claim(ctx, req)
	rec.Hash = req.Hash
	return rec, err
}

type leases struct {
	*memory
	round func(time.Duration) time.Duration
}

func (s leases) Claim(ctx context.Context, req idem.ClaimRequest) (idem.Record, error) {
	req.Lease = s.round(req.Lease)
	return s.memory.Claim(ctx, req)
}

func (s leases) Renew(ctx context.Context, req idem.RenewRequest) error {
	req.Lease = s.round(req.Lease)
	return s.memory.Renew(ctx, req)
}

type nanoseconds struct{ *memory }

func (s nanoseconds) Lookup(ctx context.Context, key idem.Key) (idem.Record, bool, error) {
	rec, found, err := s.memory.Lookup(ctx, key)
	rec.ExpiresAt = time.Unix(0, rec.ExpiresAt.UnixNano())
	return rec, found, err
}

type purges struct {
	*memory
	request func(idem.PurgeRequest) idem.PurgeRequest
	result  func(idem.PurgeResult) idem.PurgeResult
}

func (s purges) Purge(ctx context.Context, req idem.PurgeRequest) (idem.PurgeResult, error) {
	if s.request != nil {
		req = s.request(req)
	}
	done, err := s.memory.Purge(ctx, req)
	if s.result != nil {
		done = s.result(done)
	}
	return done, err
}

type tireless struct{ *memory }

func (s tireless) Claim(ctx context.Context, req idem.ClaimRequest) (idem.Record, error) {
	return s.memory.Claim(context.WithoutCancel(ctx), req)
}

type deletesOnRelease struct{ *memory }

func (s deletesOnRelease) Release(ctx context.Context, req idem.ReleaseRequest) error {
	err := s.memory.Release(ctx, req)
	if err == nil {
		s.mu.Lock()
		delete(s.entries, s.identity(req.Key))
		s.mu.Unlock()
	}
	return err
}

type keepsLease struct{ *memory }

func (s keepsLease) Release(ctx context.Context, req idem.ReleaseRequest) error {
	err := s.memory.Release(ctx, req)
	if err == nil {
		s.mu.Lock()
		s.at(req.Key, s.clock()).leaseEnd = s.clock().Add(long)
		s.mu.Unlock()
	}
	return err
}
