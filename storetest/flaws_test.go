package storetest

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem"
)

// A flaw is a store broken on purpose, and the rules that must name what is
// broken.
type flaw struct {
	name  string
	store func(*memory) idem.Store
	rules []string
}

var flaws = slices.Concat(ownershipFlaws, recordFlaws)

// ownershipFlaws are about who has a key, and for how long it is kept.
var ownershipFlaws = []flaw{
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
		"A renewal and a takeover at once must not both succeed",
		"A release and a takeover at once must not both succeed",
		"B56 of two callers of one key exactly one must run",
		"B01 of many callers that find a dead owner's claim exactly one must run",
		"Of many callers that find a released key exactly one must run",
		"Of many callers that wait one must run, and all must get its answer",
	}},
	{"keys are told apart by twenty bits of a hash", func(m *memory) idem.Store {
		m.identity = func(k idem.Key) any {
			sum := sha256.Sum256(fmt.Append(nil, k))
			return binary.BigEndian.Uint32(sum[:]) >> 12
		}
		return m
	}, []string{"Of up to ten thousand keys at once each must run once and keep its own answer"}},
	{"completion is by key only", func(m *memory) idem.Store { return completeByKey{m} }, []string{
		"A completion with another claim's token must change nothing",
		"B21 a completion by a late owner that was replaced must change nothing",
		"B21 a late owner that was replaced must get its value with ErrLeaseLost, and its rival's outcome stand",
		"The token of one key must hold no other",
		"A late owner must not overwrite an outcome that was found out",
	}},
	{"release is by key only", func(m *memory) idem.Store { return releaseByKey{m} }, []string{
		"B05 a release with another claim's token must change nothing",
		"B05 a release by a late owner that was replaced must change nothing",
		"B05 a late owner that fails must not free the claim of its rival",
	}},
	{"renewal is by key only", func(m *memory) idem.Store { return renewByKey{m} }, []string{
		"A renewal with another claim's token must change nothing",
		"A renewal by a late owner that was replaced must change nothing",
		"B07 a renewal that finds a rival must end the closure",
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
		"B105 an owner who is later than lease and retention must complete, unless the record is gone",
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
		"B41 of a claim and its own repetition at once neither must be lost",
		"B41 an owner whose takeover was carried out but not answered must recognise it and run",
	}},
	{"a completion does not know its own earlier success", func(m *memory) idem.Store {
		m.holds = func(e *entry, token idem.ID, _ time.Time) bool {
			return e.Token == token && e.State == idem.Processing && token != idem.ID{}
		}
		return m
	}, []string{
		"B41 a completion repeated with its token must return the first one's time and change nothing",
		"B41 a completion that was carried out but not answered must not be an error",
		"B41 of a completion and its own repetition at once both must return the same time",
	}},
	{"the stored hash is not returned", func(m *memory) idem.Store { return hashless{m} }, []string{
		"A claim in vain must return the stored hash, not its own",
		"B33 another payload must be a mismatch, not a second run or a second record",
		"B53 another payload must be a mismatch while the key is in progress",
		"B53 another payload must be a mismatch when the owner has died",
		"B53 another payload must be a mismatch for those who wait",
		"B53 another payload must be a mismatch when its owner was slow and won the race for the key",
		"B53 another payload must be a mismatch when its owner came between a claim and its repetition",
		"B43 a caller that goes away during its takeover must leave the outcome unknown",
	}},
	{"purge takes live claims", func(m *memory) idem.Store {
		m.purgeable = func(e *entry, _ time.Time) bool { return true }
		return m
	}, []string{
		"Purge must never delete a live claim",
		"B111 Purge must not delete a stale claim before it expires",
		"Purge must not delete a released claim before it expires",
		"Purge must not delete an outcome before it expires",
		"Purge must not delete a claim that was renewed",
		"B105 Purge must not delete an outcome that was recorded late",
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
		"A claim with Replace must take over a free record as it was seen",
		"B41 a release that was carried out but not answered must free the key",
		"B43 a caller that goes away during its claim must leave no claim",
	}},
	{"a claim overwrites what is there", func(m *memory) idem.Store { return overwrites{m} }, []string{
		"B56 a second claim in a row must be lost",
		"B56 of many claims of one key at once exactly one must win",
	}},
	{"a stale claim blocks the key for its retention", func(m *memory) idem.Store {
		m.free = func(e *entry, _ idem.Record, now time.Time) bool { return !now.Before(e.ExpiresAt) }
		return m
	}, []string{
		"A claim with Replace must take over a free record as it was seen",
		"B01 a dead owner must block its key for the lease and not for the retention",
	}},
	{"a takeover compares the whole record", func(m *memory) idem.Store {
		m.free = func(e *entry, seen idem.Record, now time.Time) bool {
			return e.Token == seen.Token && e.Attempt == seen.Attempt && e.Hash == seen.Hash && e.over(now)
		}
		return m
	}, []string{"A takeover must compare nothing but state, token and attempt"}},
	{"a takeover leaves the outcome there", func(m *memory) idem.Store {
		m.replace = func(old, claim *entry) { claim.Response, claim.CompletedAt = old.Response, old.CompletedAt }
		return m
	}, []string{"A record that was taken over must not show the former outcome"}},
	{"a takeover does not count", func(m *memory) idem.Store {
		m.replace = func(old, claim *entry) { claim.Attempt = old.Attempt }
		return m
	}, []string{
		"Attempt must grow by one with every claim of the key",
		"B31 a passing failure must free the key at once, for the same execution",
	}},
	{"a takeover keeps the first execution", func(m *memory) idem.Store {
		m.replace = func(old, claim *entry) { claim.ExecutionID = old.ExecutionID }
		return m
	}, []string{
		"B31 a released key must take another payload, as a new execution",
		"B113 a key must be new when its retention is over",
	}},
	{"a takeover that lost does not read who won", func(m *memory) idem.Store { return blind{m} }, []string{
		"A claim that was completed after it was seen stale must not be taken over",
		"B37 a claim whose obstacle was purged must judge by the record that took its place",
	}},
	{"every claim is marked as reclaimed", func(m *memory) idem.Store { return reclaims{m} }, []string{
		"A claim must not be marked as reclaimed unless it asks for it",
	}},
	{"an absent key is an error to Lookup", func(m *memory) idem.Store { return lookups{m, false} }, []string{
		"Lookup of an absent key must find nothing, without an error",
	}},
	{"a look prolongs the lease", func(m *memory) idem.Store { return lookups{m, true} }, []string{
		"Lookup must change nothing",
		"Peek must tell what Do would do, and change nothing",
	}},
	{"a released claim keeps its token", func(m *memory) idem.Store { return keepsToken{m} }, []string{
		"A token that was released must hold nothing",
		"A released record must stay, with its attempt, hash and execution, but without token and lease",
	}},
	{"a renewal prolongs outcomes too", func(m *memory) idem.Store { return renewsAll{m} }, []string{
		"A settled record must be neither released nor renewed, even by its owner",
	}},
	{"a completion inserts what is gone", func(m *memory) idem.Store { return completesAbsent{m} }, []string{
		"An absent key must be neither completed nor released nor renewed",
	}},
	{"purge looks first and deletes then", func(m *memory) idem.Store { return purgesLater{m} }, []string{
		"Purge must not delete an expired record that is taken over at the same time",
	}},
}
