package codec

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
)

// Sealed encrypts what another codec writes, with AES-256-GCM and a random
// nonce each time. What it wrote opens only under the same associated data, the
// same codec and the same version: bytes that were changed, or moved to another
// record, are an error.
//
// Sealed hides values, not their length. It is not to be used for more than 2³²
// values per key, the limit for random nonces (NIST SP 800-38D, section 8.3).
type Sealed struct {
	inner   Codec
	current string
	keys    map[string]cipher.AEAD
}

var _ Codec = (*Sealed)(nil)

// NewSealed returns a codec that seals what inner writes with the key whose id
// is current, and opens what was sealed with any of keys. The keys are 32 bytes
// long; their ids, of 1 to 255 bytes, are stored in the clear.
//
// To rotate, first give all processes the new key, then make it current, and
// drop the old key once nothing sealed with it is retained.
func NewSealed(inner Codec, current string, keys map[string][]byte) (*Sealed, error) {
	if inner == nil {
		return nil, errors.New("codec: sealing needs a codec")
	}
	s := &Sealed{inner, current, make(map[string]cipher.AEAD, len(keys))}
	for id, key := range keys {
		if len(id) < 1 || len(id) > 255 {
			return nil, fmt.Errorf("codec: key id %q must have 1 to 255 bytes", id)
		}
		if len(key) != 32 {
			return nil, fmt.Errorf("codec: key %q must have 32 bytes, has %d", id, len(key))
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, fmt.Errorf("codec: key %q: %w", id, err)
		}
		if s.keys[id], err = cipher.NewGCMWithRandomNonce(block); err != nil {
			return nil, fmt.Errorf("codec: key %q: %w", id, err)
		}
	}
	if s.keys[current] == nil {
		return nil, fmt.Errorf("codec: no key with the current id %q", current)
	}
	return s, nil
}

// Name returns "sealed+" and the name of the codec inside.
func (s *Sealed) Name() string { return "sealed+" + s.inner.Name() }

// Version returns the version of the codec inside.
func (s *Sealed) Version() int { return s.inner.Version() }

// Encode seals v with the current key. The result is the length of the key's id
// as one byte, the id, a nonce and the ciphertext.
func (s *Sealed) Encode(v any, aad []byte) ([]byte, error) {
	plain, err := s.inner.Encode(v, aad)
	if err != nil {
		return nil, err
	}
	aead := s.keys[s.current]
	header := len(s.current) + 1
	sealed := make([]byte, header, header+len(plain)+aead.Overhead())
	sealed[0] = byte(len(s.current))
	copy(sealed[1:], s.current)
	return aead.Seal(sealed, nil, plain, s.bind(aad, s.Version(), sealed)), nil
}

// Decode opens data and has the codec inside decode it. It returns an error if
// the key is unknown, or if anything differs from what was sealed.
func (s *Sealed) Decode(data []byte, version int, v any, aad []byte) error {
	if len(data) == 0 || len(data) < 1+int(data[0]) {
		return errors.New("codec: sealed value has no complete header")
	}
	header, ciphertext := data[:1+int(data[0])], data[1+int(data[0]):]
	aead := s.keys[string(header[1:])]
	if aead == nil {
		return errors.New("codec: value was sealed with an unknown key")
	}
	plain, err := aead.Open(nil, nil, ciphertext, s.bind(aad, version, header))
	if err != nil {
		return fmt.Errorf("codec: sealed value does not open: %w", err)
	}
	return s.inner.Decode(plain, version, v, aad)
}

// bind returns what is authenticated beside the value. Every part of variable
// length follows its length, so that no two records share it.
func (s *Sealed) bind(aad []byte, version int, header []byte) []byte {
	bound := append([]byte(nil), header...)
	bound = binary.AppendUvarint(bound, uint64(len(s.Name())))
	bound = append(bound, s.Name()...)
	bound = binary.AppendVarint(bound, int64(version))
	return append(bound, aad...)
}
