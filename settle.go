package idem

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// settle does what the disposition of out says with the claim of work, and with
// the transaction that the closure enlisted, if any. It returns the time of completion, if the outcome was recorded, and what the
// caller must know besides fn's own answer.
func (c *call) settle(work *execution, out Outcome, lost bool, until time.Time, e Event,
	encode func() ([]byte, error),
) (completed time.Time, problem error) {
	defer work.rollback(c.background) // if one of the caller's functions panics on the way
	e.Disposition = c.dispose(out)
	if e.Disposition != Keep || out.failed() {
		work.rollback(c.background)
	}
	rec := work.rec
	switch e.Disposition {
	case Keep:
		completed, problem = c.complete(work, out, until, encode)
	case Release:
		problem = c.release(rec, until)
	case Hold:
		if lost {
			problem = ErrLeaseLost
		}
	}
	c.emit(e, rec)
	switch {
	case errors.Is(problem, ErrLeaseLost):
		if !lost { // or it was told already
			c.event(EventLeaseLost, rec, nil)
		}
	case problem != nil:
		c.event(EventNotRecorded, rec, problem)
		if e.Disposition == Release {
			problem = nil // the claim lapses with its lease: fn's own answer says all
		}
	}
	return completed, problem
}

func (c *call) dispose(out Outcome) Disposition {
	if d := c.cfg.disposition(out); d == Keep || d == Release {
		return d
	}
	return Hold
}

// complete records the outcome, with the value if it can be kept.
func (c *call) complete(work *execution, out Outcome, until time.Time,
	encode func() ([]byte, error),
) (completed time.Time, err error) {
	req, notKept := c.completion(work.rec, out, encode)
	if tx := work.take(); tx != nil {
		completed, err = c.commit(tx, req)
	} else {
		err = c.persist(until, func(ctx context.Context) (err error) {
			completed, err = c.store.Complete(ctx, req)
			return err
		})
	}
	switch {
	case errors.Is(err, ErrLeaseLost):
		return time.Time{}, ErrLeaseLost
	case errors.Is(err, ErrOutcomeUnknown):
		return time.Time{}, err
	case err != nil:
		return time.Time{}, fmt.Errorf("%w: %w", ErrNotRecorded, err)
	case notKept != nil:
		return completed, fmt.Errorf("%w: %w", ErrNotRecorded, notKept)
	}
	return completed, nil
}

// completion returns what is to be recorded of out, and why its value is not.
func (c *call) completion(rec Record, out Outcome, encode func() ([]byte, error)) (CompleteRequest, error) {
	state, response := c.cfg.answer(out)
	var notKept error
	if response.Status == 0 {
		notKept = fmt.Errorf("status %d is outside 200–599", out.Status)
	} else if response.Body, notKept = encode(); notKept == nil {
		response.Codec, response.CodecVersion = c.cfg.codec.Name(), c.cfg.codec.Version()
	}
	return CompleteRequest{
		Key: c.key, Token: rec.Token, State: state, Response: response, Retention: c.cfg.retention,
	}, notKept
}

// release frees the claim. A release whose answer was lost finds nothing to do
// when it is sent again: it has succeeded.
func (c *call) release(rec Record, until time.Time) error {
	repeated := false
	return c.persist(until, func(ctx context.Context) error {
		err := c.store.Release(ctx, ReleaseRequest{Key: c.key, Token: rec.Token, Retention: c.cfg.retention})
		if repeated && errors.Is(err, ErrLeaseLost) {
			return nil
		}
		repeated = true
		return err
	})
}

// persist sends a request until it is answered or the lease is over. It does
// not end with the caller's context: what fn did must not be forgotten because
// the client has hung up.
func (c *call) persist(until time.Time, request func(context.Context) error) error {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		ctx, cancel := context.WithTimeout(c.background, c.cfg.timeout)
		err := request(ctx)
		cancel()
		if err == nil || !worthRepeating(err) || time.Until(until) < pause {
			return err
		}
		sleep(c.background, pause)
	}
}
