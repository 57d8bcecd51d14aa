package idem_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
)

const lease = 3 * time.Second // a third of it is one second

func TestRenewalBeginsAfterAThirdOfTheLease(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		takes    time.Duration
		renewals int
	}{
		{"an instant costs none", 0, 0},
		{"just below a third costs none", lease/3 - 1, 0},
		{"half a lease costs one", lease / 2, 1},
		{"five leases cost one for each third", 5*lease - 1, 14},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSpy()
				res, err := idem.Do(t.Context(), s, testKey, payload, func(ctx context.Context) (string, idem.Status, error) {
					pass(tt.takes)
					return "v", 200, ctx.Err()
				}, idem.WithLease(lease))
				wantErr(t, err)
				wantResult(t, res, "v", 200, false)
				if got := s.count("renew"); got != tt.renewals {
					t.Errorf("%d renewals, want %d", got, tt.renewals)
				}
			})
		})
	}
}

func TestRenewalKeepsDuplicatesOutForAsLongAsTheClosureRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, w := newSpy(), works(func(ctx context.Context) (string, idem.Status, error) {
			pass(10 * lease)
			return "v", 200, ctx.Err()
		})
		wait := goes(func() {
			_, err := idem.Do(t.Context(), s, testKey, payload, w.fn, idem.WithLease(lease))
			wantErr(t, err)
		})
		for range 19 {
			pass(lease / 2)
			_, err := idem.Do(t.Context(), s, testKey, payload, w.fn, idem.WithLease(lease))
			wantErr(t, err, idem.ErrInProgress)
		}
		wait()
		w.wantRuns(t, 1)
	})
}

// Over one connection or one transaction the closure may be using it.
func TestRenewalNeedsAPool(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		binding idem.Binding
	}{
		{"a connection is not renewed over", idem.BoundToConn},
		{"a transaction is not renewed over", idem.BoundToTx},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSpy()
				began := time.Now()
				_, err := idem.Do(t.Context(), bound{s, tt.binding}, testKey, payload, func(ctx context.Context) (string, idem.Status, error) {
					<-ctx.Done()
					wantErr(t, context.Cause(ctx), idem.ErrLeaseLost)
					if took := time.Since(began); took != lease {
						t.Errorf("the context ended after %v, want %v", took, lease)
					}
					return "v", 200, nil
				}, idem.WithLease(lease))
				wantErr(t, err)
				s.wantCalls(t, "claim", "complete")
			})
		})
	}
}

type bound struct {
	idem.Store
	binding idem.Binding
}

func (b bound) Bound() idem.Binding { return b.binding }

func TestB07RenewalFindsTheLeaseGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, events := newSpy(), &recorder{}
		s.onRenew = func(_ context.Context, _ idem.RenewRequest, next func() error) error {
			if s.count("renew") > 1 {
				return idem.ErrLeaseLost
			}
			return next()
		}
		began := time.Now()
		_, err := idem.Do(t.Context(), s, testKey, payload, func(ctx context.Context) (string, idem.Status, error) {
			if err := passOr(ctx, 5*lease); err == nil {
				t.Error("the context did not end")
			}
			wantErr(t, context.Cause(ctx), idem.ErrLeaseLost)
			if took := time.Since(began); took != 2*lease/3 {
				t.Errorf("the context ended after %v, want at once: %v", took, 2*lease/3)
			}
			return "", 0, ctx.Err()
		}, idem.WithLease(lease), events.option())
		wantErr(t, err, idem.ErrLeaseLost, context.Canceled)
		events.wantKinds(t, idem.EventLeaseLost, idem.EventExecuted)
		if got := s.count("renew"); got != 2 {
			t.Errorf("%d renewals, want none after the lease was lost", got)
		}
	})
}

