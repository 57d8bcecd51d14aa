package idem_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
)

func TestPeek(t *testing.T) {
	t.Parallel()
	settle := func(status idem.Status, err error) func(*testing.T, idem.Store) {
		return func(t *testing.T, s idem.Store) {
			_, got := idem.Do(t.Context(), s, testKey, payload, returns("v", status, err).fn, idem.WithLease(lease))
			wantErr(t, got, err)
		}
	}
	stale := func(t *testing.T, s idem.Store) {
		abandon(t, s, testKey, payload, idem.WithLease(lease))
		pass(lease)
	}
	for _, tt := range []struct {
		name    string
		before  func(*testing.T, idem.Store)
		payload any
		opts    []idem.Option
		replay  bool
		err     error
	}{
		{name: "a new key would run", before: func(*testing.T, idem.Store) {}},
		{name: "a success would be replayed", before: settle(200, nil), replay: true},
		{name: "a failure would be replayed", before: settle(409, errBusiness), replay: true},
		{name: "a released key would run", before: settle(503, errBusiness)},
		{name: "a released key would run with another payload", before: settle(503, errBusiness), payload: otherPayload},
		{name: "a settled key refuses another payload", before: settle(200, nil), payload: otherPayload, err: idem.ErrPayloadMismatch},
		{
			name:   "a live claim is in progress",
			before: func(t *testing.T, s idem.Store) { abandon(t, s, testKey, payload, idem.WithLease(lease)) },
			err:    idem.ErrInProgress,
		},
		{
			name:    "a live claim refuses another payload",
			before:  func(t *testing.T, s idem.Store) { abandon(t, s, testKey, payload, idem.WithLease(lease)) },
			payload: otherPayload, err: idem.ErrPayloadMismatch,
		},
		{name: "a stale claim would run", before: stale},
		{name: "a stale claim refuses another payload", before: stale, payload: otherPayload, err: idem.ErrPayloadMismatch},
		{name: "a stale claim is unknown where the policy is to refuse it", before: stale, opts: []idem.Option{idem.WithStale(idem.Refuse)}, err: idem.ErrOutcomeUnknown},
		{
			name: "an expired record would run, whatever the payload",
			before: func(t *testing.T, s idem.Store) {
				_, err := idem.Do(t.Context(), s, testKey, payload, returns("v", 200, nil).fn, idem.WithRetention(time.Hour))
				wantErr(t, err)
				pass(time.Hour)
			},
			payload: otherPayload,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSpy()
				tt.before(t, s.Store)
				ask := tt.payload
				if ask == nil {
					ask = payload
				}
				replay, err := idem.Peek(t.Context(), s, testKey, ask, tt.opts...)
				if replay != tt.replay {
					t.Errorf("replay = %v, want %v", replay, tt.replay)
				}
				wantErr(t, err, targets(tt.err)...)
				s.wantCalls(t, "lookup") // it writes nothing

				// Do does what Peek said.
				w := returns("w", 200, nil)
				res, err := idem.Do(t.Context(), s, testKey, ask, w.fn, tt.opts...)
				switch {
				case tt.err != nil:
					wantErr(t, err, tt.err)
					w.wantRuns(t, 0)
				case tt.replay:
					w.wantRuns(t, 0)
				default:
					wantErr(t, err)
					w.wantRuns(t, 1)
				}
				if res.Replayed != tt.replay {
					t.Errorf("Do replayed: %v, want %v", res.Replayed, tt.replay)
				}
			})
		})
	}
}

func targets(err error) []error {
	if err == nil {
		return nil
	}
	return []error{err}
}

func TestPeekWithoutAStore(t *testing.T) {
	t.Parallel()
	s := newSpy()
	s.onLookup = func(context.Context, idem.Key, func() (idem.Record, bool, error)) (idem.Record, bool, error) {
		return idem.Record{}, false, errStore
	}
	replay, err := idem.Peek(t.Context(), s, testKey, payload)
	wantErr(t, err, idem.ErrUnavailable, errStore)
	if replay {
		t.Error("replay = true")
	}
}

