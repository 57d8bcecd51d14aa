package idemredis

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem"
)

var (
	//go:embed scripts/common.lua
	common string
	//go:embed scripts/claim.lua
	claim string
	//go:embed scripts/complete.lua
	complete string
	//go:embed scripts/release.lua
	release string
	//go:embed scripts/renew.lua
	renew string
	//go:embed scripts/lookup.lua
	lookup string
)

var (
	claimScript    = redis.NewScript(common + claim)
	completeScript = redis.NewScript(common + complete)
	releaseScript  = redis.NewScript(common + release)
	renewScript    = redis.NewScript(common + renew)
	lookupScript   = redis.NewScript(common + lookup)
)

// run runs a script on the key's record: by its digest, or, on a server that
// does not know it (yet, or after SCRIPT FLUSH), by its text. A script that
// returns nothing did not find the claim that it was to change.
//
// A client that is not told so (ContextTimeoutEnabled) does not look at ctx while
// it waits for the answer. Then the request has a goroutine of its own, which is
// left behind if ctx ends first; it ends with the client's ReadTimeout.
func (s *Store) run(ctx context.Context, script *redis.Script, key idem.Key, args ...any) (any, error) {
	if err := s.refuse(ctx); err != nil {
		return nil, err
	}
	keys := []string{s.recordKey(key)}
	if _, ends := ctx.Deadline(); ends && s.minds {
		reply, err := script.Run(ctx, s.client, keys, args...).Result()
		return reply, classify(err)
	}
	type answer struct {
		reply any
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		reply, err := script.Run(ctx, s.client, keys, args...).Result()
		answers <- answer{reply, err}
	}()
	select {
	case a := <-answers:
		return a.reply, classify(a.err)
	case <-ctx.Done():
		return nil, fmt.Errorf("idemredis: no answer from the server: %w", ctx.Err())
	}
}

// mindsDeadlines reports whether a client gives a request up at the deadline of
// its context.
func mindsDeadlines(client redis.UniversalClient) bool {
	switch c := client.(type) {
	case *redis.Client:
		return c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return c.Options().ContextTimeoutEnabled
	}
	return false
}

// refuse returns why a method does not even ask the server.
func (s *Store) refuse(ctx context.Context) error {
	if s.err != nil {
		return s.err
	}
	return ctx.Err()
}
