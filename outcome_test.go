package idem_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
)

// The table "What comes back", row by row.
func TestWhatComesBack(t *testing.T) {
	t.Parallel()
	opts := []idem.Option{
		idem.WithLease(lease), idem.WithRetention(time.Hour), idem.WithMaxResultBytes(100),
		idem.WithErrors(map[string]error{"out_of_stock": errBusiness}),
	}
	ends := func(v string, status idem.Status, err error) func(*testing.T, idem.Store) {
		return func(t *testing.T, s idem.Store) {
			_, _ = idem.Do(t.Context(), s, testKey, payload, returns(v, status, err).fn, opts...)
		}
	}
	live := ends("", 0, idem.Unknown(nil))
	then := func(before func(*testing.T, idem.Store), d time.Duration) func(*testing.T, idem.Store) {
		return func(t *testing.T, s idem.Store) { before(t, s); pass(d) }
	}
	large := string(make([]byte, 200))

	for _, tt := range []struct {
		name   string
		before func(*testing.T, idem.Store)
		opts   []idem.Option

		runs     int
		value    string
		status   idem.Status
		replayed bool
		recorded bool // the error is a RecordedError
		err      error
		other    error // the error of a call with another payload; nil if it runs
	}{
		{name: "new", before: func(*testing.T, idem.Store) {}, runs: 1, value: "new", status: 201},
		{name: "expired", before: then(ends("old", 200, nil), time.Hour), runs: 1, value: "new", status: 201},
		{name: "abandoned and expired", before: then(live, lease+time.Hour), runs: 1, value: "new", status: 201},
		{name: "released", before: ends("", 503, nil), runs: 1, value: "new", status: 201},
		{name: "lease alive", before: live, err: idem.ErrInProgress, other: idem.ErrPayloadMismatch},
		{name: "lease over", before: then(live, lease), runs: 1, value: "new", status: 201, other: idem.ErrPayloadMismatch},
		{
			name: "lease over, refused", before: then(live, lease), opts: []idem.Option{idem.WithStale(idem.Refuse)},
			err: idem.ErrOutcomeUnknown, other: idem.ErrPayloadMismatch,
		},
		{name: "succeeded", before: ends("old", 202, nil), value: "old", status: 202, replayed: true, other: idem.ErrPayloadMismatch},
		{name: "succeeded without a status", before: ends("old", 0, nil), value: "old", status: 200, replayed: true, other: idem.ErrPayloadMismatch},
		{name: "failed", before: ends("old", 409, nil), value: "old", status: 409, replayed: true, other: idem.ErrPayloadMismatch},
		{
			name: "failed with an error", before: ends("old", 409, errBusiness),
			value: "old", status: 409, replayed: true, recorded: true, err: errBusiness, other: idem.ErrPayloadMismatch,
		},
		{
			name: "answer not kept", before: ends(large, 201, nil),
			status: 201, replayed: true, err: idem.ErrResultNotKept, other: idem.ErrPayloadMismatch,
		},
		{
			name: "failure not kept", before: ends(large, 409, errBusiness),
			status: 409, replayed: true, recorded: true, err: idem.ErrResultNotKept, other: idem.ErrPayloadMismatch,
		},
	} {
		synctestRun(t, tt.name, func(t *testing.T) {
			s, w := newSpy(), returns("new", 201, nil)
			tt.before(t, s)
			res, err := idem.Do(t.Context(), s, testKey, payload, w.fn, append(opts, tt.opts...)...)
			if recorded, ok := errors.AsType[*idem.RecordedError](err); ok != tt.recorded || ok && recorded.Status != tt.status {
				t.Errorf("err = %v, want a RecordedError: %v", err, tt.recorded)
			}
			if !tt.recorded || tt.err != nil {
				wantErr(t, err, targets(tt.err)...)
			}
			wantResult(t, res, tt.value, tt.status, tt.replayed)
			w.wantRuns(t, tt.runs)
		})
		synctestRun(t, tt.name+", another payload", func(t *testing.T) {
			s, w, events := newSpy(), returns("new", 201, nil), &recorder{}
			tt.before(t, s)
			res, err := idem.Do(t.Context(), s, testKey, otherPayload, w.fn, append(append(opts, tt.opts...), events.option())...)
			if tt.other == nil {
				wantErr(t, err)
				w.wantRuns(t, 1)
				return
			}
			wantErr(t, err, tt.other)
			notErr(t, err, idem.ErrInProgress, idem.ErrOutcomeUnknown, idem.ErrResultNotKept)
			if diff := cmp.Diff(idem.Result[string]{}, res); diff != "" {
				t.Errorf("a mismatch reveals the record (-want +got):\n%s", diff)
			}
			w.wantRuns(t, 0)
			events.wantKinds(t, idem.EventMismatch)
		})
	}
}

