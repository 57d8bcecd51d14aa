package idem_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
)

func TestB19CallerGoesAway(t *testing.T) {
	t.Parallel()
	synctestRun(t, "in the closure, after its effect", func(t *testing.T) {
		s := newSpy()
		ctx, cancel := context.WithCancel(t.Context())
		w := works(func(context.Context) (string, idem.Status, error) {
			cancel()
			return "v", 201, nil
		})
		s.onComplete = func(ctx context.Context, _ idem.CompleteRequest, next func() (time.Time, error)) (time.Time, error) {
			wantErr(t, ctx.Err())
			return next()
		}
		for i, ctx := range []context.Context{ctx, t.Context()} {
			res, err := idem.Do(ctx, s, testKey, payload, w.fn)
			wantErr(t, err)
			wantResult(t, res, "v", 201, i > 0)
		}
		w.wantRuns(t, 1)
	})
	synctestRun(t, "during the completion", func(t *testing.T) {
		s, w := newSpy(), returns("v", 201, nil)
		ctx, cancel := context.WithCancel(t.Context())
		s.onComplete = func(ctx context.Context, _ idem.CompleteRequest, next func() (time.Time, error)) (time.Time, error) {
			cancel()
			if err := passOr(ctx, time.Second); err != nil {
				return time.Time{}, err
			}
			return next()
		}
		for i, ctx := range []context.Context{ctx, t.Context()} {
			res, err := idem.Do(ctx, s, testKey, payload, w.fn)
			wantErr(t, err)
			wantResult(t, res, "v", 201, i > 0)
		}
		w.wantRuns(t, 1)
	})
	synctestRun(t, "in the closure, which notices", func(t *testing.T) {
		s := newSpy()
		ctx, cancel := context.WithCancel(t.Context())
		w := works(func(ctx context.Context) (string, idem.Status, error) {
			cancel()
			return "", 500, ctx.Err()
		})
		_, err := idem.Do(ctx, s, testKey, payload, w.fn)
		wantErr(t, err, context.Canceled)
		s.wantCalls(t, "claim") // held: nobody knows how far it came
	})
}

func TestDetachedClosureOutlivesItsCaller(t *testing.T) {
	t.Parallel()
	type contextKey struct{}
	synctestRun(t, "its context does not end with the caller's", func(t *testing.T) {
		s := newSpy()
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), contextKey{}, "value"), time.Second)
		defer cancel()
		res, err := idem.Do(ctx, s, testKey, payload, func(ctx context.Context) (string, idem.Status, error) {
			if _, ok := ctx.Deadline(); ok {
				t.Error("the closure's context has the caller's deadline")
			}
			if ctx.Value(contextKey{}) != "value" {
				t.Error("the caller's values are gone")
			}
			if idem.ExecutionID(ctx) == "" {
				t.Error("there is no execution id")
			}
			return "v", 200, passOr(ctx, 10*lease)
		}, idem.WithDetached(), idem.WithLease(lease))
		wantErr(t, err)
		wantResult(t, res, "v", 200, false)
	})
	synctestRun(t, "it still ends when the lease is lost", func(t *testing.T) {
		s := newSpy()
		s.onRenew = func(context.Context, idem.RenewRequest, func() error) error { return idem.ErrLeaseLost }
		_, err := idem.Do(t.Context(), s, testKey, payload, func(ctx context.Context) (string, idem.Status, error) {
			<-ctx.Done()
			wantErr(t, context.Cause(ctx), idem.ErrLeaseLost)
			return "", 0, ctx.Err()
		}, idem.WithDetached(), idem.WithLease(lease))
		wantErr(t, err, idem.ErrLeaseLost)
	})
}

func TestAttachedClosureEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		_, err := idem.Do(ctx, newSpy(), testKey, payload, func(ctx context.Context) (string, idem.Status, error) {
			cancel(errBusiness)
			<-ctx.Done()
			wantErr(t, context.Cause(ctx), errBusiness)
			return "", 0, ctx.Err()
		})
		wantErr(t, err, context.Canceled)
	})
}

func TestClosuresContextEndsWithTheCall(t *testing.T) {
	t.Parallel()
	var kept context.Context
	_, err := idem.Do(t.Context(), newSpy(), testKey, payload, func(ctx context.Context) (string, idem.Status, error) {
		kept = ctx
		return "", 200, ctx.Err()
	})
	wantErr(t, err)
	wantErr(t, kept.Err(), context.Canceled)
	notErr(t, context.Cause(kept), idem.ErrLeaseLost)
}

