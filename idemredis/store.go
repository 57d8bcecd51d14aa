package idemredis

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem"
)

// DefaultPrefix begins the keys of records unless [WithPrefix] says otherwise.
const DefaultPrefix = "idem:"

// An Option is for [New].
type Option func(*Store)

// WithPrefix sets what the keys of records begin with. Stores with different
// prefixes share nothing. A prefix with a brace would decide on the slot of a
// cluster: every method then fails. Default: [DefaultPrefix].
func WithPrefix(prefix string) Option { return func(s *Store) { s.prefix = prefix } }

// Store is an [idem.Store] in Redis. Use [New]. It is safe for concurrent use.
type Store struct {
	client   redis.UniversalClient
	prefix   string
	minds    bool      // the client gives requests up at the deadline of their context
	combiner *combiner // of a client of one server that minds deadlines; else nil
	err      error     // of the options: returned by every method
}

var _ idem.Store = (*Store)(nil)

var (
	errNoClient = errors.New("idemredis: nil client")
	errPrefix   = errors.New("idemredis: a brace in the prefix")
	errRing     = errors.New("idemredis: a Ring moves the keys of a shard that is down, so that their work is done again")
)

// New returns a store over a client of one server, of Sentinel or of a Cluster.
// It starts nothing. A [redis.Ring] is refused by every method of the store: when
// a shard is down, its keys would be claimed anew elsewhere.
//
// Requests are given up when their context ends, whatever the client's own
// settings: at the cost of a goroutine for each, unless ContextTimeoutEnabled is
// set, as it should be. Then a request ends at the deadline of its context, which
// all of [idem.Do] have, and not before it. The client repeats a request whose answer it did not get; that is
// safe, since a claim is recognised by its token.
func New(client redis.UniversalClient, opts ...Option) *Store {
	s := &Store{client: client, prefix: DefaultPrefix}
	for _, o := range opts {
		o(s)
	}
	_, ring := client.(*redis.Ring)
	switch {
	case client == nil:
		s.err = errNoClient
	case ring:
		s.err = errRing
	case strings.ContainsAny(s.prefix, "{}"):
		s.err = errPrefix
	}
	s.minds = s.err == nil && mindsDeadlines(client)
	if c, ok := client.(*redis.Client); ok && s.minds {
		s.combiner = &combiner{client: c}
	}
	s.err = idem.Permanent(s.err)
	return s
}

// RecordKey returns the Redis key of the record of key, to look at it with the
// tools of Redis. The identity cannot be read from it.
func (s *Store) RecordKey(key idem.Key) (string, error) {
	key, err := key.Normalize()
	return s.recordKey(key), err
}

func (s *Store) recordKey(k idem.Key) string {
	parts := make([]byte, 0, 256)
	for _, part := range [...]string{k.User, k.Scope, k.Key} {
		parts = binary.BigEndian.AppendUint64(parts, uint64(len(part)))
		parts = append(parts, part...)
	}
	sum := sha256.Sum256(parts)
	name := make([]byte, 0, 128)
	name = append(append(name, s.prefix...), '{')
	return string(append(base64.RawURLEncoding.AppendEncode(name, sum[:]), '}'))
}

// Claim implements [idem.Store] in one round trip.
func (s *Store) Claim(ctx context.Context, req idem.ClaimRequest) (idem.Record, error) {
	attempt := 1
	if req.Replace != nil {
		attempt = req.Replace.Attempt + 1
	}
	words := appendOrigin(appendClaim(make([]byte, 0, 192), req.Token, attempt), &req)
	args := append(make([]any, 0, 4), microseconds(req.Lease), microseconds(req.Retention), words)
	if seen := req.Replace; seen != nil {
		args = append(args, appendClaim(nil, seen.Token, seen.Attempt))
	}
	reply, err := s.run(ctx, claimScript, req.Key, args...)
	if err != nil {
		return idem.Record{}, err
	}
	return claimed(&req, attempt, reply)
}

// Complete implements [idem.Store] in one round trip.
func (s *Store) Complete(ctx context.Context, req idem.CompleteRequest) (time.Time, error) {
	words := appendResponse(make([]byte, 0, 64+len(req.Response.Body)), &req.Response)
	reply, err := s.run(ctx, completeScript, req.Key, hex.EncodeToString(req.Token[:]), string(req.State), microseconds(req.Retention), words)
	if err != nil {
		return time.Time{}, err
	}
	completed, ok := reply.(int64)
	if !ok {
		return time.Time{}, corrupt("answer")
	}
	return time.UnixMicro(completed), nil
}

// Release implements [idem.Store] in one round trip.
func (s *Store) Release(ctx context.Context, req idem.ReleaseRequest) error {
	_, err := s.run(ctx, releaseScript, req.Key, hex.EncodeToString(req.Token[:]), microseconds(req.Retention))
	return err
}

// Renew implements [idem.Store] in one round trip.
func (s *Store) Renew(ctx context.Context, req idem.RenewRequest) error {
	_, err := s.run(ctx, renewScript, req.Key, hex.EncodeToString(req.Token[:]), microseconds(req.Lease), microseconds(req.Retention))
	return err
}

// Lookup implements [idem.Store] in one round trip.
func (s *Store) Lookup(ctx context.Context, key idem.Key) (idem.Record, bool, error) {
	reply, err := s.run(ctx, lookupScript, key)
	if err != nil {
		return idem.Record{}, false, err
	}
	return found(reply)
}

// Purge implements [idem.Store]. It has nothing to do and asks the server
// nothing: Redis deletes what has expired.
func (s *Store) Purge(ctx context.Context, _ idem.PurgeRequest) (idem.PurgeResult, error) {
	return idem.PurgeResult{}, s.refuse(ctx)
}

// microseconds rounds up: a duration that is not zero must not become zero.
func microseconds(d time.Duration) int64 {
	us := int64(d / time.Microsecond)
	if d%time.Microsecond > 0 {
		us++
	}
	return us
}
