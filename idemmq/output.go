package idemmq

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"github.com/idem-go/idem"
)

// OutputID returns the id of the index-th message that is published while the
// one with the given key is handled: 32 hex digits, always the same for the same
// key and index. A handler may run again after a crash and then publishes again;
// with such an id the consumers of its messages see them as the duplicates they
// are. [KeyFrom] has the key. The index must not depend on anything that may
// differ between runs.
func OutputID(key idem.Key, index int) string {
	if k, err := key.Normalize(); err == nil {
		key = k
	}
	b := []byte("idem/1 output\n")
	for _, part := range [...]string{key.User, key.Scope, key.Key} {
		b = binary.AppendUvarint(b, uint64(len(part)))
		b = append(b, part...)
	}
	sum := sha256.Sum256(binary.AppendVarint(b, int64(index)))
	return hex.EncodeToString(sum[:16])
}

type keyContext struct{}

// KeyFrom returns the key of the message that is being handled. Outside a
// handler of [Handle] or [HandleTx] it is zero.
func KeyFrom(ctx context.Context) idem.Key {
	k, _ := ctx.Value(keyContext{}).(idem.Key)
	return k
}