func TestB07RenewalIsNotAnswered(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		answer func(ctx context.Context) error
	}{
		{"it fails", func(context.Context) error { return errStore }},
		{"it fails for good", func(context.Context) error { return idem.Permanent(errStore) }},
		{"it hangs", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, events := newSpy(), &recorder{}
				confirmed := time.Now()
				s.onRenew = func(ctx context.Context, _ idem.RenewRequest, next func() error) error {
					if s.count("renew") > 1 {
						return tt.answer(ctx)
					}
					confirmed = time.Now()
					return next()
				}
				_, err := idem.Do(t.Context(), s, testKey, payload, func(ctx context.Context) (string, idem.Status, error) {
					if err := passOr(ctx, 5*lease); err == nil {
						t.Error("the context did not end")
					}
					wantErr(t, context.Cause(ctx), idem.ErrLeaseLost)
					if lived := time.Since(confirmed); lived > lease || lived < lease-time.Millisecond {
						t.Errorf("the context ended %v after the last confirmation, want at its end, %v", lived, lease)
					}
					return "", 0, ctx.Err()
				}, idem.WithLease(lease), idem.WithStoreTimeout(lease/4), events.option())
				wantErr(t, err, idem.ErrLeaseLost)
				if got := s.count("renew"); got < 3 {
					t.Errorf("%d renewals, want the unanswered one to be repeated", got)
				}
				if len(events.of(idem.EventRenewalFailed)) == 0 {
					t.Error("no event tells that renewals fail")
				}
				if got := len(events.of(idem.EventLeaseLost)); got != 1 {
					t.Errorf("%d events of the lost lease, want 1", got)
				}
			})
		})
	}
}

func TestRenewalThatIsAnsweredAgainKeepsTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, events := newSpy(), &recorder{}
		s.onRenew = func(_ context.Context, _ idem.RenewRequest, next func() error) error {
			if n := s.count("renew"); n == 2 || n == 3 {
				return errStore
			}
			return next()
		}
		res, err := idem.Do(t.Context(), s, testKey, payload, func(ctx context.Context) (string, idem.Status, error) {
			return "v", 200, passOr(ctx, 5*lease)
		}, idem.WithLease(lease), events.option())
		wantErr(t, err)
		wantResult(t, res, "v", 200, false)
		events.wantKinds(t, idem.EventRenewalFailed, idem.EventRenewalFailed, idem.EventExecuted)
	})
}

// When the answer to a renewal comes late, the lease began long before it.
func TestLeaseCountsFromBeforeTheRenewalWasSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSpy()
		var sent time.Time
		s.onRenew = func(_ context.Context, _ idem.RenewRequest, next func() error) error {
			if s.count("renew") > 1 {
				return errStore
			}
			sent = time.Now()
			err := next()
			pass(lease / 2)
			return err
		}
		_, err := idem.Do(t.Context(), s, testKey, payload, func(ctx context.Context) (string, idem.Status, error) {
			<-ctx.Done()
			if lived := time.Since(sent); lived != lease {
				t.Errorf("the context ended %v after the last confirmed renewal was sent, want %v", lived, lease)
			}
			return "", 0, ctx.Err()
		}, idem.WithLease(lease))
		wantErr(t, err, idem.ErrLeaseLost)
	})
}