func TestPeekOfACorruptRecord(t *testing.T) {
	t.Parallel()
	s := newSpy()
	s.onLookup = func(context.Context, idem.Key, func() (idem.Record, bool, error)) (idem.Record, bool, error) {
		return idem.Record{}, false, idem.ErrCorruptRecord
	}
	_, err := idem.Peek(t.Context(), s, testKey, payload)
	wantErr(t, err, idem.ErrCorruptRecord)
	notErr(t, err, idem.ErrUnavailable)
}

func TestResolve(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		find   *worker[string]
		err    error // of Resolve
		peek   error // afterwards
		replay bool
	}{
		{name: "stores a success", find: returns("found", 201, nil), replay: true},
		{name: "stores a failure", find: returns("found", 409, errBusiness), err: errBusiness, replay: true},
		{name: "frees the key", find: returns("", 503, nil)},
		{name: "leaves it unknown", find: returns("", 0, idem.Unknown(errBusiness)), err: idem.ErrOutcomeUnknown, peek: idem.ErrOutcomeUnknown},
		{name: "leaves it unknown when it was interrupted", find: returns("", 0, context.DeadlineExceeded), err: context.DeadlineExceeded, peek: idem.ErrOutcomeUnknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, opts := newSpy(), []idem.Option{idem.WithLease(lease), idem.WithStale(idem.Refuse)}
				abandon(t, s, testKey, payload, opts...)
				before := record(t, s)
				pass(lease)
				w := returns("again", 200, nil)
				_, err := idem.Do(t.Context(), s, testKey, payload, w.fn, opts...)
				wantErr(t, err, idem.ErrOutcomeUnknown)
				w.wantRuns(t, 0)

				res, err := idem.Resolve(t.Context(), s, testKey, func(ctx context.Context) (string, idem.Status, error) {
					if got := idem.ExecutionID(ctx); got != before.ExecutionID.String() {
						t.Errorf("execution id %v, want that of the lost run, %v", got, before.ExecutionID)
					}
					if !idem.Reclaimed(ctx) {
						t.Error("Reclaimed(ctx) = false")
					}
					return tt.find.fn(ctx)
				}, opts...)
				wantErr(t, err, targets(tt.err)...)
				tt.find.wantRuns(t, 1)
				if res.Replayed {
					t.Error("Replayed = true, want false: it was found out now")
				}

				pass(lease)
				replay, err := idem.Peek(t.Context(), s, testKey, payload, opts...)
				wantErr(t, err, targets(tt.peek)...)
				if replay != tt.replay {
					t.Errorf("replay = %v, want %v", replay, tt.replay)
				}
				if tt.replay {
					again, err := idem.Do(t.Context(), s, testKey, payload, w.fn, opts...)
					if tt.err == nil {
						wantErr(t, err)
					}
					wantResult(t, again, res.Value, res.Status, true)
					w.wantRuns(t, 0)
				}
			})
		})
	}
}

func TestResolveOfNothing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		before func(*testing.T, idem.Store)
		want   error
	}{
		{"no record", func(*testing.T, idem.Store) {}, idem.ErrNothingToResolve},
		{"a settled key", func(t *testing.T, s idem.Store) {
			_, err := idem.Do(t.Context(), s, testKey, payload, returns("v", 200, nil).fn)
			wantErr(t, err)
		}, idem.ErrNothingToResolve},
		{"a released key", func(t *testing.T, s idem.Store) {
			_, err := idem.Do(t.Context(), s, testKey, payload, returns("v", 503, nil).fn)
			wantErr(t, err)
		}, idem.ErrNothingToResolve},
		{"a stale claim that has expired", func(t *testing.T, s idem.Store) {
			abandon(t, s, testKey, payload, idem.WithRetention(time.Hour))
			pass(2 * time.Hour)
		}, idem.ErrNothingToResolve},
		{"a live claim", func(t *testing.T, s idem.Store) {
			abandon(t, s, testKey, payload)
		}, idem.ErrInProgress},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, find := newSpy(), returns("found", 200, nil)
				tt.before(t, s.Store)
				_, err := idem.Resolve(t.Context(), s, testKey, find.fn)
				wantErr(t, err, tt.want)
				find.wantRuns(t, 0)
				s.wantCalls(t, "lookup")
			})
		})
	}
}

func TestResolveFencesALateOwnerOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, opts := newSpy(), []idem.Option{idem.WithLease(lease), idem.WithStale(idem.Refuse)}
		lateOwner := goes(func() {
			res, err := idem.Do(t.Context(), bound{s, idem.BoundToConn}, testKey, payload, func(context.Context) (string, idem.Status, error) {
				pass(3 * lease)
				return "late", 200, nil
			}, opts...)
			wantErr(t, err, idem.ErrLeaseLost)
			wantResult(t, res, "late", 200, false)
		})
		pass(2 * lease)
		_, err := idem.Resolve(t.Context(), s, testKey, returns("found", 200, nil).fn, opts...)
		wantErr(t, err)
		lateOwner()
		res, err := idem.Do(t.Context(), s, testKey, payload, returns("new", 200, nil).fn, opts...)
		wantErr(t, err)
		wantResult(t, res, "found", 200, true)
	})
}

// Between the look and the takeover of Resolve somebody else is quicker.
func TestResolveLosesARace(t *testing.T) {
	t.Parallel()
	synctestRun(t, "to a rival resolver", func(t *testing.T) {
		s, opts := newSpy(), []idem.Option{idem.WithLease(lease), idem.WithStale(idem.Refuse)}
		abandon(t, s, testKey, payload, opts...)
		pass(lease)
		start := make(chan struct{})
		s.onLookup = func(_ context.Context, _ idem.Key, next func() (idem.Record, bool, error)) (idem.Record, bool, error) {
			rec, found, err := next()
			<-start // both have looked
			return rec, found, err
		}
		find := works(func(context.Context) (string, idem.Status, error) {
			pass(time.Second)
			return "found", 200, nil
		})
		var errs [2]error
		var waits [2]func()
		for i := range waits {
			waits[i] = goes(func() { _, errs[i] = idem.Resolve(t.Context(), s, testKey, find.fn, opts...) })
		}
		synctest.Wait()
		close(start)
		waits[0]()
		waits[1]()
		find.wantRuns(t, 1)
		if errs[0] == nil {
			errs[0], errs[1] = errs[1], errs[0]
		}
		wantErr(t, errs[0], idem.ErrInProgress)
		wantErr(t, errs[1])
	})
	synctestRun(t, "to the late owner, who settles the key", func(t *testing.T) {
		s, opts := newSpy(), []idem.Option{idem.WithLease(lease), idem.WithStale(idem.Refuse)}
		settle := make(chan struct{})
		owner := goes(func() {
			_, err := idem.Do(t.Context(), bound{s, idem.BoundToConn}, testKey, payload, func(context.Context) (string, idem.Status, error) {
				<-settle
				return "late", 200, nil
			}, opts...)
			wantErr(t, err)
		})
		pass(2 * lease)
		s.onLookup = func(_ context.Context, _ idem.Key, next func() (idem.Record, bool, error)) (idem.Record, bool, error) {
			rec, found, err := next()
			close(settle)
			owner()
			return rec, found, err
		}
		find := returns("found", 200, nil)
		_, err := idem.Resolve(t.Context(), s, testKey, find.fn, opts...)
		find.wantRuns(t, 0)
		wantErr(t, err, idem.ErrNothingToResolve)
	})
}

