package idem

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"
)

// Do runs fn once for key and replays its result to every later call.
//
// It claims the key in store, runs fn, and records what fn returned. A call
// that finds the outcome recorded returns it with Replayed set; one that finds
// the key in progress returns [ErrInProgress] (or waits, see [WithWait]); one
// that comes with another payload returns [ErrPayloadMismatch]. In each of
// these cases, and whenever an error is met before fn starts, fn does not run.
//
// fn returns a value, a status and an error, and Do returns them unchanged to
// the caller that ran it. What is kept of them is the rule of
// [DefaultDisposition]: a nil error or a final status is replayed, a passing
// failure frees the key at once, and a panic or an interrupted run holds it
// until its lease ends, as a crash does. If fn ran but its outcome could not be
// recorded, the value comes with [ErrNotRecorded], or with [ErrLeaseLost] if
// another owner has taken over.
//
// ctx ends fn and waiting. It does not end the requests to the store, which
// have a time limit of their own ([WithStoreTimeout]): a caller that goes away
// must not take the record with it. fn's context is ctx with [ExecutionID],
// [Attempt] and [Reclaimed]; it is cancelled with the cause [ErrLeaseLost] when
// fn may no longer be the only one that runs.
func Do[T any](ctx context.Context, store Store, key Key, payload any,
	fn func(context.Context) (T, Status, error), opts ...Option,
) (Result[T], error) {
	c, err := newCall(ctx, store, key, opts)
	switch {
	case err != nil:
		return Result[T]{}, err
	case fn == nil:
		return Result[T]{}, invalidOption("nil fn")
	}
	if c.payload, err = hashPayload(payload, c.cfg.hashKeys); err != nil {
		return Result[T]{}, err
	}
	rec, until, err := c.claim(ctx)
	switch {
	case err != nil:
		return Result[T]{}, err
	case rec.State == Processing:
		return run(ctx, c, rec, until, fn)
	default:
		return replay[T](c, rec)
	}
}

// A call is one call of Do: what it was asked for, checked.
type call struct {
	store      Store
	key        Key
	payload    payload
	cfg        config
	background context.Context // the caller's values without its end
	identity   [96]byte        // room for associatedData
}

func newCall(ctx context.Context, store Store, key Key, opts []Option) (*call, error) {
	c := &call{store: store, background: context.WithoutCancel(ctx)}
	if err := c.cfg.set(opts); err != nil {
		return nil, err
	}
	if store == nil {
		return nil, invalidOption("nil store")
	}
	if c.cfg.wait > 0 && bindingOf(store) == BoundToTx {
		return nil, invalidOption("waiting within a transaction would hold its connection and its locks")
	}
	var err error
	c.key, err = key.Normalize()
	return c, err
}

// claim returns the record that decides the call: a processing one, which is
// this call's own and surely held until the time returned, or a settled one.
func (c *call) claim(ctx context.Context) (Record, time.Time, error) {
	var (
		fresh   = c.newClaim()
		req     = fresh
		wait    = c.patience()
		changed int
	)
	for {
		if err := ctx.Err(); err != nil {
			return Record{}, time.Time{}, err
		}
		rec, until, err := c.tryClaim(req)
		if err != nil {
			return Record{}, until, err
		}
		if rec.Token == req.Token {
			until, err := c.admit(ctx, req, rec, until)
			return rec, until, err
		}
		free, err := c.judge(rec)
		switch {
		case free && changed == maxChanged:
			return Record{}, until, c.unavailable(errors.New("the record kept changing"))
		case free:
			changed++
			req = c.takeOver(fresh, rec)
		case errors.Is(err, ErrInProgress) && wait.more():
			if err := wait.sleep(ctx, err); err != nil {
				return Record{}, until, c.refuse(rec, err)
			}
			changed, req = 0, fresh
		default:
			return rec, until, c.refuse(rec, err)
		}
	}
}

// patience is what is left of WithWait.
type patience struct {
	giveUp time.Time
	pause  time.Duration
}

func (c *call) patience() patience {
	return patience{time.Now().Add(c.cfg.wait), firstPause}
}

func (p *patience) more() bool { return time.Now().Before(p.giveUp) }

// sleep pauses before the next look at a key that is in progress, but not
// beyond the end of the lease that it saw.
func (p *patience) sleep(ctx context.Context, inProgress error) error {
	d := min(p.pause, time.Until(p.giveUp))
	if e := (*InProgressError)(nil); errors.As(inProgress, &e) {
		d = min(d, e.RetryAfter)
	}
	p.pause = min(2*p.pause, maxPause)
	if !sleep(ctx, d) {
		return errors.Join(inProgress, ctx.Err())
	}
	return nil
}

const (
	maxTries   = 3                     // of a claim that the store does not answer
	maxChanged = 5                     // times that a record may change under a claim
	firstPause = 20 * time.Millisecond // between tries, doubled each time
	maxPause   = time.Second
)

func (c *call) newClaim() ClaimRequest {
	var random [32]byte
	rand.Read(random[:]) // never fails
	return ClaimRequest{
		Key: c.key, Hash: c.payload.hash,
		Token: ID(random[:16]), ExecutionID: ID(random[16:]),
		Lease: c.cfg.lease, Retention: c.cfg.retention,
	}
}

// tryClaim sends one claim. Its answer may get lost, so it is sent again with
// the same token, by which the claim is recognised if it was made. Once made,
// it surely holds for what is left of its lease since it was last sent.
func (c *call) tryClaim(req ClaimRequest) (Record, time.Time, error) {
	ctx, cancel := context.WithTimeout(c.background, c.cfg.timeout)
	defer cancel()
	for tries, pause := 1, firstPause; ; tries, pause = tries+1, 2*pause {
		sent := time.Now()
		rec, err := c.store.Claim(ctx, req)
		switch {
		case err == nil:
			return rec, sent.Add(rec.LeaseLeft), nil
		case errors.Is(err, ErrCorruptRecord):
			return Record{}, sent, c.refuse(rec, err)
		case tries == maxTries, !worthRepeating(err), !sleep(ctx, pause):
			return Record{}, sent, c.unavailable(err)
		}
	}
}

