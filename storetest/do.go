package storetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
)

var errNoneLeft = errors.New("none left")

var doChecks = []check{
	{rule: "Do must run the closure once and replay its answer to every later call", run: func(p *probe) {
		key := p.key()
		first, err := p.do(key, "payload", returns("value", 201))
		p.must(err, "Do")
		want := idem.Result[string]{
			Value: "value", Status: 201, ExecutionID: first.ExecutionID, Attempt: 1,
			CompletedAt: first.CompletedAt, ExpiresAt: first.ExpiresAt,
		}
		if diff := cmp.Diff(want, first); diff != "" {
			p.errorf("the first answer (-want +got):\n%s", diff)
		}
		want.Replayed, want.ExpiresAt = true, p.lookup(key).ExpiresAt
		for range 3 {
			replay, err := p.do(key, "payload", p.mustNotRun())
			p.must(err, "Do, repeated")
			if diff := cmp.Diff(want, replay); diff != "" {
				p.errorf("the replay (-want +got):\n%s", diff)
			}
		}
	}},
	{rule: "B17 a final failure must be replayed with its value, status and error", run: func(p *probe) {
		key, known := p.key(), idem.WithErrors(map[string]error{"none_left": errNoneLeft})
		_, err := p.do(key, "payload", fails("sorry", 409, errNoneLeft), known)
		p.wantError(err, errNoneLeft, "the first call")
		replay, err := p.do(key, "payload", p.mustNotRun(), known)
		p.wantError(err, errNoneLeft, "the replay")
		if !replay.Replayed || replay.Value != "sorry" || replay.Status != 409 {
			p.errorf("the replay is %+v", replay)
		}
	}},
	{rule: "B31 a passing failure must free the key at once, for the same execution", run: func(p *probe) {
		key := p.key()
		first, err := p.do(key, "payload", fails("", 503, errNoneLeft))
		p.wantError(err, errNoneLeft, "the first call")
		again, err := p.do(key, "payload", func(ctx context.Context) (string, idem.Status, error) {
			return fmt.Sprint(idem.Attempt(ctx), idem.Reclaimed(ctx)), 0, nil
		})
		p.must(err, "Do, repeated")
		if again.Value != "2 false" || again.ExecutionID != first.ExecutionID {
			p.errorf("the second run saw attempt and reclaimed %q, executions %q and %q",
				again.Value, first.ExecutionID, again.ExecutionID)
		}
	}},
	{rule: "B31 a released key must take another payload, as a new execution", run: func(p *probe) {
		key := p.key()
		first, _ := p.do(key, "payload", fails("", 503, errNoneLeft))
		second, err := p.do(key, "another", returns("value", 200))
		p.must(err, "Do")
		if second.Replayed || second.ExecutionID == first.ExecutionID {
			p.errorf("got %+v after an execution %v", second, first.ExecutionID)
		}
		_, err = p.do(key, "payload", p.mustNotRun())
		p.wantError(err, idem.ErrPayloadMismatch, "the first payload")
	}},
	{rule: "B19 an outcome must be recorded although its caller has gone", run: func(p *probe) {
		key := p.key()
		ctx, cancel := context.WithCancel(p.ctx)
		_, err := idem.Do(ctx, p.store, key, "payload", func(context.Context) (string, idem.Status, error) {
			cancel()
			return "value", 0, nil
		})
		p.must(err, "Do")
		p.replays(key, "payload", "value")
	}},
	{rule: "B47 payloads and values with a NUL must be replayed", run: func(p *probe) {
		key := p.key()
		_, err := p.do(key, "p\x00", returns("v\x00", 0))
		p.must(err, "Do")
		p.replays(key, "p\x00", "v\x00")
	}},
	{rule: "B83 an answer that is not kept must not be computed again", run: func(p *probe) {
		key, limit := p.key(), idem.WithMaxResultBytes(4)
		_, err := p.do(key, "payload", returns("too long", 201), limit)
		p.wantError(err, idem.ErrNotRecorded, "the first call")
		replay, err := p.do(key, "payload", p.mustNotRun(), limit)
		p.wantError(err, idem.ErrResultNotKept, "the replay")
		if replay.Status != 201 || !replay.Replayed {
			p.errorf("the replay is %+v", replay)
		}
	}},
	{rule: "B113 a key must be new when its retention is over", run: func(p *probe) {
		key := p.key()
		first, err := p.do(key, "payload", returns("first", 0), idem.WithRetention(short))
		p.must(err, "Do")
		p.untilExpired(key)
		second, err := p.do(key, "another", func(ctx context.Context) (string, idem.Status, error) {
			return fmt.Sprint(idem.Reclaimed(ctx)), 0, nil
		})
		p.must(err, "Do after the retention")
		if second.Replayed || second.Value != "false" || second.ExecutionID == first.ExecutionID {
			p.errorf("got %+v after %+v", second, first)
		}
	}},
	{rule: "B97 two users with one key must not learn of each other", run: func(p *probe) {
		a, b := p.key(), p.key()
		b.Key, b.User = a.Key, a.User+" b"
		_, err := p.do(a, "payload", returns("of a", 0))
		p.must(err, "Do")
		res, err := p.do(b, "another", returns("of b", 0))
		p.must(err, "Do of the other user")
		if res.Value != "of b" || res.Replayed {
			p.errorf("the other user got %+v", res)
		}
		p.replays(a, "payload", "of a")
	}},
	{rule: "Peek must tell what Do would do, and change nothing", run: func(p *probe) {
		settled, busy, stale, absent := p.key(), p.key(), p.key(), p.key()
		_, err := p.do(settled, "payload", returns("value", 0))
		p.must(err, "Do")
		p.hold(busy, "payload")
		p.die(stale, "payload")
		for _, c := range []struct {
			key     idem.Key
			payload string
			replay  bool
			err     error
		}{
			{settled, "payload", true, nil},
			{settled, "another", false, idem.ErrPayloadMismatch},
			{busy, "payload", false, idem.ErrInProgress},
			{busy, "another", false, idem.ErrPayloadMismatch},
			{stale, "payload", false, nil},
			{stale, "another", false, idem.ErrPayloadMismatch},
			{absent, "payload", false, nil},
		} {
			before := p.snapshot(c.key)
			replay, err := idem.Peek(p.ctx, p.store, c.key, c.payload)
			if replay != c.replay || !errors.Is(err, c.err) {
				p.errorf("Peek with %s: got %v, %v; want %v, %v", c.payload, replay, err, c.replay, c.err)
			}
			p.unchanged(before, "after Peek")
		}
	}},
}

