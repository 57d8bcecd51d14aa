package idem

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/idem-go/idem/internal/canon"
)

// Versions of the payload hash. A record is compared under the version that it
// was stored with; see docs/payload_hash.md.
const (
	hashSHA256 = 1
	hashHMAC   = 2
)

// PayloadHash returns the hash that [Do] compares payloads by: 64 lower-case
// hex digits. It returns [ErrInvalidPayload] for a payload that cannot be
// hashed. Of the options only [WithHashKey] counts.
//
// A []byte is hashed as it is. Everything else, [json.RawMessage] included, is
// hashed over canonical JSON: key order, spaces, escapes and the way a number
// is written do not matter, list order and every digit do. What encoding/json
// does not see is not compared. See docs/payload_hash.md for a table of pairs.
//
// [json.RawMessage]: https://pkg.go.dev/encoding/json#RawMessage
func PayloadHash(payload any, opts ...Option) (string, error) {
	var cfg config
	if err := cfg.set(opts); err != nil {
		return "", err
	}
	p, err := hashPayload(payload, cfg.hashKeys)
	return p.hash.Sum, err
}

// payload is a hashed payload. It keeps what was hashed, so that it can be
// compared with records that another version of the algorithm hashed.
type payload struct {
	hash  Hash
	input []byte
	keys  [][]byte
}

func hashPayload(v any, keys [][]byte) (payload, error) {
	p := payload{keys: keys}
	// The prefixes keep raw bytes and JSON from ever hashing alike.
	prefix, text := "idem/1 bytes\n", []byte(nil)
	if raw, ok := v.([]byte); ok {
		text = raw
	} else {
		var err error
		if text, err = canon.JSON(v); err != nil {
			return payload{}, fmt.Errorf("%w: %w", ErrInvalidPayload, err)
		}
		prefix = "idem/1 json\n"
	}
	p.input = append(append(make([]byte, 0, len(prefix)+len(text)), prefix...), text...)
	if len(keys) > 0 {
		p.hash = Hash{hashHMAC, p.hmac(keys[0])}
	} else {
		p.hash = Hash{hashSHA256, p.sha256()}
	}
	return p, nil
}

func (p *payload) sha256() string {
	sum := sha256.Sum256(p.input)
	var digits [2 * sha256.Size]byte
	hex.Encode(digits[:], sum[:])
	return string(digits[:])
}

func (p *payload) hmac(key []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write(p.input)
	return hex.EncodeToString(mac.Sum(nil))
}

// matches reports whether a record was made for this payload. It is the only
// place where payloads are compared, and every path that hands out a stored
// answer goes through it. An error means that this process cannot tell: the
// record was hashed by a later release, or under a key and there is none here.
func (p *payload) matches(h Hash) (bool, error) {
	switch {
	case h == p.hash:
		return true, nil
	case h.Version == hashSHA256:
		return h.Sum == p.sha256(), nil
	case h.Version == hashHMAC && len(p.keys) > 0:
		for _, key := range p.keys {
			if h.Sum == p.hmac(key) {
				return true, nil
			}
		}
		return false, nil
	}
	return false, fmt.Errorf("payload hash version %d is not known to this process", h.Version)
}
