package codec

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func key(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }

func mustSeal(t testing.TB, inner Codec, current string, keys map[string][]byte) *Sealed {
	t.Helper()
	s, err := NewSealed(inner, current, keys)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSealedBringsValuesBackAndHidesThem(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"k", strings.Repeat("k", 255)} {
		s := mustSeal(t, JSON{SchemaVersion: 7}, id, map[string][]byte{id: key(1)})
		if s.Name() != "sealed+json" || s.Version() != 7 {
			t.Errorf("Name, Version = %q, %d", s.Name(), s.Version())
		}
		one, err := s.Encode(newReceipt(), []byte("record"))
		if err != nil {
			t.Fatal(err)
		}
		other, err := s.Encode(newReceipt(), []byte("record"))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(one, other) {
			t.Error("one value sealed twice is the same: the nonce is not random")
		}
		if bytes.Contains(one, []byte("rcpt")) {
			t.Error("the value is readable")
		}
		var got receipt
		if err := s.Decode(one, 7, &got, []byte("record")); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(newReceipt(), got, cmp.AllowUnexported(receipt{})); diff != "" {
			t.Errorf("mismatch (-want +got):\n%s", diff)
		}
	}
}

func TestSealedOpensNothingThatWasTamperedWith(t *testing.T) {
	t.Parallel()
	s := mustSeal(t, JSON{}, "new", map[string][]byte{"new": key(1), "old": key(2), "ne2": key(1)})
	data, err := s.Encode("value", []byte("record"))
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, s *Sealed, data []byte, version int, aad string) {
		t.Helper()
		var got string
		if err := s.Decode(data, version, &got, []byte(aad)); err == nil {
			t.Errorf("%s: opened", what)
		}
		if got != "" {
			t.Errorf("%s: revealed %q", what, got)
		}
	}
	for i := range data {
		changed := bytes.Clone(data)
		changed[i] ^= 1
		refused("a bit changed", s, changed, 1, "record")
		refused("truncated", s, data[:i], 1, "record")
	}
	refused("extended", s, append(bytes.Clone(data), 0), 1, "record")
	refused("moved to another record", s, data, 1, "recorD")
	refused("moved to a record without a name", s, data, 1, "")
	refused("another key id for the same key", s, bytes.Replace(data, []byte("new"), []byte("ne2"), 1), 1, "record")
	refused("another key under the same id", mustSeal(t, JSON{}, "new", map[string][]byte{"new": key(3)}), data, 1, "record")
	refused("a dropped key", mustSeal(t, JSON{}, "old", map[string][]byte{"old": key(2)}), data, 1, "record")
	same := func(_ int, data []byte) ([]byte, error) { return data, nil }
	two := mustSeal(t, JSON{2, same}, "new", map[string][]byte{"new": key(1)})
	refused("another version", two, data, 2, "record")
	refused("another codec inside", mustSeal(t, renamed{}, "new", map[string][]byte{"new": key(1)}), data, 1, "record")

	var got string
	if err := two.Decode(data, 1, &got, []byte("record")); err != nil || got != "value" {
		t.Errorf("its own version: %q, %v", got, err)
	}
}

type renamed struct{ JSON }

func (renamed) Name() string { return "renamed" }

func TestSealedKeysRotate(t *testing.T) {
	t.Parallel()
	before := mustSeal(t, JSON{}, "2024", map[string][]byte{"2024": key(1)})
	after := mustSeal(t, JSON{}, "2025", map[string][]byte{"2024": key(1), "2025": key(2)})
	data, err := before.Encode("value", nil)
	if err != nil {
		t.Fatal(err)
	}
	var got string
	if err := after.Decode(data, 1, &got, nil); err != nil || got != "value" {
		t.Errorf("sealed before the rotation: %q, %v", got, err)
	}
	if data, err = after.Encode("value", nil); err != nil {
		t.Fatal(err)
	}
	if err := before.Decode(data, 1, &got, nil); err == nil {
		t.Error("sealed with a key that is not known, and opened")
	}
}

func TestNewSealedRefuses(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("k", 256)
	for _, tt := range []struct {
		name    string
		inner   Codec
		current string
		keys    map[string][]byte
	}{
		{"no codec", nil, "k", map[string][]byte{"k": key(1)}},
		{"no keys", JSON{}, "k", nil},
		{"an unknown current key", JSON{}, "x", map[string][]byte{"k": key(1)}},
		{"a key of 16 bytes", JSON{}, "k", map[string][]byte{"k": key(1)[:16]}},
		{"an empty id", JSON{}, "", map[string][]byte{"": key(1)}},
		{"an id of 256 bytes", JSON{}, long, map[string][]byte{long: key(1)}},
	} {
		if _, err := NewSealed(tt.inner, tt.current, tt.keys); err == nil {
			t.Errorf("%s: accepted", tt.name)
		}
	}
}

// The keys belong to the caller, who may wipe them.
func TestSealedKeepsNoReferenceToKeys(t *testing.T) {
	t.Parallel()
	k := key(1)
	s := mustSeal(t, JSON{}, "k", map[string][]byte{"k": k})
	data, err := s.Encode("value", nil)
	if err != nil {
		t.Fatal(err)
	}
	clear(k)
	var got string
	if err := s.Decode(data, 1, &got, nil); err != nil {
		t.Error(err)
	}
}
