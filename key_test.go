package idem_test

import (
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/memstore"
)

func TestB103InvalidKeysTouchNothing(t *testing.T) {
	t.Parallel()
	ok := "ok"
	for _, tt := range []struct {
		name string
		key  idem.Key
		part string
	}{
		{"no user", idem.Key{Scope: ok, Key: ok}, "user"},
		{"no scope", idem.Key{User: ok, Key: ok}, "scope"},
		{"no key", idem.Key{User: ok, Scope: ok}, "key"},
		{"a scope of spaces", idem.Key{User: ok, Scope: "  ", Key: ok}, "scope"},
		{"a key of spaces", idem.Key{User: ok, Scope: ok, Key: "  "}, "key"},
		{"a NUL", idem.Key{User: ok, Scope: ok, Key: "a\x00b"}, "key"},
		{"invalid UTF-8", idem.Key{User: ok, Scope: ok, Key: "\xff"}, "key"},
		{"a surrogate", idem.Key{User: ok, Scope: ok, Key: "\xed\xa0\x80"}, "key"},
		{"a forged log line", idem.Key{User: ok, Scope: ok, Key: "a\nlevel=error"}, "key"},
		{"a tab", idem.Key{User: ok, Scope: "\tb", Key: ok}, "scope"},
		{"a C1 control", idem.Key{User: ok, Scope: "a\u0085", Key: ok}, "scope"},
		{"a control in the user", idem.Key{User: "a\r\n", Scope: ok, Key: ok}, "user"},
		{"almost NoUser", idem.Key{User: "\x00nouser ", Scope: ok, Key: ok}, "user"},
		{"NoUser as scope", idem.Key{User: ok, Scope: idem.NoUser, Key: ok}, "scope"},
		{"a long user", idem.Key{User: strings.Repeat("é", 256), Scope: ok, Key: ok}, "user"},
		{"a long scope", idem.Key{User: ok, Scope: strings.Repeat("é", 121), Key: ok}, "scope"},
		{"a long key", idem.Key{User: ok, Scope: ok, Key: strings.Repeat("é", 256)}, "key"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, w := newSpy(), returns("v", 200, nil)
			_, err := idem.Do(t.Context(), s, tt.key, payload, w.fn)
			wantErr(t, err, idem.ErrInvalidKey)
			if bad, ok := errors.AsType[*idem.KeyError](err); !ok || bad.Part != tt.part || bad.Reason == "" {
				t.Errorf("err = %#v, want a KeyError of the %s", err, tt.part)
			}
			w.wantRuns(t, 0)
			s.wantCalls(t)
		})
	}
}

func TestKeysAtTheirLimits(t *testing.T) {
	t.Parallel()
	for _, letter := range []string{"a", "é", "😀", "\u200f"} { // a right-to-left mark is no control character
		key := idem.Key{User: strings.Repeat(letter, 255), Scope: strings.Repeat(letter, 120), Key: strings.Repeat(letter, 255)}
		s := newSpy()
		for _, replayed := range []bool{false, true} {
			res, err := idem.Do(t.Context(), s, key, payload, returns("v", 200, nil).fn)
			wantErr(t, err)
			wantResult(t, res, "v", 200, replayed)
		}
	}
	if bytes := 4 * (idem.MaxUserLength + idem.MaxScopeLength + idem.MaxKeyLength); bytes >= 2704 {
		t.Errorf("a key may take %d bytes, more than a b-tree entry of Postgres", bytes)
	}
}

func TestScopeAndKeyAreTrimmedButNotTheUser(t *testing.T) {
	t.Parallel()
	s, w := newSpy(), returns("v", 200, nil)
	for i, key := range []idem.Key{
		{User: "u", Scope: "s", Key: "k"}, {User: "u", Scope: " s ", Key: "  k"}, {User: "u ", Scope: "s", Key: "k"}, {User: " u", Scope: "s", Key: "k"},
	} {
		res, err := idem.Do(t.Context(), s, key, payload, w.fn)
		wantErr(t, err)
		wantResult(t, res, "v", 200, i == 1)
	}
	w.wantRuns(t, 3)
}

func TestB97AnotherUserLearnsNothing(t *testing.T) {
	t.Parallel()
	a := idem.Key{User: "A", Scope: "s", Key: "k"}
	for _, b := range []idem.Key{{User: "B", Scope: "s", Key: "k"}, {User: idem.NoUser, Scope: "s", Key: "k"}, {User: "a", Scope: "s", Key: "k"}} {
		for _, tt := range []struct {
			name   string
			before func(*testing.T, idem.Store)
		}{
			{"A has finished", func(t *testing.T, s idem.Store) {
				_, err := idem.Do(t.Context(), s, a, payload, returns("A's", 200, nil).fn)
				wantErr(t, err)
			}},
			{"A is running", func(t *testing.T, s idem.Store) { abandon(t, s, a, payload) }},
		} {
			for _, p := range []string{payload, otherPayload} {
				t.Run(tt.name+", "+p, func(t *testing.T) {
					t.Parallel()
					s, w := memstore.New(), returns("B's", 200, nil)
					tt.before(t, s)
					replay, err := idem.Peek(t.Context(), s, b, p)
					wantErr(t, err)
					if replay {
						t.Error("Peek sees A's record")
					}
					res, err := idem.Do(t.Context(), s, b, p, w.fn)
					wantErr(t, err)
					wantResult(t, res, "B's", 200, false)
					if res.Attempt != 1 {
						t.Errorf("attempt %d, want 1", res.Attempt)
					}
				})
			}
		}
	}
}

// Any string that Normalize accepts is one that every store can keep, and is
// accepted again.
func FuzzKeyNormalize(f *testing.F) {
	f.Add("u", " s ", "k")
	f.Add(idem.NoUser, "s", "k")
	f.Add("\xff", "a\x00", "\n")
	f.Add(strings.Repeat("😀", 255), "POST /orders/{id}", "\u200f")
	f.Fuzz(func(t *testing.T, user, scope, key string) {
		in := idem.Key{User: user, Scope: scope, Key: key}
		got, err := in.Normalize()
		if err != nil {
			bad, ok := errors.AsType[*idem.KeyError](err)
			if !ok || !errors.Is(err, idem.ErrInvalidKey) || got != (idem.Key{}) {
				t.Fatalf("%+v, %v", got, err)
			}
			for _, part := range []string{user, scope, key} {
				if len(part) > 20 && strings.Contains(bad.Error(), part) {
					t.Errorf("the error quotes the key: %v", bad)
				}
			}
			return
		}
		want := idem.Key{User: user, Scope: strings.Trim(scope, " "), Key: strings.Trim(key, " ")}
		if user == idem.NoUser {
			want.User = ""
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		for _, part := range []string{got.User, got.Scope, got.Key} {
			if part == "" && user != idem.NoUser || !utf8.ValidString(part) || strings.ContainsFunc(part, unicode.IsControl) {
				t.Errorf("part %q was accepted", part)
			}
		}
		if n := len(got.User) + len(got.Scope) + len(got.Key); n > 4*(255+120+255) {
			t.Errorf("a key of %d bytes was accepted", n)
		}
		if user != idem.NoUser {
			again, err := got.Normalize()
			if err != nil || again != got {
				t.Errorf("once more: %+v, %v", again, err)
			}
		}
	})
}
