package canon_test

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/canon"
)

// Payloads of which each differs from each in a deep id at least, and each from
// a copy of it that was changed in one place, have different hashes. However
// one of them is written, its hash is the same.
func TestB67DifferentPayloadsHaveDifferentHashes(t *testing.T) {
	t.Parallel()
	n := 10_000
	if os.Getenv("IDEM_TEST_LARGE") != "" {
		n = 10_000_000
	}
	workers := runtime.GOMAXPROCS(0)
	seen := make([]uint64, n) // the first quarter of each hash: no two of 10 million are alike by chance
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(3, uint64(worker)))
			for i := worker; i < n && !t.Failed(); i += workers {
				rest := canon.RandomValue(r, 5)
				doc := map[string]any{"order": []any{map[string]any{"id": canon.Integer(int64(i)), "": rest}}}
				one, changed := canon.Write(r, doc), canon.Write(r, canon.Change(r, doc))
				a := payloadHash(t, one)
				if i/workers%4 == 0 {
					if other := canon.Write(r, doc); a != payloadHash(t, other) {
						t.Errorf("two ways to write one payload have different hashes:\n%s\n%s", one, other)
					}
				}
				if a == payloadHash(t, changed) {
					t.Errorf("two payloads have one hash:\n%s\n%s", one, changed)
				}
				seen[i] = binary.BigEndian.Uint64(a[:])
			}
		})
	}
	wg.Wait()
	slices.Sort(seen)
	if different := len(slices.Compact(seen)); different != n {
		t.Errorf("%d payloads have %d hashes", n, different)
	}
}

// payloadHash returns the hash that is stored: 256 bits.
func payloadHash(t *testing.T, text string) (sum [32]byte) {
	digits, err := idem.PayloadHash(json.RawMessage(text))
	if bits, decodeErr := hex.DecodeString(digits); err != nil || decodeErr != nil || copy(sum[:], bits) != len(bits) || len(bits) != len(sum) {
		t.Errorf("the hash of %s is %q, %v, %v", text, digits, err, decodeErr)
	}
	return sum
}
