package idem_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/memstore"
)

func TestB01DeadOwnerBlocksTheKeyForItsLeaseOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, dead, w := newSpy(), returns("dead", 200, nil), returns("v", 200, nil)
		s.onComplete = func(_ context.Context, _ idem.CompleteRequest, next func() (time.Time, error)) (time.Time, error) {
			if s.count("complete") == 1 {
				return time.Now(), nil // dropped: the owner died
			}
			return next()
		}
		opts := []idem.Option{idem.WithLease(200 * time.Millisecond), idem.WithRetention(24 * time.Hour)}
		_, err := idem.Do(t.Context(), s, testKey, payload, dead.fn, opts...)
		wantErr(t, err)
		pass(50 * time.Millisecond)
		_, err = idem.Do(t.Context(), s, testKey, payload, w.fn, opts...)
		wantErr(t, err, idem.ErrInProgress)
		pass(350 * time.Millisecond)
		for _, replayed := range []bool{false, true} {
			res, err := idem.Do(t.Context(), s, testKey, payload, w.fn, opts...)
			wantErr(t, err)
			wantResult(t, res, "v", 200, replayed)
		}
		w.wantRuns(t, 1)
	})
}

func TestB29NobodyWaitsForAnOwnerWithoutEnd(t *testing.T) {
	t.Parallel()
	callers := size(500, 5000)
	synctestRun(t, "callers who do not wait", func(t *testing.T) {
		manyCallers(t, callers, idem.ErrInProgress)
	})
	synctestRun(t, "waiters whose contexts end", func(t *testing.T) {
		manyCallers(t, callers, context.DeadlineExceeded, idem.WithWait(time.Hour))
	})
	t.Run("closures that panic", func(t *testing.T) {
		t.Parallel()
		s := newSpy()
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				defer func() { _ = recover() }()
				key := idem.Key{User: idem.NoUser, Scope: "s", Key: fmt.Sprint(i % 50)}
				_, err := idem.Do(t.Context(), s, key, payload, panicsHere)
				wantErr(t, err, idem.ErrInProgress)
			})
		}
		wg.Wait()
	})
}

// manyCallers calls while an owner runs, each with 50 ms to live.
func manyCallers(t *testing.T, n int, want error, opts ...idem.Option) {
	s, w := memstore.New(), works(func(context.Context) (string, idem.Status, error) {
		pass(time.Minute)
		return "v", 200, nil
	})
	owner := goes(func() {
		_, err := idem.Do(t.Context(), s, testKey, payload, w.fn)
		wantErr(t, err)
	})
	synctest.Wait()
	began := time.Now()
	var others atomic.Int32
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if _, err := idem.Do(ctx, s, testKey, payload, w.fn, opts...); !errors.Is(err, want) {
				others.Add(1)
			}
		})
	}
	wg.Wait()
	if took := time.Since(began); took > 50*time.Millisecond {
		t.Errorf("the callers took %v", took)
	}
	if n := others.Load(); n > 0 {
		t.Errorf("%d callers did not get %v", n, want)
	}
	owner()
	w.wantRuns(t, 1)
}

func TestB33AnotherPayloadIsNoSecondRecord(t *testing.T) {
	t.Parallel()
	s, w := memstore.New(), returns("v", 200, nil)
	_, err := idem.Do(t.Context(), s, testKey, payload, w.fn, idem.WithRetention(1))
	wantErr(t, err)
	w2 := newSpy()
	w2.Store = s
	w2.onClaim = func(_ context.Context, _ idem.ClaimRequest, next func() (idem.Record, error)) (idem.Record, error) {
		rec, err := next()
		rec.ExpiresIn = time.Hour
		return rec, err
	}
	_, err = idem.Do(t.Context(), w2, testKey, otherPayload, w.fn)
	wantErr(t, err, idem.ErrPayloadMismatch)
	w.wantRuns(t, 1)
	purged, err := s.Purge(t.Context(), idem.PurgeRequest{Limit: 10})
	wantErr(t, err)
	if purged.Deleted != 1 {
		t.Errorf("there were %d records, want 1", purged.Deleted)
	}
}