func TestInProgressCarriesTheTimeLeftOnTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSpy()
		abandon(t, s, testKey, payload, idem.WithLease(lease))
		pass(time.Second)
		_, err := idem.Do(t.Context(), s, testKey, payload, returns("v", 200, nil).fn)
		inProgress, ok := errors.AsType[*idem.InProgressError](err)
		if !ok {
			t.Fatalf("err = %v, want an InProgressError", err)
		}
		if want := lease - time.Second; inProgress.RetryAfter != want {
			t.Errorf("RetryAfter = %v, want %v", inProgress.RetryAfter, want)
		}
	})
}

// The table "What is kept: store, release, hold", row by row.
func TestWhatIsKept(t *testing.T) {
	t.Parallel()
	const (
		replays = "replays"
		again   = "runs again"
		held    = "in progress, then stale"
	)
	type end struct {
		status idem.Status
		err    error
	}
	for _, tt := range []struct {
		name string
		ends []end
		next string
	}{
		{"a nil error and a final status", []end{{0, nil}, {200, nil}, {201, nil}, {204, nil}, {303, nil}, {400, nil}, {404, nil}, {409, nil}, {410, nil}, {422, nil}, {499, nil}}, replays},
		{"an error and a final status", []end{{200, errBusiness}, {302, errBusiness}, {400, errBusiness}, {402, errBusiness}, {409, errBusiness}, {422, errBusiness}}, replays},
		{"an error without a status", []end{{0, errBusiness}, {0, fmt.Errorf("wrapped: %w", errBusiness)}}, again},
		{"a passing status", []end{{401, nil}, {403, nil}, {408, nil}, {425, nil}, {429, nil}, {500, nil}, {502, nil}, {503, nil}, {504, nil}, {599, nil}}, again},
		{"an error and a passing status", []end{{401, errBusiness}, {403, errBusiness}, {408, errBusiness}, {425, errBusiness}, {429, errBusiness}, {500, errBusiness}, {599, errBusiness}}, again},
		{"an interrupted run", []end{{0, context.Canceled}, {0, context.DeadlineExceeded}, {0, fmt.Errorf("call: %w", context.DeadlineExceeded)}}, held},
		{"an interrupted run, whatever its status", []end{{200, context.Canceled}, {409, context.DeadlineExceeded}, {503, context.Canceled}, {700, context.Canceled}}, held},
		{"an unknown outcome", []end{{0, idem.Unknown(nil)}, {0, idem.Unknown(errBusiness)}, {409, idem.Unknown(errBusiness)}, {503, fmt.Errorf("call: %w", idem.Unknown(errBusiness))}}, held},
		{"a nested call's unknown outcome", []end{{0, idem.ErrLeaseLost}, {0, idem.ErrNotRecorded}, {0, idem.ErrOutcomeUnknown}, {409, errors.Join(errBusiness, idem.ErrNotRecorded)}}, held},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, end := range tt.ends {
				t.Run(fmt.Sprintf("status %d, error %v", end.status, end.err), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						s, first, second, events := newSpy(), returns("first", end.status, end.err), returns("second", 200, nil), &recorder{}
						status := end.status
						if status == 0 && end.err == nil {
							status = 200
						}
						res, err := idem.Do(t.Context(), s, testKey, payload, first.fn, idem.WithLease(lease), events.option())
						if err != end.err { //nolint:errorlint // unwrapped is the point
							t.Errorf("err = %v, want the closure's own, %v", err, end.err)
						}
						wantResult(t, res, "first", status, false)
						executed := events.of(idem.EventExecuted)
						if len(executed) != 1 || executed[0].Status != status {
							t.Errorf("events %+v, want one of an executed run with status %d", executed, status)
						}
						if replays := tt.next == replays; res.CompletedAt.IsZero() == replays {
							t.Errorf("CompletedAt = %v", res.CompletedAt)
						}

						res, err = idem.Do(t.Context(), s, testKey, payload, second.fn)
						switch tt.next {
						case replays:
							wantResult(t, res, "first", status, true)
							if recorded, ok := errors.AsType[*idem.RecordedError](err); ok != (end.err != nil) || ok && recorded.Status != status {
								t.Errorf("err = %v on replay", err)
							}
							second.wantRuns(t, 0)
						case again:
							wantErr(t, err)
							wantResult(t, res, "second", 200, false)
						case held:
							wantErr(t, err, idem.ErrInProgress)
							second.wantRuns(t, 0)
							pass(lease)
							_, err = idem.Do(t.Context(), s, testKey, payload, second.fn, idem.WithStale(idem.Refuse))
							wantErr(t, err, idem.ErrOutcomeUnknown)
							res, err = idem.Do(t.Context(), s, testKey, payload, second.fn)
							wantErr(t, err)
							wantResult(t, res, "second", 200, false)
						}
					})
				})
			}
		})
	}
}

