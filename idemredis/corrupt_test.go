package idemredis_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem"
)

// Cases B15 and its kin: what cannot be read does not run, and nothing of it is
// told.
func TestB15ARecordThatCannotBeReadDoesNotRun(t *testing.T) {
	t.Parallel()
	const secret = "5ecret"
	const (
		version, expires, completed, state, token, attempt, execution = 0, 1, 2, 3, 4, 5, 6
		reclaimed, hashVersion, hash, status, failure, codec          = 7, 8, 9, 10, 11, 12
		codecVersion, all                                             = 13, 15
	)
	type words = []string
	set := func(i int, to string) func(words) words {
		return func(w words) words { return slices.Replace(w, i, i+1, to) }
	}
	cut := func(from, to int) func(words) words {
		return func(w words) words { return slices.Delete(w, from, to) }
	}
	for name, change := range map[string]func(words) words{
		"another version":            set(version, "2"),
		"an unknown state":           set(state, secret),
		"no state":                   cut(state, state+1),
		"no hash":                    cut(hash, hash+1),
		"an empty hash":              set(hash, ""),
		"a hash version":             set(hashVersion, secret),
		"no end":                     cut(expires, expires+1),
		"an end":                     set(expires, secret),
		"an endless end":             set(expires, strings.Repeat("9", 400)),
		"no token":                   set(token, "-"),
		"a token":                    set(token, secret),
		"the zero token":             set(token, strings.Repeat("0", 32)),
		"an execution":               set(execution, secret),
		"attempt zero":               set(attempt, "0"),
		"reclaimed":                  set(reclaimed, secret),
		"no time of completion":      set(completed, "0"),
		"a status":                   set(status, secret),
		"a codec that is not quoted": set(codec, secret),
		"an empty codec":             set(codec, `""`),
		"a version of no number":     set(codecVersion, secret),
		"a codec without a body":     cut(codecVersion, codecVersion+2),
		"a body without a codec":     set(codec, "-"),
		"an error without a message": set(failure, `"`+secret+`"`),
		"an error that is no text":   set(failure, secret),
		"a claim with an answer":     set(state, "processing"),
		"nothing":                    cut(0, all),
		"a word":                     cut(1, all),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			corrupts(t, secret, func(c *redis.Client, record string) {
				words := strings.SplitN(c.Get(t.Context(), record).Val(), " ", all)
				do(t, c, "SET", record, strings.Join(change(words), " "))
			})
		})
	}
	t.Run("another type", func(t *testing.T) {
		t.Parallel()
		corrupts(t, secret, func(c *redis.Client, record string) {
			do(t, c, "DEL", record)
			do(t, c, "HSET", record, secret, secret)
		})
	})
}

func corrupts(t *testing.T, secret string, change func(c *redis.Client, record string)) {
	s, c := open(t), client(t)
	if _, err := idem.Do(t.Context(), s, key, "payload", returns("done")); err != nil {
		t.Fatal(err)
	}
	change(c, recordKey(t, s, key))
	_, err := idem.Do(t.Context(), s, key, "payload", mustNotRun(t))
	if !errors.Is(err, idem.ErrCorruptRecord) || strings.Contains(err.Error(), secret) {
		t.Errorf("Do: got error %v", err)
	}
	if _, _, err := s.Lookup(t.Context(), key); !errors.Is(err, idem.ErrCorruptRecord) {
		t.Errorf("Lookup: got error %v", err)
	}
}

func TestATruncatedValueIsADecodeError(t *testing.T) {
	t.Parallel()
	s, c := open(t), client(t)
	if _, err := idem.Do(t.Context(), s, key, "payload", returns("done")); err != nil {
		t.Fatal(err)
	}
	record := recordKey(t, s, key)
	do(t, c, "SET", record, strings.TrimSuffix(c.Get(t.Context(), record).Val(), `ne"`))
	_, err := idem.Do(t.Context(), s, key, "payload", mustNotRun(t))
	if !errors.As(err, new(*idem.DecodeError)) {
		t.Errorf("got error %v", err)
	}
}