func TestCompletionIsRepeatedWithinTheLease(t *testing.T) {
	t.Parallel()
	synctestRun(t, "until it succeeds", func(t *testing.T) {
		s, w, events := newSpy(), returns("v", 200, nil), &recorder{}
		began := time.Now()
		s.onComplete = func(_ context.Context, _ idem.CompleteRequest, next func() (time.Time, error)) (time.Time, error) {
			if time.Since(began) < 30*time.Second {
				return time.Time{}, errStore
			}
			return next()
		}
		res, err := idem.Do(t.Context(), s, testKey, payload, w.fn, idem.WithLease(time.Minute), events.option())
		wantErr(t, err)
		wantResult(t, res, "v", 200, false)
		events.wantKinds(t, idem.EventExecuted)
		if got := s.count("complete"); got < 5 || got > 50 {
			t.Errorf("%d completions in 30 s, want a backoff", got)
		}
	})
	synctestRun(t, "and no longer", func(t *testing.T) {
		s, w := newSpy(), returns("v", 409, errBusiness)
		s.onComplete = func(context.Context, idem.CompleteRequest, func() (time.Time, error)) (time.Time, error) {
			return time.Time{}, errStore
		}
		began := time.Now()
		res, err := idem.Do(t.Context(), s, testKey, payload, w.fn, idem.WithLease(time.Minute))
		wantErr(t, err, idem.ErrNotRecorded, errStore, errBusiness)
		wantResult(t, res, "v", 409, false)
		if took := time.Since(began); took > time.Minute || took < 58*time.Second {
			t.Errorf("it gave up after %v, want the end of the lease", took)
		}
		if !res.CompletedAt.IsZero() || !res.ExpiresAt.IsZero() {
			t.Errorf("CompletedAt = %v, ExpiresAt = %v, want none", res.CompletedAt, res.ExpiresAt)
		}
		if got := s.count("release"); got != 0 {
			t.Errorf("%d releases: what ran but was not recorded is held", got)
		}
		pass(time.Minute)
		_, err = idem.Do(t.Context(), s, testKey, payload, w.fn, idem.WithStale(idem.Refuse))
		wantErr(t, err, idem.ErrOutcomeUnknown)
	})
	synctestRun(t, "unless nothing can mend it", func(t *testing.T) {
		s, w := newSpy(), returns("v", 200, nil)
		s.onComplete = func(context.Context, idem.CompleteRequest, func() (time.Time, error)) (time.Time, error) {
			return time.Time{}, idem.Permanent(errStore)
		}
		_, err := idem.Do(t.Context(), s, testKey, payload, w.fn)
		wantErr(t, err, idem.ErrNotRecorded, errStore)
		s.wantCalls(t, "claim", "complete")
	})
	synctestRun(t, "also when it hangs", func(t *testing.T) {
		s, w := newSpy(), returns("v", 200, nil)
		s.onComplete = func(ctx context.Context, _ idem.CompleteRequest, next func() (time.Time, error)) (time.Time, error) {
			if s.count("complete") < 3 {
				<-ctx.Done()
				return time.Time{}, ctx.Err()
			}
			return next()
		}
		_, err := idem.Do(t.Context(), s, testKey, payload, w.fn)
		wantErr(t, err)
	})
}

func TestReleaseThatFailsLeavesTheClaimToItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, w, events := newSpy(), returns("v", 503, errBusiness), &recorder{}
		s.onRelease = func(context.Context, idem.ReleaseRequest, func() error) error { return errStore }
		res, err := idem.Do(t.Context(), s, testKey, payload, w.fn, idem.WithLease(lease), events.option())
		if err != errBusiness { //nolint:errorlint // unwrapped is the point
			t.Errorf("err = %v, want the closure's own", err)
		}
		wantResult(t, res, "v", 503, false)
		events.wantKinds(t, idem.EventExecuted, idem.EventNotRecorded)
		pass(lease)
		res, err = idem.Do(t.Context(), s, testKey, payload, returns("v", 200, nil).fn)
		wantErr(t, err)
		wantResult(t, res, "v", 200, false)
	})
}

func TestB105FailureOfALateOwnerIsKeptForItsRetention(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, w := newSpy(), works(func(context.Context) (string, idem.Status, error) {
			pass(2*lease + time.Hour)
			return "refused", 409, nil
		})
		opts := []idem.Option{idem.WithLease(lease), idem.WithRetention(2 * time.Hour)}
		_, err := idem.Do(t.Context(), bound{s, idem.BoundToConn}, testKey, payload, w.fn, opts...)
		wantErr(t, err)
		for _, later := range []time.Duration{0, 2*time.Hour - 1} {
			pass(later)
			purged, err := s.Purge(t.Context(), idem.PurgeRequest{Limit: 10})
			wantErr(t, err)
			if purged.Deleted != 0 {
				t.Fatalf("purged %v after its completion", later)
			}
			res, err := idem.Do(t.Context(), s, testKey, payload, w.fn, opts...)
			wantErr(t, err)
			wantResult(t, res, "refused", 409, true)
		}
		pass(1)
		purged, err := s.Purge(t.Context(), idem.PurgeRequest{Limit: 10})
		wantErr(t, err)
		if purged.Deleted != 1 {
			t.Errorf("purged %d, want 1", purged.Deleted)
		}
	})
}

func TestB113RetentionIsCountedFromCompletionAndCanBeRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const retention = time.Hour
		s, w := newSpy(), works(func(context.Context) (string, idem.Status, error) {
			pass(10 * time.Second)
			return "v", 200, nil
		})
		opt := idem.WithRetention(retention)
		first, err := idem.Do(t.Context(), s, testKey, payload, w.fn, opt)
		wantErr(t, err)
		if now := time.Now(); !first.CompletedAt.Equal(now) || !first.ExpiresAt.Equal(now.Add(retention)) {
			t.Errorf("CompletedAt = %v, ExpiresAt = %v, want now and in an hour", first.CompletedAt, first.ExpiresAt)
		}
		pass(retention - time.Second)
		res, err := idem.Do(t.Context(), s, testKey, payload, w.fn, opt)
		wantErr(t, err)
		wantResult(t, res, "v", 200, true)
		if !res.CompletedAt.Equal(first.CompletedAt) || !res.ExpiresAt.Equal(first.ExpiresAt) {
			t.Errorf("on replay CompletedAt = %v, ExpiresAt = %v", res.CompletedAt, res.ExpiresAt)
		}
		pass(2 * time.Second)
		res, err = idem.Do(t.Context(), s, testKey, payload, w.fn, opt)
		wantErr(t, err)
		wantResult(t, res, "v", 200, false)
		w.wantRuns(t, 2)
	})
}