// A renewal may be under way when the closure returns: it finds the claim
// settled, which is no loss.
func TestB09RenewalUnderWayWhenTheWorkIsSettled(t *testing.T) {
	t.Parallel()
	for round := range size(300, 1000) {
		synctest.Test(t, func(t *testing.T) { // ends only when no goroutine is left
			s, events := newSpy(), &recorder{}
			pending := false
			s.onRenew = func(ctx context.Context, _ idem.RenewRequest, next func() error) error {
				pending = true
				defer func() { pending = false }()
				if round%2 == 0 {
					pass(100 * time.Millisecond) // and does not listen to ctx
				} else if err := passOr(ctx, 100*time.Millisecond); err != nil {
					return err
				}
				return next()
			}
			takes := lease/3 + time.Duration(round%100)*time.Millisecond
			res, err := idem.Do(t.Context(), s, testKey, payload, func(context.Context) (string, idem.Status, error) {
				pass(takes)
				return "v", 200, nil
			}, idem.WithLease(lease), events.option())
			wantErr(t, err)
			wantResult(t, res, "v", 200, false)
			events.wantKinds(t, idem.EventExecuted)
			if pending {
				t.Error("Do returned while a renewal was under way")
			}
			if calls := s.log(); slices.Index(calls, "renew") > slices.Index(calls, "complete") {
				t.Errorf("a renewal was sent after the completion: %q", calls)
			}
		})
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
}

// The closure returns in the very moment in which a renewal is due.
func TestLargeNoRenewalIsSentOnceTheClosureHasReturned(t *testing.T) {
	t.Parallel()
	for range size(100, 1000) {
		synctest.Test(t, func(t *testing.T) {
			s := newSpy()
			_, err := idem.Do(t.Context(), s, testKey, payload, func(context.Context) (string, idem.Status, error) {
				pass(2 * lease / 3)
				return "v", 200, nil
			}, idem.WithLease(lease))
			wantErr(t, err)
			if calls := s.log(); calls[len(calls)-1] != "complete" {
				t.Errorf("a renewal was sent after the completion: %q", calls)
			}
		})
		if t.Failed() {
			return
		}
	}
}

func TestHangingRenewalDoesNotDelayTheAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSpy()
		s.onRenew = func(ctx context.Context, _ idem.RenewRequest, _ func() error) error {
			<-ctx.Done()
			return ctx.Err()
		}
		began := time.Now()
		_, err := idem.Do(t.Context(), s, testKey, payload, func(context.Context) (string, idem.Status, error) {
			pass(lease / 2)
			return "v", 200, nil
		}, idem.WithLease(lease))
		wantErr(t, err)
		if took := time.Since(began); took != lease/2 {
			t.Errorf("Do took %v, its closure %v", took, lease/2)
		}
	})
}

func TestB05LateOwnerCannotReleaseTheNextOnesClaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const unit = time.Second
		s, opts := newSpy(), []idem.Option{idem.WithLease(5 * unit)}
		dead := bound{s, idem.BoundToConn} // an owner that does not renew
		lateOwner := goes(func() {
			_, err := idem.Do(t.Context(), dead, testKey, payload, func(context.Context) (string, idem.Status, error) {
				pass(7 * unit)
				return "", 503, errBusiness
			}, opts...)
			wantErr(t, err, idem.ErrLeaseLost, errBusiness)
		})
		pass(5 * unit)
		owner := goes(func() {
			res, err := idem.Do(t.Context(), s, testKey, payload, func(context.Context) (string, idem.Status, error) {
				pass(7 * unit)
				return "second", 200, nil
			}, opts...)
			wantErr(t, err)
			wantResult(t, res, "second", 200, false)
		})
		pass(3 * unit)
		third := returns("third", 200, nil)
		_, err := idem.Do(t.Context(), s, testKey, payload, third.fn, opts...)
		wantErr(t, err, idem.ErrInProgress)
		lateOwner()
		owner()
		res, err := idem.Do(t.Context(), s, testKey, payload, third.fn, opts...)
		wantErr(t, err)
		wantResult(t, res, "second", 200, true)
		third.wantRuns(t, 0)
	})
}

