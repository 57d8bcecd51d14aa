package idemhttp

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/idem-go/idem"
)

// NewKey returns a random key: a UUID of version 7 (RFC 9562), whose 74 random
// bits come from crypto/rand.
func NewKey() string {
	var id idem.ID
	rand.Read(id[6:]) // never fails
	ms := uint64(time.Now().UnixMilli())
	binary.BigEndian.PutUint16(id[:2], uint16(ms>>32))
	binary.BigEndian.PutUint32(id[2:6], uint32(ms))
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	return id.String()
}

type keyContext struct{}

// contextKey is the value of keyContext: the key of a call, or that it has none.
type contextKey struct {
	key     string
	expires time.Time
	none    bool
}

// WithKey returns a context whose requests [Transport] sends with the key: the
// attempts of one call. It is for callers that retry by hand, and for servers
// that call on, which pass [idem.ExecutionID]. The key is sent as it is; a header
// that the request has itself counts more.
//
// Such a key's life starts with the first request that is sent, as far as the
// Transport knows. [UnsettledError.Context] knows better.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, keyContext{}, contextKey{key: key})
}

// WithoutKey returns a context whose requests [Transport] passes on as they
// are: without a key, and once. It is for servers that do not know keys, and for
// requests that do not end before their answer begins, such as duplex streams.
func WithoutKey(ctx context.Context) context.Context {
	return context.WithValue(ctx, keyContext{}, contextKey{none: true})
}

// keyed reports whether a request is one for a key.
func keyed(req *http.Request) bool {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodConnect:
		return false
	}
	given, _ := req.Context().Value(keyContext{}).(contextKey)
	return !given.none
}

const maxKeyPrefix = 200

// setKey finds or makes the call's key and makes a copy of the request with it.
func (c *call) setKey(req *http.Request) error {
	name := cmp.Or(c.t.KeyHeader, DefaultKeyHeader)
	c.req = req.Clone(c.ctx)
	if c.req.Header == nil {
		c.req.Header = http.Header{}
	}
	given, isGiven := c.ctx.Value(keyContext{}).(contextKey)
	lines := c.req.Header.Values(name)
	switch {
	case len(lines) > 1:
		return fmt.Errorf("%w: %w", idem.ErrInvalidKey, errTwoKeys)
	case len(lines) == 1:
		c.key = lines[0]
		if c.key == given.key {
			c.expires = given.expires
		}
	case isGiven:
		c.key, c.expires = given.key, given.expires
	default:
		prefix := c.t.KeyPrefix
		if len(prefix) > maxKeyPrefix || strings.ContainsFunc(prefix, func(r rune) bool {
			return r < ' ' || r > '~' || r == '"' || r == ',' || r == '\\'
		}) {
			return invalidOption("bad key prefix")
		}
		c.key = prefix + NewKey()
		if c.t.QuoteKeys {
			c.key = `"` + c.key + `"`
		}
	}
	if strings.Trim(c.key, " \t") == "" {
		return fmt.Errorf("%w: %w", idem.ErrInvalidKey, errEmptyKey)
	}
	c.req.Header.Set(name, c.key)
	return nil
}