func TestDefaultDispositionOfEveryStatus(t *testing.T) {
	t.Parallel()
	passing := map[idem.Status]bool{401: true, 403: true, 408: true, 425: true, 429: true}
	for status := idem.Status(-1); status < 1000; status++ {
		want := idem.Keep
		if passing[status] || status >= 500 && status <= 599 {
			want = idem.Release
		}
		withErr := want
		if status == 0 {
			withErr = idem.Release
		}
		for _, tt := range []struct {
			outcome idem.Outcome
			want    idem.Disposition
		}{
			{idem.Outcome{Status: status}, want},
			{idem.Outcome{Status: status, Err: errBusiness}, withErr},
			{idem.Outcome{Status: status, Err: context.Canceled}, idem.Hold},
			{idem.Outcome{Status: status, Panicked: true}, idem.Hold},
		} {
			if got := idem.DefaultDisposition(tt.outcome); got != tt.want {
				t.Errorf("%+v: %v, want %v", tt.outcome, got, tt.want)
			}
		}
	}
}

func TestStatusOutsideTheRegistry(t *testing.T) {
	t.Parallel()
	for _, status := range []idem.Status{-1, 1, 100, 199, 600, 1000} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			s, w := newSpy(), returns("v", status, nil)
			res, err := idem.Do(t.Context(), s, testKey, payload, w.fn)
			wantErr(t, err, idem.ErrNotRecorded)
			wantResult(t, res, "v", status, false)
			res, err = idem.Do(t.Context(), s, testKey, payload, w.fn)
			wantErr(t, err, idem.ErrResultNotKept)
			wantResult(t, res, "", 0, true)
			w.wantRuns(t, 1)
		})
	}
}