func TestB21LostLeaseComesWithTheComputedValue(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		status idem.Status
		err    error
	}{
		{"an outcome to keep", 201, nil},
		{"a failure to keep", 409, errBusiness},
		{"a failure to release", 503, errBusiness},
		{"an unknown outcome", 0, idem.Unknown(errBusiness)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, events := newSpy(), &recorder{}
				late := bound{s, idem.BoundToConn}
				res, err := idem.Do(t.Context(), late, testKey, payload, func(ctx context.Context) (string, idem.Status, error) {
					<-ctx.Done()
					wantErr(t, context.Cause(ctx), idem.ErrLeaseLost)
					_, err := idem.Do(t.Context(), s, testKey, payload, returns("theirs", 200, nil).fn)
					wantErr(t, err)
					return "mine", tt.status, tt.err
				}, idem.WithLease(lease), events.option())
				wantErr(t, err, idem.ErrLeaseLost)
				if tt.err != nil {
					wantErr(t, err, tt.err)
				}
				wantResult(t, res, "mine", tt.status, false)
				if !res.CompletedAt.IsZero() {
					t.Error("CompletedAt is set, though nothing was recorded")
				}
				events.wantKinds(t, idem.EventLeaseLost, idem.EventExecuted)

				replay, err := idem.Do(t.Context(), s, testKey, payload, returns("third", 200, nil).fn)
				wantErr(t, err)
				wantResult(t, replay, "theirs", 200, true)
			})
		})
	}
}

// The fence is the token, not the time.
func TestOwnerWhoseLeaseRanOutButWasNotReplacedStillRecords(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSpy()
		w := works(func(context.Context) (string, idem.Status, error) {
			pass(2 * lease)
			return "v", 200, nil
		})
		for _, replayed := range []bool{false, true} {
			res, err := idem.Do(t.Context(), bound{s, idem.BoundToConn}, testKey, payload, w.fn, idem.WithLease(lease))
			wantErr(t, err)
			wantResult(t, res, "v", 200, replayed)
		}
	})
}

func TestB11CallersDeadlineDoesNotShortenTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSpy()
		w := works(func(context.Context) (string, idem.Status, error) {
			pass(200 * time.Millisecond) // and ignores its context
			return "v", 200, nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		wait := goes(func() {
			_, err := idem.Do(ctx, s, testKey, payload, w.fn, idem.WithLease(time.Hour))
			wantErr(t, err)
		})
		pass(100 * time.Millisecond)
		_, err := idem.Do(t.Context(), s, testKey, payload, w.fn, idem.WithLease(time.Hour))
		inProgress, ok := errors.AsType[*idem.InProgressError](err)
		if !ok || inProgress.RetryAfter != time.Hour-100*time.Millisecond {
			t.Errorf("err = %v, want the rest of the hour's lease", err)
		}
		pass(200 * time.Millisecond)
		wait()
		res, err := idem.Do(t.Context(), s, testKey, payload, w.fn)
		wantErr(t, err)
		wantResult(t, res, "v", 200, true)
		w.wantRuns(t, 1)
	})
}

func TestB13LeasesOfAllLengths(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name                string
		lease, alive, stale time.Duration // times at which to call
	}{
		{"seconds", 2 * time.Second, 1500 * time.Millisecond, 2500 * time.Millisecond},
		{"less than a second", 500 * time.Millisecond, 499 * time.Millisecond, 500 * time.Millisecond},
		{"a microsecond", time.Microsecond, time.Microsecond - 1, time.Microsecond},
		{"a nanosecond", 1, 0, 1},
		{"a hundred years", 100 * 365 * 24 * time.Hour, 99 * 365 * 24 * time.Hour, 100 * 365 * 24 * time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, w := newSpy(), returns("v", 200, nil)
				opts := []idem.Option{idem.WithLease(tt.lease), idem.WithRetention(100 * 365 * 24 * time.Hour)}
				abandon(t, s, testKey, payload, opts...)
				claimed := time.Now()
				pass(tt.alive)
				_, err := idem.Do(t.Context(), s, testKey, payload, w.fn, opts...)
				wantErr(t, err, idem.ErrInProgress)
				pass(tt.stale - time.Since(claimed))
				res, err := idem.Do(t.Context(), s, testKey, payload, w.fn, opts...)
				wantErr(t, err)
				wantResult(t, res, "v", 200, false)
			})
		})
	}
}

