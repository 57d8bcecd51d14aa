package idemhttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemhttp"
)

// wantWaits checks the waits between attempts, each of which is jittered.
func wantWaits(t *testing.T, tp *tape, between ...[2]time.Duration) {
	t.Helper()
	if len(tp.sent) != len(between)+1 {
		t.Fatalf("%d attempts, want %d: %v", len(tp.sent), len(between)+1, tp.sent)
	}
	for i, b := range between {
		if wait := tp.sent[i+1].At - tp.sent[i].At; wait < b[0] || wait > b[1] {
			t.Errorf("wait %d was %v, want %v to %v", i+1, wait, b[0], b[1])
		}
	}
}

const ms = time.Millisecond

func TestFailuresAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tp := newTape(reset)
		_, err := send(t, &idemhttp.Transport{Base: tp})
		e := wantUnsettled(t, err, errReset, 4)
		wantWaits(t, tp, [2]time.Duration{125 * ms, 250 * ms}, [2]time.Duration{250 * ms, 500 * ms}, [2]time.Duration{500 * ms, 1000 * ms})
		if e.Response != nil || e.Timeout() {
			t.Errorf("response %v, timeout %v", e.Response, e.Timeout())
		}

		for retries, want := range map[int]int{-1: 1, 1: 2, 7: 8} {
			tp = newTape(status(503, "later"))
			_, err = send(t, &idemhttp.Transport{Base: tp, MaxRetries: retries, MaxInterval: -1})
			e = wantUnsettled(t, err, nil, want)
			if body, err := io.ReadAll(e.Response.Body); e.Response.StatusCode != 503 || string(body) != "later" || err != nil {
				t.Errorf("the error has the answer %d %q, %v", e.Response.StatusCode, body, err)
			}
			if time.Since(tp.started) != 0 {
				t.Errorf("waited for %v", time.Since(tp.started))
			}
		}
	})
}

func TestPollsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tp := newTape(problem(409, idemhttp.CodeInProgress))
		_, err := send(t, &idemhttp.Transport{Base: tp})
		wantUnsettled(t, err, idem.ErrInProgress, 49)
		if took := time.Since(tp.started); took < time.Minute || took > 2*time.Minute {
			t.Errorf("took %v", took)
		}
		for polls, want := range map[int]int{-1: 1, 2: 3} {
			_, err = send(t, &idemhttp.Transport{Base: newTape(problem(409, idemhttp.CodeInProgress)), MaxPolls: polls})
			wantUnsettled(t, err, idem.ErrInProgress, want)
		}
	})
}

func TestFailuresOnTheWayToAnAnswerCountAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		wait := problem(409, idemhttp.CodeInProgress)
		tp := newTape(reset, reset, reset, wait, reset, reset, reset, wait, reset, paid)
		if _, err := send(t, &idemhttp.Transport{Base: tp}); err != nil {
			t.Error(err)
		}
	})
}

func TestRetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		date := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
		for name, tc := range map[string]struct {
			reply func() reply
			want  time.Duration
		}{
			"seconds of 503": {func() reply { return status(503, "", "Retry-After", "7") }, 7 * time.Second},
			"seconds of 409": {func() reply { return problem(409, idemhttp.CodeInProgress, "Retry-After", "9") }, 9 * time.Second},
			"date": {func() reply {
				<-time.After(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) // dates have whole seconds
				return status(429, "", "Retry-After", date(5*time.Second))
			}, 5 * time.Second},
			"date by the server's time": {func() reply {
				return status(429, "", "Retry-After", date(time.Hour), "Date", date(time.Hour-20*time.Second))
			}, 20 * time.Second},
		} {
			tp := newTape(tc.reply(), paid)
			if _, err := send(t, &idemhttp.Transport{Base: tp}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			wantWaits(t, tp, [2]time.Duration{tc.want + 125*ms, tc.want + 250*ms})
		}
		for _, value := range []string{"0", "-3", "soon", "1.5", date(-time.Hour)} {
			tp := newTape(status(503, "", "Retry-After", value), paid)
			if _, err := send(t, &idemhttp.Transport{Base: tp}); err != nil {
				t.Errorf("%s: %v", value, err)
			}
			wantWaits(t, tp, [2]time.Duration{125 * ms, 250 * ms})
		}
	})
}

func TestBudgetOfTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tp := newTape(status(503, "", "Retry-After", "10"))
		_, err := send(t, &idemhttp.Transport{Base: tp, Budget: 25 * time.Second})
		wantUnsettled(t, err, nil, 3)
		if took := time.Since(tp.started); took > 21*time.Second {
			t.Errorf("took %v: it waited although no attempt followed", took)
		}

		for _, huge := range []string{"9999", "999999999999999999999999"} {
			_, err = send(t, &idemhttp.Transport{Base: newTape(status(503, "", "Retry-After", huge))})
			wantUnsettled(t, err, nil, 1)
		}
		if _, err = send(t, &idemhttp.Transport{Base: newTape(status(503, "", "Retry-After", "9999"), paid), Budget: -1}); err != nil {
			t.Error(err)
		}
	})
}

func TestContextCoversAttemptsAndWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		errStop := errors.New("the user left")
		time.AfterFunc(15*time.Second, func() { cancel(errStop) })
		tp := newTape(status(503, "", "Retry-After", "10"))
		_, err := send(t, &idemhttp.Transport{Base: tp}, withContext(ctx))
		wantUnsettled(t, err, errStop, 2)
		if took := time.Since(tp.started); took != 15*time.Second {
			t.Errorf("returned after %v", took)
		}

		// While an attempt is under way.
		ctx, cancel = context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(errStop) })
		_, err = send(t, &idemhttp.Transport{Base: newTape(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, context.Cause(r.Context())
		})}, withContext(ctx))
		wantUnsettled(t, err, errStop, 1)
	})
}

func TestWaitThatOutlastsTheDeadlineIsNotBegun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		tp := newTape(status(503, "", "Retry-After", "10"))
		_, err := send(t, &idemhttp.Transport{Base: tp}, withContext(ctx))
		e := wantUnsettled(t, err, context.DeadlineExceeded, 2)
		if took := time.Since(tp.started); took > 11*time.Second || !e.Timeout() {
			t.Errorf("took %v, timeout %v", took, e.Timeout())
		}

		// So the key survives a client's timeout, too, unless an attempt is under way.
		client := &http.Client{Transport: &idemhttp.Transport{Base: tp}, Timeout: 5 * time.Second}
		_, err = client.Do(newRequest(t, "http://shop.test/", "", "{}"))
		wantUnsettled(t, err, context.DeadlineExceeded, 1)
	})
}

func TestKeysLifeEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tp := newTape(status(503, "", "Retry-After", "4"))
		tr := &idemhttp.Transport{Base: tp, Retention: 10 * time.Second}
		_, err := send(t, tr)
		e := wantUnsettled(t, err, idem.ErrOutcomeUnknown, 3)
		if want := tp.started.Add(10 * time.Second); !e.Expires.Equal(want) {
			t.Errorf("expires %v, want %v", e.Expires, want)
		}

		// By hand: the error knows when the key was used first.
		_, err = send(t, tr, withContext(e.Context(t.Context())))
		e = wantUnsettled(t, err, idem.ErrOutcomeUnknown, 1)
		<-time.After(3 * time.Second)
		_, err = send(t, tr, withContext(e.Context(t.Context())))
		wantUnsettled(t, err, idem.ErrOutcomeUnknown, 0)
		if len(tp.sent) != 4 {
			t.Errorf("%d attempts, want 4: none after the key's life", len(tp.sent))
		}

		tr.Retention = -1
		_, err = send(t, tr)
		if e := wantUnsettled(t, err, nil, 4); !e.Expires.IsZero() || errors.Is(e, idem.ErrOutcomeUnknown) {
			t.Errorf("%v, expires %v", e, e.Expires)
		}
	})
}

func TestAnswerThatNeverEndsHoldsNothingUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tp := newTape(func(*http.Request) (*http.Response, error) {
			endless, _ := io.Pipe()
			return &http.Response{StatusCode: 503, Header: http.Header{}, ContentLength: -1, Body: endless}, nil
		}, paid)
		if _, err := send(t, &idemhttp.Transport{Base: tp}); err != nil {
			t.Fatal(err)
		}
		wantWaits(t, tp, [2]time.Duration{1125 * ms, 1250 * ms})
	})
}