func TestWithDispositionReplacesTheRule(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name        string
		disposition idem.Disposition
		status      idem.Status
		err         error
		wantStored  bool
		wantErr     error // of the next call
	}{
		{"a server error is kept", idem.Keep, 500, nil, true, nil},
		{"an error without a status is kept", idem.Keep, 0, nil, true, nil},
		{"an interrupted run is kept", idem.Keep, 409, context.Canceled, true, nil},
		{"a success is released", idem.Release, 200, nil, false, nil},
		{"a success is held", idem.Hold, 200, nil, false, idem.ErrInProgress},
		{"a value that is none holds", 42, 200, nil, false, idem.ErrInProgress},
		{"a negative value holds", -1, 200, nil, false, idem.ErrInProgress},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, first, second, events := newSpy(), returns("first", tt.status, tt.err), returns("second", 200, nil), &recorder{}
			var saw []idem.Outcome
			rule := idem.WithDisposition(func(o idem.Outcome) idem.Disposition {
				saw = append(saw, o)
				return tt.disposition
			})
			_, err := idem.Do(t.Context(), s, testKey, payload, first.fn, rule, events.option())
			wantErr(t, err, targets(tt.err)...)
			if len(saw) != 1 || saw[0].Err != tt.err || saw[0].Panicked { //nolint:errorlint // the very error
				t.Errorf("the rule was asked about %+v", saw)
			}
			res, err := idem.Do(t.Context(), s, testKey, payload, second.fn)
			if tt.wantErr != nil {
				wantErr(t, err, tt.wantErr)
			}
			if res.Replayed != tt.wantStored {
				t.Errorf("Replayed = %v, want %v", res.Replayed, tt.wantStored)
			}
			want := tt.disposition
			if want < idem.Keep || want > idem.Hold {
				want = idem.Hold
			}
			if executed := events.of(idem.EventExecuted); len(executed) != 1 || executed[0].Disposition != want {
				t.Errorf("events %+v, want one of a run with disposition %v", executed, want)
			}
		})
	}
}

func TestStoreAllKeepsEverything(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		status idem.Status
		err    error
		want   idem.Status
	}{
		{"a server error", 500, nil, 500},
		{"a server error with an error", 503, errBusiness, 503},
		{"an error without a status", 0, errBusiness, 500},
		{"an interrupted run", 0, context.Canceled, 500},
		{"a refused caller", 401, nil, 401},
		{"a success", 0, nil, 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, w := newSpy(), returns("v", tt.status, tt.err)
			_, err := idem.Do(t.Context(), s, testKey, payload, w.fn, idem.WithDisposition(idem.StoreAll))
			wantErr(t, err, targets(tt.err)...)
			res, err := idem.Do(t.Context(), s, testKey, payload, w.fn)
			wantResult(t, res, "v", tt.want, true)
			if _, ok := errors.AsType[*idem.RecordedError](err); ok != (tt.err != nil) {
				t.Errorf("err = %v on replay", err)
			}
			w.wantRuns(t, 1)
		})
	}
}

func TestFailedIsAnErrorOrAStatusFrom400(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status idem.Status
		err    error
		want   idem.State
	}{
		{0, nil, idem.Succeeded},
		{200, nil, idem.Succeeded},
		{399, nil, idem.Succeeded},
		{400, nil, idem.Failed},
		{409, errBusiness, idem.Failed},
		{200, errBusiness, idem.Failed},
	} {
		t.Run(fmt.Sprintf("status %d, error %v", tt.status, tt.err), func(t *testing.T) {
			t.Parallel()
			s := newSpy()
			_, err := idem.Do(t.Context(), s, testKey, payload, returns("v", tt.status, tt.err).fn)
			wantErr(t, err, targets(tt.err)...)
			if got := record(t, s).State; got != tt.want {
				t.Errorf("state %v, want %v", got, tt.want)
			}
		})
	}
}

func TestB03ErrorAfterTheEffect(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		status idem.Status
		runs   int
	}{
		{"a final status stores the failure", 422, 1},
		{"a passing status frees the key", 503, 2},
		{"no status frees the key", 0, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, w := newSpy(), returns("", tt.status, errBusiness)
			for range 2 {
				if _, err := idem.Do(t.Context(), s, testKey, payload, w.fn); err == nil {
					t.Error("err = nil")
				}
			}
			w.wantRuns(t, tt.runs)
		})
	}
}

func TestB17RefusalIsReplayed(t *testing.T) {
	t.Parallel()
	type outOfStock struct{ Left int }
	for _, tt := range []struct {
		name  string
		value outOfStock
		err   error
	}{
		{"as a value", outOfStock{2}, nil},
		{"as an error", outOfStock{}, errBusiness},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, w := newSpy(), returns(tt.value, 409, tt.err)
			opt := idem.WithErrors(map[string]error{"out_of_stock": errBusiness})
			for _, replayed := range []bool{false, true} {
				res, err := idem.Do(t.Context(), s, testKey, payload, w.fn, opt)
				wantErr(t, err, targets(tt.err)...)
				wantResult(t, res, tt.value, 409, replayed)
			}
			w.wantRuns(t, 1)
		})
	}
}