func TestB35TwoPayloadsAtOnce(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	for round := range size(300, 1000) {
		key := idem.Key{User: "u", Scope: "s", Key: fmt.Sprint(round)}
		w := returns("v", 200, nil)
		start := make(chan struct{})
		var errs [2]error
		var waits [2]func()
		for i, p := range [...]string{payload, otherPayload} {
			waits[i] = goes(func() {
				<-start
				_, errs[i] = idem.Do(t.Context(), s, key, p, w.fn)
			})
		}
		close(start)
		waits[0]()
		waits[1]()
		if errs[0] == nil {
			errs[0], errs[1] = errs[1], errs[0]
		}
		wantErr(t, errs[0], idem.ErrPayloadMismatch)
		wantErr(t, errs[1])
		w.wantRuns(t, 1)
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
}

// The record that stands in A's way is purged and made anew by B before A can
// take it over: the verdict must come from the record that won.
func TestB37LostTakeoverIsJudgedByTheRecordThatWon(t *testing.T) {
	t.Parallel()
	for _, purgeAt := range []int{2, 3} { // which of A's claims finds B's record
		for _, tt := range []struct {
			name    string
			payload string
			status  idem.Status
			err     error
		}{
			{"B has finished with the same payload", payload, 200, nil},
			{"B has another payload", otherPayload, 200, idem.ErrPayloadMismatch},
			{"B has failed", payload, 409, nil},
		} {
			synctestRun(t, fmt.Sprintf("%s before claim %d", tt.name, purgeAt), func(t *testing.T) {
				s, a := newSpy(), returns("A", 200, nil)
				_, err := idem.Do(t.Context(), s.Store, testKey, payload, returns("old", 200, nil).fn, idem.WithRetention(time.Hour))
				wantErr(t, err)
				pass(time.Hour)
				s.onClaim = func(ctx context.Context, req idem.ClaimRequest, next func() (idem.Record, error)) (idem.Record, error) {
					n := s.count("claim")
					if n == 2 {
						_, err := s.Store.Purge(ctx, idem.PurgeRequest{Limit: 10})
						wantErr(t, err)
					}
					if n == purgeAt {
						_, err := idem.Do(ctx, s.Store, testKey, tt.payload, returns("B", tt.status, nil).fn)
						wantErr(t, err)
					}
					return next()
				}
				res, err := idem.Do(t.Context(), s, testKey, payload, a.fn)
				wantErr(t, err, targets(tt.err)...)
				if tt.err == nil {
					wantResult(t, res, "B", tt.status, true)
				}
				a.wantRuns(t, 0)
			})
		}
	}
}

func TestB37RecordThatKeepsChangingIsNotRunUnclaimed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		rec  idem.Record
	}{
		{"it is gone each time", idem.Record{}},
		{"it is free each time", idem.Record{State: idem.Processing, Attempt: 7, Hash: idem.Hash{Version: 1}, ExpiresIn: time.Hour}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, w, events := newSpy(), returns("v", 200, nil), &recorder{}
			s.onClaim = func(context.Context, idem.ClaimRequest, func() (idem.Record, error)) (idem.Record, error) {
				return tt.rec, nil
			}
			_, err := idem.Do(t.Context(), s, testKey, payload, w.fn, events.option())
			wantErr(t, err, idem.ErrUnavailable)
			w.wantRuns(t, 0)
			if got := s.count("claim"); got > 10 {
				t.Errorf("%d claims, want a bound", got)
			}
			events.wantKinds(t, idem.EventUnavailable)
		})
	}
}