// judge says what a record that stands in the way means for the call: it is
// free to be taken over, or the call ends with an error, or, with neither, it
// is settled and can be replayed. The payload is compared before anything else
// is told, so that a client is never invited to retry a request that is wrong.
func (c *call) judge(rec Record) (free bool, err error) {
	if rec.Expired() || rec.Attempt == 0 { // purged meanwhile: as good as expired
		return true, nil
	}
	if !rec.readable() {
		return false, ErrCorruptRecord
	}
	same, err := c.payload.matches(rec.Hash)
	switch {
	case err != nil:
		return false, c.unavailable(err)
	case rec.released():
		return true, nil
	case !same:
		return false, ErrPayloadMismatch
	case rec.State != Processing:
		return false, nil
	case rec.LeaseLeft > 0:
		return false, &InProgressError{RetryAfter: rec.LeaseLeft}
	case c.cfg.stale == Refuse:
		return false, ErrOutcomeUnknown
	}
	return true, nil
}

// takeOver returns the claim that replaces a free record. The same work keeps
// its execution id, and the knowledge that it may have been done already.
func (c *call) takeOver(fresh ClaimRequest, seen Record) ClaimRequest {
	req := fresh
	if seen.Attempt == 0 {
		return req
	}
	req.Replace = &seen
	if !seen.Expired() {
		if same, _ := c.payload.matches(seen.Hash); same {
			req.ExecutionID = seen.ExecutionID
		}
		req.Reclaimed = seen.Reclaimed || !seen.released()
	}
	return req
}

// admit is the last look before fn runs, and returns until when the claim holds.
func (c *call) admit(ctx context.Context, req ClaimRequest, rec Record, until time.Time) (time.Time, error) {
	if err := ctx.Err(); err != nil { // nobody is there any more, and nothing has happened yet
		c.giveBack(req, rec)
		return until, err
	}
	if !time.Now().Before(until) { // the answer took longer than the lease: is the claim still ours?
		sent, err := c.renew(c.background, rec)
		if err != nil {
			return until, c.unavailable(fmt.Errorf("the claim took longer than its lease: %w", err))
		}
		until = sent.Add(c.cfg.lease)
	}
	if reclaims(req) {
		c.event(EventReclaimed, rec, nil)
	}
	return until, nil
}

// reclaims reports whether req takes over a claim without an outcome.
func reclaims(req ClaimRequest) bool {
	return req.Replace != nil && !req.Replace.Expired() && !req.Replace.released()
}

// giveBack undoes a claim that will not be used: the key becomes what it was,
// free or stale.
func (c *call) giveBack(req ClaimRequest, rec Record) {
	if !reclaims(req) {
		_ = c.release(rec, time.Now())
		return
	}
	c.cfg.lease = 1 // of no length: the outcome stays unknown
	_, _ = c.renew(c.background, rec)
}

// renew asks the store once to renew the claim, and returns when it did.
func (c *call) renew(ctx context.Context, rec Record) (sent time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.timeout)
	defer cancel()
	sent = time.Now()
	return sent, c.store.Renew(ctx, RenewRequest{
		Key: c.key, Token: rec.Token, Lease: c.cfg.lease, Retention: c.cfg.retention,
	})
}

// run runs fn under the claim rec and settles it, whichever way fn ends. There
// is no recover: a panic and runtime.Goexit pass through the deferred call on
// their way, and go on unchanged.
func run[T any](ctx context.Context, c *call, rec Record, until time.Time,
	fn func(context.Context) (T, Status, error),
) (res Result[T], err error) {
	ctx, lease := c.hold(ctx, rec, until)
	defer lease.join()
	out := Outcome{Panicked: true} // until it has returned
	began := time.Now()
	defer func() {
		e := Event{Kind: EventExecuted, Status: out.Status, Duration: time.Since(began)}
		lost, until := lease.stop()
		completed, problem := c.settle(&lease.work, out, lost, until, e, func() ([]byte, error) { return encode(c, &res.Value) })
		if !completed.IsZero() {
			res.CompletedAt, res.ExpiresAt = completed, completed.Add(c.cfg.retention)
		}
		err = join(err, problem)
	}()
	res = Result[T]{ExecutionID: rec.ExecutionID.String(), Attempt: rec.Attempt}
	res.Value, res.Status, err = fn(ctx)
	if res.Status == 0 && err == nil {
		res.Status = 200
	}
	out = Outcome{Status: res.Status, Err: err}
	return res, err
}

// replay returns a settled record as the answer.
func replay[T any](c *call, rec Record) (Result[T], error) {
	res := Result[T]{
		Status: rec.Response.Status, Replayed: true,
		ExecutionID: rec.ExecutionID.String(), Attempt: rec.Attempt,
		CompletedAt: rec.CompletedAt, ExpiresAt: rec.ExpiresAt,
	}
	failure := c.cfg.recordedError(rec.Response)
	if rec.Response.Codec == "" {
		c.event(EventReplayed, rec, nil)
		return res, join(ErrResultNotKept, failure)
	}
	if err := decode(c, rec.Response, &res.Value); err != nil {
		return Result[T]{}, c.refuse(rec, err)
	}
	c.event(EventReplayed, rec, nil)
	return res, failure
}

// sleep pauses for d and reports whether ctx is still alive.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// join is errors.Join that returns a lone error as it is.
func join(a, b error) error {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return errors.Join(a, b)
}
