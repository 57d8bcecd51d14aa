package storetests_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
)

// randomRunes returns n characters that do not compress.
func randomRunes(n int, low, high rune) string {
	var b strings.Builder
	for range n {
		b.WriteRune(low + rand.N(high-low+1))
	}
	return b.String()
}

func TestB51LongKeys(t *testing.T) {
	t.Parallel()
	store := pg.New(open(t))
	checkLength(t, store, idem.Key{User: "u", Scope: "s", Key: randomRunes(1_000_000, '!', '~')}, false)
	limits := map[string]int{"user": idem.MaxUserLength, "scope": idem.MaxScopeLength, "key": idem.MaxKeyLength}
	texts := map[string]func(int) string{
		"random":      func(n int) string { return randomRunes(n, '!', '~') },
		"repeated":    func(n int) string { return strings.Repeat("a", n) },
		"four bytes":  func(n int) string { return randomRunes(n, 0x20000, 0x2a6df) },
		"three bytes": func(n int) string { return randomRunes(n, 0x4e00, 0x9fff) },
	}
	for name, text := range texts {
		for part, limit := range limits {
			for _, n := range []int{limit, limit + 1, 2_000, 2_700, 8_000, 100_000} {
				key := idem.Key{User: "u", Scope: "s", Key: fmt.Sprintf("%s %s %d", name, part, n)}
				long := text(n)
				switch part {
				case "user":
					key.User = long
				case "scope":
					key.Scope = long
				default:
					key.Key = long
				}
				checkLength(t, store, key, len([]rune(long)) <= limit)
			}
		}
		for _, over := range []int{0, 1} {
			key := idem.Key{User: text(255), Scope: text(120), Key: text(255 + over)}
			checkLength(t, store, key, len([]rune(key.Key)) <= 255)
		}
	}
}

// checkLength calls twice with a key that is or is not within the limits.
func checkLength(t *testing.T, store idem.Store, key idem.Key, valid bool) {
	t.Helper()
	var n runs
	for i := range 2 {
		res, err := n.do(t.Context(), store, key, "p")
		switch {
		case !valid:
			wantErr(t, err, idem.ErrInvalidKey)
		case err != nil || res.Replayed != (i == 1):
			t.Errorf("%d, %d and %d bytes: %v, replayed %v", len(key.User), len(key.Scope), len(key.Key), err, res.Replayed)
		}
	}
	if !valid {
		n.want(t, 0)
	}
}
