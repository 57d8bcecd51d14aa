package storetest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"unicode/utf8"

	"github.com/idem-go/idem"
)

var identityChecks = []check{
	{rule: "B97 another user's record must not be met", run: func(p *probe) {
		key := p.key()
		keys := []idem.Key{key, key, key, key}
		keys[1].User += "2"
		keys[2].Scope += "2"
		keys[3].Key += "2"
		p.distinct(keys)
	}},
	{rule: "B99 key parts must not meet by being joined", run: func(p *probe) {
		for i, sep := range []string{":", "_", "|", "/", ",", ";", ".", "-", "#", "%3A", "%00", `\`, `","`, "'", "::", "}:{"} {
			p.distinct(prefixed(fmt.Sprint(p.id, i), []idem.Key{
				{User: "a", Scope: "b" + sep + "c", Key: "d"},
				{User: "a" + sep + "b", Scope: "c", Key: "d"},
				{User: "a", Scope: "b", Key: "c" + sep + "d"},
				{User: "a" + sep, Scope: "b" + sep + "c", Key: "d"},
				{User: "a", Scope: sep + "b" + sep + "c", Key: "d"},
				{User: "ab", Scope: "c", Key: "d"},
				{User: "a", Scope: "bc", Key: "d"},
			}))
		}
	}},
	{rule: "B99 no characters of a key must have a meaning", run: func(p *probe) {
		var keys []idem.Key
		for _, s := range []string{
			"{", "}", "{}", "}{", "{a}", "*", "?", "[a]", "[^a]", "a*", "%", "_", "%s", "a%", `\`, `\\`, `\x00`, `\0`,
			"'", "''", `"`, "`", "';--", "$1", ":name", "?1", "@p", "NULL", "null", "nil", "0", "00", "+0", "1e0", "true", "<>", "&amp;", "../..", "//",
		} {
			keys = append(keys, idem.Key{User: s, Scope: s, Key: s}, idem.Key{User: "u", Scope: "s", Key: s})
		}
		p.distinct(prefixed(p.id, keys))
	}},
	{rule: "Keys that differ in case, accents or invisible characters must be different", run: func(p *probe) {
		var keys []idem.Key
		for _, s := range []string{
			"key", "Key", "KEY", "é", "e\u0301", "e", "É", "ß", "ss", "ſ", "s", "ı", "i", "İ", "ﬁ", "fi", "ａ", "a",
			"a\u200f", "\u200fa", "a\u200b", "a\u00ad", "a\ufe0f", "a\u00a0", "a\ufeff", "\u202ea", "😀", "😁", "\U0010ffff", "Å", "A\u030a", "\u212b",
		} {
			keys = append(keys, idem.Key{User: s, Scope: "s", Key: "k"}, idem.Key{User: "u", Scope: s, Key: "k"}, idem.Key{User: "u", Scope: "s", Key: s})
		}
		p.distinct(prefixed(p.id, keys))
	}},
	{rule: "Spaces within a key and around a user must be kept", run: func(p *probe) {
		p.distinct(prefixed(p.id, []idem.Key{
			{User: "u", Scope: "s", Key: "k"},
			{User: "u ", Scope: "s", Key: "k"},
			{User: "u  ", Scope: "s", Key: "k"},
			{User: "u", Scope: "s s", Key: "k"},
			{User: "u", Scope: "s  s", Key: "k"},
			{User: "u", Scope: "s", Key: "k k"},
			{User: "u", Scope: "s", Key: "k  k"},
		}))
		p.distinct([]idem.Key{{User: " " + p.id, Scope: "s", Key: "k"}, {User: p.id, Scope: "s", Key: "k"}})
	}},
	{rule: "The empty user must be a user of its own", run: func(p *probe) {
		var keys []idem.Key
		for _, user := range []string{"", " ", "0", "null", "NULL", "nil", `""`, `\N`, "nouser"} {
			keys = append(keys, idem.Key{User: user, Scope: p.id, Key: "k"})
		}
		p.distinct(keys)
	}},
	{rule: "B51 keys of full length must work whatever their characters", run: func(p *probe) {
		var keys []idem.Key
		for _, fill := range []func(int) string{
			func(n int) string { return strings.Repeat("a", n) },
			func(n int) string { return strings.Repeat("\U0001f511", n) },
			astral,
		} {
			keys = append(keys, shortened(idem.Key{
				User:  p.id + fill(idem.MaxUserLength-len(p.id)),
				Scope: fill(idem.MaxScopeLength),
				Key:   fill(idem.MaxKeyLength),
			})...)
		}
		p.distinct(keys)
	}},
}

// distinct fails the check if one of the keys meets another's record.
func (p *probe) distinct(keys []idem.Key) {
	p.t.Helper()
	owners := make([]idem.ClaimRequest, len(keys))
	for i, key := range keys {
		if normal, err := key.Normalize(); err != nil && key.User != "" || err == nil && normal != key {
			p.fatalf("the suite's own key %q is not a normalized one: %v", key, err)
		}
		owners[i] = request(key)
		rec, err := p.store.Claim(p.ctx, owners[i])
		switch {
		case err != nil:
			p.errorf("claim of %q: %v", key, err)
		case rec.Token != owners[i].Token:
			p.errorf("%q met the record of another key", key)
		}
	}
	for i, owner := range owners {
		_, err := p.store.Complete(p.ctx, completion(owner, idem.Succeeded, answer(fmt.Sprint(i))))
		p.must(err, "Complete")
	}
	for i, key := range keys {
		if got := p.lookup(key).Response.Body; string(got) != fmt.Sprint(i) {
			p.errorf("%q has the answer of key number %s", key, got)
		}
	}
}

// prefixed makes keys nobody else's.
func prefixed(id string, keys []idem.Key) []idem.Key {
	for i := range keys {
		keys[i].User = id + keys[i].User
	}
	return keys
}

// astral returns n different characters of four bytes each, always the same.
func astral(n int) string {
	r := rand.New(rand.NewChaCha8([32]byte{1}))
	var b strings.Builder
	for range n {
		b.WriteRune(0x20000 + r.Int32N(0xa000))
	}
	return b.String()
}

// shortened returns the key, and those that lack the last character of a part.
func shortened(key idem.Key) []idem.Key {
	cut := func(s string) string {
		_, size := utf8.DecodeLastRuneInString(s)
		return s[:len(s)-size]
	}
	user, scope, last := key, key, key
	user.User, scope.Scope, last.Key = cut(key.User), cut(key.Scope), cut(key.Key)
	return []idem.Key{key, user, scope, last}
}