// A claim that was long in coming leaves less of the lease: renewal must begin
// sooner, or the closure is told that it lost a lease that it could have kept.
func TestRenewalBeginsInTimeAfterASlowClaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSpy()
		s.onClaim = func(_ context.Context, _ idem.ClaimRequest, next func() (idem.Record, error)) (idem.Record, error) {
			rec, err := next()
			pass(5 * lease / 6)
			return rec, err
		}
		_, err := idem.Do(t.Context(), s, testKey, payload, func(ctx context.Context) (string, idem.Status, error) {
			return "v", 200, passOr(ctx, 5*lease)
		}, idem.WithLease(lease))
		wantErr(t, err)
	})
}

// A claim whose answer took longer than its lease may have been taken over: it
// is confirmed before the closure starts.
func TestClaimThatTookLongerThanItsLeaseIsConfirmedFirst(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		meanwhile func(*testing.T, *spy)
		renew     error
		starts    bool
	}{
		{"nobody took over", func(*testing.T, *spy) {}, nil, true},
		{"a rival took over", func(t *testing.T, s *spy) { abandon(t, s.Store, testKey, payload) }, nil, false},
		{"a rival took over and finished", func(t *testing.T, s *spy) {
			_, err := idem.Do(t.Context(), s.Store, testKey, payload, returns("rival", 200, nil).fn)
			wantErr(t, err)
		}, nil, false},
		{"the store does not answer", func(*testing.T, *spy) {}, errStore, false},
	} {
		synctestRun(t, tt.name, func(t *testing.T) {
			s, events := newSpy(), &recorder{}
			w := works(func(ctx context.Context) (string, idem.Status, error) {
				return "v", 200, passOr(ctx, 2*lease)
			})
			s.onClaim = func(_ context.Context, _ idem.ClaimRequest, next func() (idem.Record, error)) (idem.Record, error) {
				rec, err := next()
				pass(lease + time.Second)
				tt.meanwhile(t, s)
				return rec, err
			}
			s.onRenew = func(_ context.Context, _ idem.RenewRequest, next func() error) error {
				if tt.renew != nil {
					return tt.renew
				}
				return next()
			}
			res, err := idem.Do(t.Context(), s, testKey, payload, w.fn, idem.WithLease(lease), events.option())
			if tt.starts {
				wantErr(t, err)
				wantResult(t, res, "v", 200, false)
				events.wantKinds(t, idem.EventExecuted)
				return
			}
			wantErr(t, err, idem.ErrUnavailable)
			w.wantRuns(t, 0)
			events.wantKinds(t, idem.EventUnavailable)
		})
	}
}

// The closure returns in the very moment in which its lease ends: whoever comes
// first, the outcome is recorded once and told once.
func TestLargeClosureReturnsAsItsLeaseEnds(t *testing.T) {
	t.Parallel()
	for range size(100, 1000) {
		synctest.Test(t, func(t *testing.T) {
			s, events := newSpy(), &recorder{}
			s.onRenew = func(context.Context, idem.RenewRequest, func() error) error { return errStore }
			res, err := idem.Do(t.Context(), s, testKey, payload, func(context.Context) (string, idem.Status, error) {
				pass(lease)
				return "v", 200, nil
			}, idem.WithLease(lease), events.option())
			wantErr(t, err)
			wantResult(t, res, "v", 200, false)
			if lost, executed := len(events.of(idem.EventLeaseLost)), len(events.of(idem.EventExecuted)); lost > 1 || executed != 1 {
				t.Errorf("%d events of a lost lease, %d of an execution, want at most one and one", lost, executed)
			}
			res, err = idem.Do(t.Context(), s, testKey, payload, returns("", 200, nil).fn)
			wantErr(t, err)
			wantResult(t, res, "v", 200, true)
		})
		if t.Failed() {
			return
		}
	}
}