func TestB23InterruptedRunIsNeverAFinalAnswer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		status idem.Status
		err    error
	}{
		{"with a passing status", 503, context.DeadlineExceeded},
		{"wrapped, without a status", 0, fmt.Errorf("upstream: %w", context.DeadlineExceeded)},
		{"with a final status", 422, context.DeadlineExceeded},
		{"said by the closure", 422, idem.Unknown(errBusiness)},
	} {
		synctestRun(t, tt.name, func(t *testing.T) {
			s, w := newSpy(), returns("v", tt.status, tt.err)
			_, err := idem.Do(t.Context(), s, testKey, payload, w.fn, idem.WithLease(lease))
			wantErr(t, err, tt.err)
			_, err = idem.Do(t.Context(), s, testKey, payload, w.fn, idem.WithLease(lease))
			wantErr(t, err, idem.ErrInProgress)
			pass(lease)
			_, err = idem.Do(t.Context(), s, testKey, payload, func(ctx context.Context) (string, idem.Status, error) {
				if !idem.Reclaimed(ctx) {
					t.Error("Reclaimed(ctx) = false")
				}
				return "", 200, nil
			})
			wantErr(t, err)
		})
	}
}

func TestB25ThreeReplays(t *testing.T) {
	t.Parallel()
	s, w := newSpy(), returns("v", 200, nil)
	for i := range 4 {
		res, err := idem.Do(t.Context(), s, testKey, payload, w.fn)
		wantErr(t, err)
		wantResult(t, res, "v", 200, i > 0)
	}
	w.wantRuns(t, 1)
}

func TestB31PassingFailureIsNoDuplicateOfItself(t *testing.T) {
	t.Parallel()
	s, w := newSpy(), returns("", 503, errBusiness)
	for range 5 {
		_, err := idem.Do(t.Context(), s, testKey, payload, w.fn, idem.WithLease(time.Hour))
		wantErr(t, err, errBusiness)
	}
	w.wantRuns(t, 5)
}

func TestUnknown(t *testing.T) {
	t.Parallel()
	wantErr(t, idem.Unknown(errBusiness), idem.ErrOutcomeUnknown, errBusiness)
	wantErr(t, idem.Unknown(nil), idem.ErrOutcomeUnknown)
}

// A call within a call: what the inner one does not know, the outer one does
// not know either.
func TestNestedCallWhoseOutcomeIsUnknownHoldsTheOuterOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		outer, inner := newSpy(), newSpy()
		inner.onComplete = func(context.Context, idem.CompleteRequest, func() (time.Time, error)) (time.Time, error) {
			return time.Time{}, idem.Permanent(errStore)
		}
		_, err := idem.Do(t.Context(), outer, testKey, payload, func(ctx context.Context) (string, idem.Status, error) {
			res, err := idem.Do(ctx, inner, testKey, payload, returns("v", 200, nil).fn)
			return res.Value, 0, err
		}, idem.WithLease(lease))
		wantErr(t, err, idem.ErrNotRecorded)
		outer.wantCalls(t, "claim")
		_, err = idem.Do(t.Context(), outer, testKey, payload, returns("v", 200, nil).fn)
		wantErr(t, err, idem.ErrInProgress)
	})
}

func TestSameKeyWithinItsOwnClosureIsInProgress(t *testing.T) {
	t.Parallel()
	s, inner := newSpy(), returns("inner", 200, nil)
	_, err := idem.Do(t.Context(), s, testKey, payload, func(ctx context.Context) (string, idem.Status, error) {
		_, err := idem.Do(ctx, s, testKey, payload, inner.fn)
		wantErr(t, err, idem.ErrInProgress)
		return "outer", 200, nil
	})
	wantErr(t, err)
	inner.wantRuns(t, 0)
}
