package idem

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of the parts of a [Key], in characters (not bytes). Together the
// three stay below the 2,704 bytes that a Postgres b-tree entry may take,
// whatever characters they are made of.
const (
	MaxUserLength  = 255
	MaxScopeLength = 120
	MaxKeyLength   = 255
)

// NoUser is the [Key.User] of callers that have no users: a cron job, a
// consumer of a trusted queue. No valid user equals it, so a user that was
// forgotten (the empty string, which is refused) is never mistaken for it.
// Stores see it as the empty string.
const NoUser = "\x00nouser"

// Key identifies one logical operation. Two calls mean the same operation if
// and only if all three parts are equal; they are compared part by part and
// never joined, so no choice of characters makes two keys meet.
//
// Each part must be valid UTF-8, not empty, free of control characters and
// within its length. Scope and Key are trimmed of spaces first; User is not,
// since trimming could merge two users.
type Key struct {
	User  string // who asks, or NoUser; taken from authentication, never from the request's own claims
	Scope string // what is asked for: "payments.create", "POST /orders", a consumer's name
	Key   string // the idempotency key: chosen by the client, one for all retries of one attempt
}

// A KeyError tells which part of a [Key] was refused, and why. It matches
// [ErrInvalidKey]. It never holds the part's value.
type KeyError struct {
	Part   string // "user", "scope" or "key"
	Reason string
}

func (e *KeyError) Error() string { return "idem: invalid key: " + e.Part + " " + e.Reason }

// Is reports whether target is [ErrInvalidKey].
func (e *KeyError) Is(target error) bool { return target == ErrInvalidKey }

// Normalize returns the key as stores see it, or a [*KeyError]. [Do] calls it
// and takes keys that are not normalized; it is exported for adapters that want
// to refuse a key early, and for tests of stores.
func (k Key) Normalize() (Key, error) {
	k.Scope, k.Key = strings.Trim(k.Scope, " "), strings.Trim(k.Key, " ")
	for _, p := range [...]struct {
		name, value string
		max         int
	}{
		{"user", k.User, MaxUserLength},
		{"scope", k.Scope, MaxScopeLength},
		{"key", k.Key, MaxKeyLength},
	} {
		if p.name == "user" && p.value == NoUser {
			continue
		}
		if reason := refuse(p.value, p.max); reason != "" {
			return Key{}, &KeyError{Part: p.name, Reason: reason}
		}
	}
	if k.User == NoUser {
		k.User = ""
	}
	return k, nil
}

func refuse(part string, maxLength int) string {
	switch {
	case part == "":
		return "is empty"
	case !utf8.ValidString(part):
		return "is not valid UTF-8"
	case utf8.RuneCountInString(part) > maxLength:
		return fmt.Sprintf("is longer than %d characters", maxLength)
	case strings.ContainsFunc(part, unicode.IsControl):
		return "has a control character"
	}
	return ""
}