// The request is carried out, its reply gets lost.
func TestB41LostReplyOf(t *testing.T) {
	t.Parallel()
	synctestRun(t, "the first claim", func(t *testing.T) {
		s, w := newSpy(), returns("v", 200, nil)
		loseClaim(s, 1)
		res, err := idem.Do(t.Context(), s, testKey, payload, w.fn)
		wantErr(t, err)
		wantResult(t, res, "v", 200, false)
		if res.Attempt != 1 {
			t.Errorf("attempt %d, want 1: it is the same claim", res.Attempt)
		}
		s.wantCalls(t, "claim", "claim", "complete")
	})
	synctestRun(t, "a takeover", func(t *testing.T) {
		s, w := newSpy(), returns("v", 200, nil)
		abandon(t, s.Store, testKey, payload, idem.WithLease(lease))
		pass(lease)
		loseClaim(s, 2)
		res, err := idem.Do(t.Context(), s, testKey, payload, w.fn)
		wantErr(t, err)
		wantResult(t, res, "v", 200, false)
		if res.Attempt != 2 {
			t.Errorf("attempt %d, want 2", res.Attempt)
		}
		s.wantCalls(t, "claim", "claim", "claim", "complete")
	})
	synctestRun(t, "every claim", func(t *testing.T) {
		s, w := newSpy(), returns("v", 200, nil)
		s.onClaim = func(_ context.Context, _ idem.ClaimRequest, next func() (idem.Record, error)) (idem.Record, error) {
			_, _ = next()
			return idem.Record{}, errStore
		}
		_, err := idem.Do(t.Context(), s, testKey, payload, w.fn, idem.WithLease(lease))
		wantErr(t, err, idem.ErrUnavailable, errStore)
		notErr(t, err, idem.ErrInProgress)
		w.wantRuns(t, 0)
		pass(lease)
		res, err := idem.Do(t.Context(), s.Store, testKey, payload, w.fn)
		wantErr(t, err)
		wantResult(t, res, "v", 200, false)
	})
	synctestRun(t, "a completion", func(t *testing.T) {
		s, w, events := newSpy(), returns("v", 200, nil), &recorder{}
		var first time.Time
		s.onComplete = func(_ context.Context, _ idem.CompleteRequest, next func() (time.Time, error)) (time.Time, error) {
			at, err := next()
			if s.count("complete") == 1 {
				first = at
				return time.Time{}, errStore
			}
			return at, err
		}
		res, err := idem.Do(t.Context(), s, testKey, payload, w.fn, events.option())
		wantErr(t, err)
		if !res.CompletedAt.Equal(first) {
			t.Errorf("CompletedAt = %v, want the first completion's, %v", res.CompletedAt, first)
		}
		events.wantKinds(t, idem.EventExecuted)
		s.wantCalls(t, "claim", "complete", "complete")
	})
	synctestRun(t, "a release", func(t *testing.T) {
		s, w, events := newSpy(), returns("", 503, errBusiness), &recorder{}
		s.onRelease = func(_ context.Context, _ idem.ReleaseRequest, next func() error) error {
			err := next()
			if s.count("release") == 1 {
				return errStore
			}
			return err
		}
		_, err := idem.Do(t.Context(), s, testKey, payload, w.fn, events.option())
		wantErr(t, err, errBusiness)
		notErr(t, err, idem.ErrLeaseLost, idem.ErrNotRecorded)
		events.wantKinds(t, idem.EventExecuted)
		s.wantCalls(t, "claim", "release", "release")
		res, err := idem.Do(t.Context(), s.Store, testKey, otherPayload, returns("v", 200, nil).fn)
		wantErr(t, err)
		wantResult(t, res, "v", 200, false)
	})
}

// loseClaim loses the reply of the n-th claim.
func loseClaim(s *spy, n int) {
	s.onClaim = func(_ context.Context, _ idem.ClaimRequest, next func() (idem.Record, error)) (idem.Record, error) {
		rec, err := next()
		if s.count("claim") == n {
			return idem.Record{}, errStore
		}
		return rec, err
	}
}

// Every path that can hand out an answer compares the payload.
func TestB53MismatchOnEveryPath(t *testing.T) {
	t.Parallel()
	synctestRun(t, "the claim meets a settled record", func(t *testing.T) {
		s := newSpy()
		_, err := idem.Do(t.Context(), s, testKey, payload, returns("v", 200, nil).fn)
		wantErr(t, err)
		wantMismatch(t, s)
	})
	synctestRun(t, "the claim meets a live claim", func(t *testing.T) {
		s := newSpy()
		abandon(t, s, testKey, payload)
		wantMismatch(t, s)
	})
	synctestRun(t, "a waiter, at once", func(t *testing.T) {
		s := newSpy()
		abandon(t, s, testKey, payload)
		began := time.Now()
		wantMismatch(t, s, idem.WithWait(time.Hour))
		if took := time.Since(began); took != 0 {
			t.Errorf("it waited for %v", took)
		}
	})
	synctestRun(t, "a waiter, whose key is released to another payload meanwhile", func(t *testing.T) {
		s, running := newSpy(), make(chan struct{})
		owner := goes(func() {
			_, err := idem.Do(t.Context(), s, testKey, otherPayload, func(context.Context) (string, idem.Status, error) {
				close(running)
				pass(time.Second)
				return "", 503, nil
			})
			wantErr(t, err)
			_, err = idem.Do(t.Context(), s, testKey, payload, returns("v", 200, nil).fn)
			wantErr(t, err)
		})
		<-running
		wantMismatch(t, s, idem.WithWait(time.Hour))
		owner()
	})
	synctestRun(t, "a stale claim", func(t *testing.T) {
		s := newSpy()
		abandon(t, s, testKey, payload, idem.WithLease(lease))
		pass(lease)
		wantMismatch(t, s)
		wantMismatch(t, s, idem.WithStale(idem.Refuse))
	})
	synctestRun(t, "a reclaim that another payload wins", func(t *testing.T) {
		s := newSpy()
		_, err := idem.Do(t.Context(), s.Store, testKey, "old", returns("v", 503, nil).fn)
		wantErr(t, err)
		s.onClaim = func(_ context.Context, req idem.ClaimRequest, next func() (idem.Record, error)) (idem.Record, error) {
			if req.Replace != nil && s.count("claim") == 2 {
				abandon(t, s.Store, testKey, payload)
			}
			return next()
		}
		wantMismatch(t, s)
	})
}