// A Resolve whose caller goes away before find runs knows nothing: the key's
// outcome must stay unknown. To free it would let the work be done twice.
func TestInterruptedTakeoverKeepsTheOutcomeUnknown(t *testing.T) {
	t.Parallel()
	setUp := func(t *testing.T) (*spy, context.Context, []idem.Option) {
		s, opts := newSpy(), []idem.Option{idem.WithLease(lease), idem.WithStale(idem.Refuse)}
		abandon(t, s, testKey, payload, opts...)
		pass(lease)
		ctx, cancel := context.WithCancel(t.Context())
		s.onClaim = func(_ context.Context, _ idem.ClaimRequest, next func() (idem.Record, error)) (idem.Record, error) {
			rec, err := next()
			if rec.Attempt == 2 {
				cancel()
			}
			return rec, err
		}
		return s, ctx, opts
	}
	after := func(t *testing.T, s *spy, opts []idem.Option) {
		w := returns("again", 200, nil)
		_, err := idem.Do(t.Context(), s, testKey, otherPayload, w.fn, opts...)
		wantErr(t, err, idem.ErrPayloadMismatch)
		pass(lease)
		_, err = idem.Do(t.Context(), s, testKey, payload, w.fn, opts...)
		wantErr(t, err, idem.ErrOutcomeUnknown)
		w.wantRuns(t, 0)
	}
	synctestRun(t, "by Resolve", func(t *testing.T) {
		s, ctx, opts := setUp(t)
		find := returns("found", 200, nil)
		_, err := idem.Resolve(ctx, s, testKey, find.fn, opts...)
		wantErr(t, err, context.Canceled)
		find.wantRuns(t, 0)
		after(t, s, opts)
	})
	synctestRun(t, "by a caller who reclaims", func(t *testing.T) {
		s, ctx, opts := setUp(t)
		w := returns("again", 200, nil)
		_, err := idem.Do(ctx, s, testKey, payload, w.fn, idem.WithLease(lease))
		wantErr(t, err, context.Canceled)
		w.wantRuns(t, 0)
		after(t, s, opts)
	})
}

// synctestRun is a parallel sub-test in a bubble.
func synctestRun(t *testing.T, name string, f func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, f)
	})
}

func TestResolveWhereTheRecordIsCorrupt(t *testing.T) {
	t.Parallel()
	s, find := newSpy(), returns("found", 200, nil)
	s.onLookup = func(context.Context, idem.Key, func() (idem.Record, bool, error)) (idem.Record, bool, error) {
		return idem.Record{State: "bogus", Attempt: 1, ExpiresIn: time.Hour}, true, nil
	}
	_, err := idem.Resolve(t.Context(), s, testKey, find.fn)
	wantErr(t, err, idem.ErrCorruptRecord)
	find.wantRuns(t, 0)
}

func TestResolveWithoutAStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, find := newSpy(), returns("found", 200, nil)
		abandon(t, s, testKey, payload, idem.WithLease(lease))
		pass(lease)
		s.onClaim = func(context.Context, idem.ClaimRequest, func() (idem.Record, error)) (idem.Record, error) {
			return idem.Record{}, errStore
		}
		_, err := idem.Resolve(t.Context(), s, testKey, find.fn)
		wantErr(t, err, idem.ErrUnavailable, errStore)
		find.wantRuns(t, 0)
	})
}

// An error that find gives no status means that it could not find out: a
// provider that does not answer must not free the key.
func TestResolveDoesNotFreeTheKeyBecauseFindFailed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, opts := newSpy(), []idem.Option{idem.WithLease(lease), idem.WithStale(idem.Refuse)}
		abandon(t, s, testKey, payload, opts...)
		pass(lease)
		failed := errors.New("no route to host")
		_, err := idem.Resolve(t.Context(), s, testKey, returns("", 0, failed).fn, opts...)
		wantErr(t, err, failed)
		pass(lease)
		w := returns("again", 200, nil)
		_, err = idem.Do(t.Context(), s, testKey, payload, w.fn, opts...)
		wantErr(t, err, idem.ErrOutcomeUnknown)
		w.wantRuns(t, 0)
	})
}

func TestPeekAndResolveCheckTheirArguments(t *testing.T) {
	t.Parallel()
	find := returns("found", 200, nil)
	for _, tt := range []struct {
		name string
		key  idem.Key
		opts []idem.Option
		want error
	}{
		{"a bad key", idem.Key{User: "u", Scope: "s"}, nil, idem.ErrInvalidKey},
		{"a bad option", testKey, []idem.Option{idem.WithLease(0)}, idem.ErrInvalidOption},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newSpy()
			_, err := idem.Peek(t.Context(), s, tt.key, payload, tt.opts...)
			wantErr(t, err, tt.want)
			_, err = idem.Resolve(t.Context(), s, tt.key, find.fn, tt.opts...)
			wantErr(t, err, tt.want)
			if diff := cmp.Diff([]string(nil), s.log()); diff != "" {
				t.Errorf("requests to the store (-want +got):\n%s", diff)
			}
			find.wantRuns(t, 0)
		})
	}
}
