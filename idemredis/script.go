package idemredis

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem"
)

var (
	//go:embed scripts/record.lua
	record string
	//go:embed scripts/replay.lua
	replay string
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
	//go:embed scripts/held.lua
	held string
	//go:embed scripts/write.lua
	write string
)

var (
	claimScript    = redis.NewScript(record + replay + common + claim + write)
	completeScript = redis.NewScript(record + common + held + complete + write)
	releaseScript  = redis.NewScript(record + common + held + release + write)
	renewScript    = redis.NewScript(record + common + held + renew + write)
	lookupScript   = redis.NewScript(record + common + lookup)
)

// A request is a script to run on the record of a key.
type request struct {
	script *redis.Script
	keys   []string
	args   []any

	// Of combiner.
	turn chan []*request // is sent once: the batch to lead, or nothing if it was sent
	cmd  *redis.Cmd      // then the answer
}

// send runs the script: by its digest, or, on a server that does not know it
// (yet, or after SCRIPT FLUSH), by its text.
func (r *request) send(ctx context.Context, client redis.Scripter) (any, error) {
	return r.script.Run(ctx, client, r.keys, r.args...).Result()
}

// run runs a script on the key's record. One that returns nothing did not find
// the claim that it was to change.
//
// A client that is not told so (ContextTimeoutEnabled) does not look at ctx while
// it waits for the answer. Then the request has a goroutine of its own, which is
// left behind if ctx ends first; it ends with the client's ReadTimeout.
func (s *Store) run(ctx context.Context, script *redis.Script, key idem.Key, args ...any) (any, error) {
	if err := s.refuse(ctx); err != nil {
		return nil, err
	}
	r := &request{script: script, keys: []string{s.recordKey(key)}, args: args}
	if _, ends := ctx.Deadline(); ends && s.minds {
		if s.combiner != nil {
			reply, err := s.combiner.do(ctx, r)
			return reply, classify(err)
		}
		reply, err := r.send(ctx, s.client)
		return reply, classify(err)
	}
	type answer struct {
		reply any
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		reply, err := r.send(ctx, s.client)
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