// wantMismatch calls with otherPayload.
func wantMismatch(t *testing.T, s idem.Store, opts ...idem.Option) {
	t.Helper()
	w := returns("w", 200, nil)
	res, err := idem.Do(t.Context(), s, testKey, otherPayload, w.fn, opts...)
	wantErr(t, err, idem.ErrPayloadMismatch)
	wantResult(t, res, "", 0, false)
	w.wantRuns(t, 0)
	replay, err := idem.Peek(t.Context(), s, testKey, otherPayload, opts...)
	wantErr(t, err, idem.ErrPayloadMismatch)
	if replay {
		t.Error("Peek would replay")
	}
}

func TestB62StoreIsDown(t *testing.T) {
	t.Parallel()
	synctestRun(t, "before the call", func(t *testing.T) {
		s, w, events := newSpy(), returns("v", 200, nil), &recorder{}
		s.onClaim = func(context.Context, idem.ClaimRequest, func() (idem.Record, error)) (idem.Record, error) {
			return idem.Record{}, errStore
		}
		_, err := idem.Do(t.Context(), s, testKey, payload, w.fn, events.option())
		wantErr(t, err, idem.ErrUnavailable, errStore)
		w.wantRuns(t, 0)
		events.wantKinds(t, idem.EventUnavailable)
		if got := s.count("claim"); got != 3 {
			t.Errorf("%d claims, want 3 tries", got)
		}
	})
	synctestRun(t, "for good", func(t *testing.T) {
		s, w := newSpy(), returns("v", 200, nil)
		s.onClaim = func(context.Context, idem.ClaimRequest, func() (idem.Record, error)) (idem.Record, error) {
			return idem.Record{}, idem.Permanent(errStore)
		}
		_, err := idem.Do(t.Context(), s, testKey, payload, w.fn)
		wantErr(t, err, idem.ErrUnavailable, errStore)
		s.wantCalls(t, "claim")
	})
	synctestRun(t, "it hangs", func(t *testing.T) {
		s, w := newSpy(), returns("v", 200, nil)
		s.onClaim = func(ctx context.Context, _ idem.ClaimRequest, _ func() (idem.Record, error)) (idem.Record, error) {
			<-ctx.Done()
			return idem.Record{}, ctx.Err()
		}
		began := time.Now()
		_, err := idem.Do(t.Context(), s, testKey, payload, w.fn, idem.WithStoreTimeout(time.Second))
		wantErr(t, err, idem.ErrUnavailable)
		if took := time.Since(began); took != time.Second {
			t.Errorf("the claim took %v, want the limit of a second", took)
		}
		w.wantRuns(t, 0)
	})
	synctestRun(t, "between claim and completion", func(t *testing.T) {
		s, w, events := newSpy(), returns("v", 200, nil), &recorder{}
		s.onComplete = func(context.Context, idem.CompleteRequest, func() (time.Time, error)) (time.Time, error) {
			return time.Time{}, errStore
		}
		res, err := idem.Do(t.Context(), s, testKey, payload, w.fn, events.option())
		wantErr(t, err, idem.ErrNotRecorded, errStore)
		notErr(t, err, idem.ErrUnavailable)
		wantResult(t, res, "v", 200, false)
		w.wantRuns(t, 1)
		events.wantKinds(t, idem.EventExecuted, idem.EventNotRecorded)
	})
	synctestRun(t, "it is full", func(t *testing.T) {
		s, w := memstore.New(memstore.MaxRecords(1)), returns("v", 200, nil)
		_, err := idem.Do(t.Context(), s, testKey, payload, w.fn)
		wantErr(t, err)
		_, err = idem.Do(t.Context(), s, idem.Key{User: "u", Scope: "s", Key: "another"}, payload, w.fn)
		wantErr(t, err, idem.ErrUnavailable, memstore.ErrFull)
		w.wantRuns(t, 1)
	})
}

