package storetest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"github.com/idem-go/idem"
)

// recordFlaws are about what a record says, and which key it belongs to.
var recordFlaws = []flaw{
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
		"A claim without an outcome must expire after lease and retention",
	}},
	{"a lease is rounded up to whole seconds", func(m *memory) idem.Store {
		return leases{m, func(d time.Duration) time.Duration { return (d + time.Second - 1).Truncate(time.Second) }}
	}, []string{
		"B13 a lease must last as long as was asked for",
		"B13 a lease below a millisecond must not be rounded to zero, nor to a second",
	}},
	{"a lease is taken for another unit", func(m *memory) idem.Store {
		return leases{m, func(d time.Duration) time.Duration { return d / 1000 }}
	}, []string{
		"A claim of an absent key must insert a processing record",
		"B13 a lease must last as long as was asked for",
		"A renewal must set the lease's end and nothing else",
		"A closure that takes longer than its lease must keep the key by renewal",
		"B07 a renewal that was carried out but not answered must not end the closure",
	}},
	{"the rest of a lease is never less than a second", func(m *memory) idem.Store { return neverOver{m} }, []string{
		"A claim without Replace must change nothing if the key has a record",
		"B01 a dead owner must block its key for the lease and not for the retention",
		"A dead owner's key must be refused when its outcome is to be looked into",
	}},
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
	}, []string{
		"B58 a duplicate must not prolong a record",
		"A claim without Replace must change nothing if the key has a record",
		"A claim without Replace must change nothing if the key has an expired record",
	}},
	{"what is left of a record is what there was at first", func(m *memory) idem.Store { return unending{m} }, []string{
		"What is left of a record's life must be by the store's clock",
	}},
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
	}, []string{
		"B49 a response must come back byte for byte",
		"A completion must settle the record and keep the rest of it",
	}},
	{"the body is kept as text", func(m *memory) idem.Store {
		m.clone = func(r idem.Response) idem.Response {
			r.Body = bytes.ToValidUTF8(r.Body, nil)
			return r
		}
		return m
	}, []string{"B49 a response must come back byte for byte"}},
	{"the body must not have a NUL", func(m *memory) idem.Store { return refusesNUL{m} }, []string{
		"B49 a response must come back byte for byte",
		"B47 payloads and values with a NUL must be replayed",
	}},
	{"every response has a codec", func(m *memory) idem.Store {
		m.clone = func(r idem.Response) idem.Response {
			r.Codec = cmp.Or(r.Codec, "json")
			return r
		}
		return m
	}, []string{"B83 an answer that is not kept must not be computed again"}},
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
	{"retention is cut to whole seconds", func(m *memory) idem.Store {
		m.expiry = func(_ *entry, completed time.Time, retention time.Duration) time.Time {
			return completed.Add(retention.Truncate(time.Second))
		}
		return m
	}, []string{"B113 a record must expire when its retention is over, not before and not never"}},
	{"a retention of nothing is for ever", func(m *memory) idem.Store {
		m.expiry = func(_ *entry, completed time.Time, retention time.Duration) time.Time {
			if retention < time.Millisecond {
				retention = year
			}
			return completed.Add(retention)
		}
		return m
	}, []string{"B13 a retention below a millisecond must not be for ever"}},
	{"the codec's version is not kept", func(m *memory) idem.Store {
		m.clone = func(r idem.Response) idem.Response {
			r.CodecVersion = min(r.CodecVersion, 1)
			return r
		}
		return m
	}, []string{"B77 status, codec and version must come back"}},
	{"an error's code is not kept", func(m *memory) idem.Store {
		m.clone = func(r idem.Response) idem.Response {
			if r.Error != nil {
				r.Error = &idem.ErrorValue{Message: r.Error.Message}
			}
			return r
		}
		return m
	}, []string{
		"A recorded error must come back, and no error as none",
		"B17 a final failure must be replayed with its value, status and error",
	}},
	{"some characters of a key do not count", func(m *memory) idem.Store {
		clean := strings.NewReplacer("{", "", "}", "", "*", "", "%", "")
		m.identity = func(k idem.Key) any {
			return idem.Key{User: clean.Replace(k.User), Scope: clean.Replace(k.Scope), Key: clean.Replace(k.Key)}
		}
		return m
	}, []string{"B99 no characters of a key must have a meaning"}},
}
