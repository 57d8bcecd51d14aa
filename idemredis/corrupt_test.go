package idemredis_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/idem-go/idem"
)

// Cases B15 and its kin: what cannot be read does not run, and nothing of it is
// told.
func TestB15ARecordThatCannotBeReadDoesNotRun(t *testing.T) {
	t.Parallel()
	const secret = "5ecret"
	for name, change := range map[string][]any{
		"an unknown state":         {"HSET", "state", secret},
		"no state":                 {"HDEL", "state"},
		"no hash":                  {"HDEL", "hash"},
		"a hash version":           {"HSET", "hash_version", secret},
		"no end":                   {"HDEL", "expires"},
		"an end":                   {"HSET", "expires", secret},
		"an endless end":           {"HSET", "expires", "inf"},
		"no token":                 {"HDEL", "token"},
		"a token":                  {"HSET", "token", secret},
		"the zero token":           {"HSET", "token", idem.ID{}.String()},
		"an execution":             {"HSET", "execution", secret},
		"attempt zero":             {"HSET", "attempt", 0},
		"reclaimed":                {"HSET", "reclaimed", secret},
		"no time of completion":    {"HDEL", "completed"},
		"a status":                 {"HSET", "status", secret},
		"a codec without a body":   {"HDEL", "body"},
		"a body without a codec":   {"HDEL", "codec"},
		"an error without a code":  {"HSET", "error_message", secret},
		"a field of another world": {"HSET", secret, secret},
		"a string":                 {"SET", secret},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, c := open(t), client(t)
			record := recordKey(t, s, key)
			if _, err := idem.Do(t.Context(), s, key, "payload", returns("done")); err != nil {
				t.Fatal(err)
			}
			do(t, c, append([]any{change[0], record}, change[1:]...)...)
			_, err := idem.Do(t.Context(), s, key, "payload", mustNotRun(t))
			if !errors.Is(err, idem.ErrCorruptRecord) || strings.Contains(err.Error(), secret) {
				t.Errorf("Do: got error %v", err)
			}
			if _, _, err := s.Lookup(t.Context(), key); !errors.Is(err, idem.ErrCorruptRecord) {
				t.Errorf("Lookup: got error %v", err)
			}
		})
	}
}

func TestATruncatedValueIsADecodeError(t *testing.T) {
	t.Parallel()
	s, c := open(t), client(t)
	if _, err := idem.Do(t.Context(), s, key, "payload", returns("done")); err != nil {
		t.Fatal(err)
	}
	do(t, c, "HSET", recordKey(t, s, key), "body", `"do`)
	_, err := idem.Do(t.Context(), s, key, "payload", mustNotRun(t))
	if !errors.As(err, new(*idem.DecodeError)) {
		t.Errorf("got error %v", err)
	}
}