type closure = func(context.Context) (string, idem.Status, error)

func (p *probe) do(key idem.Key, payload string, fn closure, opts ...idem.Option) (idem.Result[string], error) {
	return idem.Do(p.ctx, p.store, key, payload, fn, opts...)
}

func returns(value string, status idem.Status) closure { return fails(value, status, nil) }

func fails(value string, status idem.Status, err error) closure {
	return func(context.Context) (string, idem.Status, error) { return value, status, err }
}

// mustNotRun returns a closure that fails the check.
func (p *probe) mustNotRun() closure {
	return func(context.Context) (string, idem.Status, error) {
		p.errorf("a closure ran that must not")
		return "", 0, nil
	}
}

// replays fails the check if the key does not replay a value.
func (p *probe) replays(key idem.Key, payload, want string) {
	p.t.Helper()
	res, err := p.do(key, payload, p.mustNotRun())
	if err != nil || !res.Replayed || res.Value != want {
		p.errorf("got %+v, error %v; want the replay of %q", res, err, want)
	}
}

// hold leaves a live claim that nobody works on.
func (p *probe) hold(key idem.Key, payload string) {
	p.t.Helper()
	_, err := p.do(key, payload, fails("", 0, idem.Unknown(nil)), idem.WithLease(long))
	p.wantError(err, idem.ErrOutcomeUnknown, "a caller whose outcome is unknown")
}

// die leaves a claim as an owner does that died a lease ago.
func (p *probe) die(key idem.Key, payload string) {
	p.t.Helper()
	p.hold(key, payload)
	p.lapse(key)
}

// lapse ends the lease of the key's claim.
func (p *probe) lapse(key idem.Key) {
	p.t.Helper()
	err := p.store.Renew(p.ctx, idem.RenewRequest{
		Key: key, Token: p.lookup(key).Token, Lease: short, Retention: long,
	})
	p.must(err, "Renew")
	p.untilStale(key)
}
