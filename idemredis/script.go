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
// The client looks at ctx before it sends a request, but unless it is told so
// (ContextTimeoutEnabled) not while it waits for the answer. So the request has
// a goroutine of its own, which is left behind if ctx ends first; it ends with
// the client's ReadTimeout.
func (s *Store) run(ctx context.Context, script *redis.Script, key idem.Key, args ...any) (any, error) {
	if err := s.refuse(ctx); err != nil {
		return nil, err
	}
	type answer struct {
		reply any
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		reply, err := script.Run(ctx, s.client, []string{s.recordKey(key)}, args...).Result()
		answers <- answer{reply, err}
	}()
	select {
	case a := <-answers:
		return a.reply, classify(a.err)
	case <-ctx.Done():
		return nil, fmt.Errorf("idemredis: no answer from the server: %w", ctx.Err())
	}
}

// refuse returns why a method does not even ask the server.
func (s *Store) refuse(ctx context.Context) error {
	if s.err != nil {
		return s.err
	}
	return ctx.Err()
}