func TestContextThatHasEndedTouchesNothing(t *testing.T) {
	t.Parallel()
	s, w := newSpy(), returns("v", 200, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := idem.Do(ctx, s, testKey, payload, w.fn)
	wantErr(t, err, context.Canceled)
	w.wantRuns(t, 0)
	s.wantCalls(t)
}

func TestContextThatEndsDuringTheClaimLeavesTheKeyFree(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		before func(*testing.T, *spy)
	}{
		{"a new key", func(*testing.T, *spy) {}},
		{"a released key", func(t *testing.T, s *spy) {
			_, err := idem.Do(t.Context(), s, testKey, otherPayload, returns("", 503, nil).fn)
			wantErr(t, err)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, w, events := newSpy(), returns("v", 200, nil), &recorder{}
			tt.before(t, s)
			ctx, cancel := context.WithCancel(t.Context())
			s.onClaim = func(claimCtx context.Context, _ idem.ClaimRequest, next func() (idem.Record, error)) (idem.Record, error) {
				rec, err := next()
				if rec.State == idem.Processing && rec.Token != (idem.ID{}) {
					cancel()
				}
				wantErr(t, claimCtx.Err()) // or the claim would churn the pool
				return rec, err
			}
			_, err := idem.Do(ctx, s, testKey, payload, w.fn, events.option())
			wantErr(t, err, context.Canceled)
			w.wantRuns(t, 0)
			events.wantKinds(t)
			res, err := idem.Do(t.Context(), s.Store, testKey, otherPayload, returns("other", 200, nil).fn)
			wantErr(t, err)
			wantResult(t, res, "other", 200, false)
		})
	}
}

func TestB130KeyThatIsUsedAsAUniquenessRule(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, w := newSpy(), returns("customer 42", 201, nil)
		key := idem.Key{User: idem.NoUser, Scope: "customers.create", Key: "customer-42"}
		opt := idem.WithRetention(14 * 24 * time.Hour)
		_, err := idem.Do(t.Context(), s, key, payload, w.fn, opt)
		wantErr(t, err)
		pass(24 * time.Hour)
		res, err := idem.Do(t.Context(), s, key, payload, w.fn, opt)
		wantErr(t, err)
		wantResult(t, res, "customer 42", 201, true)
		_, err = idem.Do(t.Context(), s, key, otherPayload, w.fn, opt)
		wantErr(t, err, idem.ErrPayloadMismatch)
		pass(13 * 24 * time.Hour)
		res, err = idem.Do(t.Context(), s, key, payload, w.fn, opt)
		wantErr(t, err)
		wantResult(t, res, "customer 42", 201, false)
		w.wantRuns(t, 2)
	})
}

// A transaction is at work at the key, which has published nothing yet.
func TestBusyKeyIsInProgressWhateverThePayload(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, w := newSpy(), returns("v", 200, nil)
		began := time.Now()
		s.onClaim = func(_ context.Context, req idem.ClaimRequest, next func() (idem.Record, error)) (idem.Record, error) {
			if time.Since(began) < 10*time.Second {
				return req.Busy(), nil
			}
			return next()
		}
		for _, p := range []string{payload, otherPayload} {
			_, err := idem.Do(t.Context(), s, testKey, p, w.fn, idem.WithStale(idem.Refuse))
			if inProgress, ok := errors.AsType[*idem.InProgressError](err); !ok || inProgress.RetryAfter <= 0 {
				t.Errorf("err = %v, want an InProgressError with a retry time", err)
			}
		}
		w.wantRuns(t, 0)
		res, err := idem.Do(t.Context(), s, testKey, payload, w.fn, idem.WithWait(time.Minute))
		wantErr(t, err)
		wantResult(t, res, "v", 200, false)
	})
}
