package idemhttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/idem-go/idem"
)

// Defaults of [Transport].
const (
	DefaultMaxRetries  = 3
	DefaultMaxPolls    = 48
	DefaultMaxInterval = 2500 * time.Millisecond
	DefaultBudget      = 2 * time.Minute
)

// A Transport is an [http.RoundTripper] that makes calls to servers with
// idempotency keys safe to repeat, and repeats them:
//
//	client := &http.Client{Transport: &idemhttp.Transport{}}
//
// It gives every unsafe request one key for all its attempts. An attempt that
// fails is followed by another with the same key and the same body, until there
// is an answer that settles the call. That is any answer, but for those in the
// table of docs/http_clients.md that say "not now": network errors, 408, 425,
// 429, 502, 503, 504, and 409 while the first attempt is being processed. A call
// that stays unsettled is an [*UnsettledError], which has the key for those who
// want to go on later.
//
// GET, HEAD, OPTIONS, TRACE and CONNECT get no key and are not repeated; nor are
// requests with [WithoutKey]. A key that the request has already, in its header
// or by [WithKey], is kept. A redirect that [http.Client] follows is a request of
// its own, with its own key.
//
// The request's context covers all attempts and the waits between them. A wait
// that would outlast its deadline, or the budget, is not begun. So prefer a
// context to [http.Client.Timeout], which replaces the error by one without the
// key. There is no limit for a single attempt here: an answer that never comes is
// noticed by [http.Transport.ResponseHeaderTimeout].
//
// The zero value works. A Transport is safe for concurrent use as long as its
// fields are not changed.
type Transport struct {
	// Base makes the attempts; wrap it to log them. Defaults to
	// [http.DefaultTransport].
	Base http.RoundTripper

	// KeyHeader is the header that carries the key. Defaults to
	// [DefaultKeyHeader].
	KeyHeader string

	// KeyPrefix is put in front of generated keys, so that servers' logs tell who
	// made them. Printable ASCII without quotes, commas and backslashes, 200
	// characters at most. Defaults to none.
	KeyPrefix string

	// QuoteKeys sends generated keys as structured field strings, "…", as the IETF
	// draft wants it. [Middleware] takes both, older servers take quotes for a part
	// of the key. Defaults to bare keys.
	QuoteKeys bool

	// MaxRetries bounds the attempts that follow one another's failure: no answer,
	// or one that says that the server, or something in front of it, cannot answer
	// now. Defaults to [DefaultMaxRetries]; negative means none.
	MaxRetries int

	// MaxPolls bounds the attempts that find the call in progress.
	// Defaults to [DefaultMaxPolls]; negative means none.
	MaxPolls int

	// MaxInterval bounds the waits, which double from a tenth of it and are
	// jittered. A server's Retry-After can make them longer, never shorter.
	// Defaults to [DefaultMaxInterval]; negative means no waits but the server's.
	MaxInterval time.Duration

	// Budget bounds the time from the first attempt to the start of the last one.
	// Defaults to [DefaultBudget]; negative means no bound.
	Budget time.Duration

	// Retention is how long the servers remember a key, which they publish. It
	// counts from the first attempt, to be on the safe side. Afterwards a key means
	// a new call, so no attempt is made: the outcome stays unknown
	// ([idem.ErrOutcomeUnknown]). Defaults to [idem.DefaultRetention]; negative
	// means that keys last forever.
	Retention time.Duration

	// MaxBodyBytes bounds the body that is copied into memory before the first
	// attempt, so that all attempts send the same. A larger one is sent anew by
	// [http.Request.GetBody], and must not change meanwhile; without GetBody there
	// is one attempt only. Defaults to [DefaultMaxBodyBytes]; negative means that
	// nothing is copied.
	MaxBodyBytes int64
}

var _ http.RoundTripper = (*Transport)(nil)

// RoundTrip makes the attempts of one call. It does not change the request.
//
// An error is an [*UnsettledError], unless nothing was sent: [idem.ErrInvalidKey]
// for a key that is empty or there twice, [idem.ErrInvalidOption], or what
// reading the body returned. Requests that get no key are left to Base.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if !keyed(req) {
		return t.base().RoundTrip(req)
	}
	c, err := t.newCall(req)
	if err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
	return c.run()
}

// CloseIdleConnections forwards to Base; [http.Client.CloseIdleConnections]
// calls it.
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

func (t *Transport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}

// A call is what one key stands for: a request and its attempts.
type call struct {
	t       *Transport
	ctx     context.Context
	req     *http.Request // the caller's, but with the key: cloned for each attempt
	body    *snapshot
	key     string
	started time.Time
	expires time.Time // when the server may have forgotten the key; zero for never

	attempts int
	failures int // in a row
	polls    int
}

func (t *Transport) newCall(req *http.Request) (*call, error) {
	c := &call{t: t, ctx: req.Context()}
	if err := c.setKey(req); err != nil {
		return nil, err
	}
	var err error
	c.body, err = newSnapshot(c.req, cmp.Or(t.MaxBodyBytes, DefaultMaxBodyBytes))
	if err != nil {
		return nil, err
	}
	c.started = time.Now()
	if life := cmp.Or(t.Retention, idem.DefaultRetention); c.expires.IsZero() && life > 0 {
		c.expires = c.started.Round(0).Add(life) // by the wall clock, which goes on while the machine sleeps
	}
	return c, nil
}

func (c *call) run() (*http.Response, error) {
	defer c.body.close()
	var (
		resp *http.Response
		v    verdict
	)
	for {
		if c.over(time.Now()) {
			return nil, c.unsettled(resp, joined(idem.ErrOutcomeUnknown, v.err))
		}
		resp, v = c.attempt()
		if v.kind == settled {
			return resp, nil
		}
		if resp != nil {
			retire(resp)
		}
		wait, err := c.next(v)
		if err == nil {
			err = sleep(c.ctx, wait, v.err)
		}
		if err != nil {
			return nil, c.unsettled(resp, err)
		}
	}
}

// attempt sends the request once.
func (c *call) attempt() (*http.Response, verdict) {
	req, err := c.body.attach(c.req.Clone(c.ctx), c.attempts == 0)
	if err != nil {
		return nil, verdict{kind: hopeless, err: err}
	}
	c.attempts++
	resp, err := c.t.base().RoundTrip(req)
	if err != nil {
		return nil, judgeError(err)
	}
	return resp, judge(resp)
}

// next returns how long to wait for the next attempt, or why there is none.
func (c *call) next(v verdict) (time.Duration, error) {
	switch v.kind {
	case failed:
		c.failures++
	case busy:
		c.failures = 0
		c.polls++
	case hopeless:
		return 0, v.err
	}
	wait := v.retryAfter + c.backoff(v)
	start := time.Now().Add(wait)
	deadline, hasDeadline := c.ctx.Deadline()
	budget := cmp.Or(c.t.Budget, DefaultBudget)
	switch {
	case c.ctx.Err() != nil:
		return 0, joined(context.Cause(c.ctx), v.err)
	case c.over(start):
		return 0, joined(idem.ErrOutcomeUnknown, v.err)
	case !c.body.repeatable(),
		c.failures > max(cmp.Or(c.t.MaxRetries, DefaultMaxRetries), 0),
		c.polls > max(cmp.Or(c.t.MaxPolls, DefaultMaxPolls), 0),
		budget > 0 && start.Sub(c.started) > budget:
		return 0, v.err
	case hasDeadline && start.After(deadline):
		return 0, joined(context.DeadlineExceeded, v.err)
	}
	return wait, nil
}

// over reports whether the key's life has ended by then.
func (c *call) over(then time.Time) bool { return !c.expires.IsZero() && !then.Before(c.expires) }

// backoff returns the wait before the next attempt, or what to add to the one
// that the server asks for, which spreads the clients that it asked alike.
func (c *call) backoff(v verdict) time.Duration {
	limit := max(cmp.Or(c.t.MaxInterval, DefaultMaxInterval), 0)
	d := limit / 10
	if v.retryAfter == 0 {
		n := c.failures
		if v.kind == busy {
			n = c.polls
		}
		d = min(d<<min(n-1, 4), limit)
	}
	return d/2 + rand.N(d/2+1)
}

// joined returns why there is no other attempt, with what the last one ended with.
func joined(err, last error) error {
	switch {
	case last == nil:
		return err
	case errors.Is(last, err):
		return last
	}
	return fmt.Errorf("%w: %w", err, last)
}

func sleep(ctx context.Context, d time.Duration, last error) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return joined(context.Cause(ctx), last)
	}
}
