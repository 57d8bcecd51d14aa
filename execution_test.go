package idem_test

import (
	"context"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
)

// A seen is what a closure sees of its run.
type seen struct {
	ID        string
	Attempt   int
	Reclaimed bool
}

func (s *seen) fn(ctx context.Context, status idem.Status, err error) (string, idem.Status, error) {
	*s = seen{idem.ExecutionID(ctx), idem.Attempt(ctx), idem.Reclaimed(ctx)}
	return "v", status, err
}

func TestWhatAClosureSeesOfItsRun(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		status    idem.Status // how the first run ends
		err       error
		passes    time.Duration
		payload   string // of the second run
		sameID    bool
		attempt   int
		reclaimed bool
	}{
		{"after a release the work is the same", 503, nil, 0, payload, true, 2, false},
		{"after a release another payload is other work", 503, nil, 0, otherPayload, false, 2, false},
		{"after a crash the work is the same", 0, idem.Unknown(nil), lease, payload, true, 2, true},
		{"after expiry it is new work", 200, nil, time.Hour, payload, false, 2, false},
		{"after a crash and expiry it is new work", 0, idem.Unknown(nil), lease + time.Hour, payload, false, 2, false},
		{"after a release and expiry it is new work", 503, nil, time.Hour, payload, false, 2, false},
	} {
		synctestRun(t, tt.name, func(t *testing.T) {
			var first, second seen
			s, opts := newSpy(), []idem.Option{idem.WithLease(lease), idem.WithRetention(time.Hour)}
			_, err := idem.Do(t.Context(), s, testKey, payload, func(ctx context.Context) (string, idem.Status, error) {
				return first.fn(ctx, tt.status, tt.err)
			}, opts...)
			wantErr(t, err, targets(tt.err)...)
			if first.Attempt != 1 || first.Reclaimed {
				t.Errorf("the first run saw %+v", first)
			}
			pass(tt.passes)
			res, err := idem.Do(t.Context(), s, testKey, tt.payload, func(ctx context.Context) (string, idem.Status, error) {
				return second.fn(ctx, 200, nil)
			}, opts...)
			wantErr(t, err)
			want := seen{second.ID, tt.attempt, tt.reclaimed}
			if tt.sameID {
				want.ID = first.ID
			} else if first.ID == second.ID {
				t.Error("the execution id is that of other work")
			}
			if diff := cmp.Diff(want, second); diff != "" {
				t.Errorf("second run (-want +got):\n%s", diff)
			}
			replay, err := idem.Do(t.Context(), s, testKey, tt.payload, returns("", 200, nil).fn)
			wantErr(t, err)
			for _, res := range []idem.Result[string]{res, replay} {
				if res.ExecutionID != second.ID || res.Attempt != second.Attempt {
					t.Errorf("result has id %v, attempt %d, want those of %+v", res.ExecutionID, res.Attempt, second)
				}
			}
		})
	}
}

// What a crashed run left undone stays unknown until a run records an outcome.
func TestReclaimedOutlastsARelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, events := newSpy(), &recorder{}
		var runs []seen
		for _, run := range []struct {
			status idem.Status
			err    error
		}{
			{0, idem.Unknown(nil)}, {503, nil}, {0, idem.Unknown(nil)}, {0, idem.Unknown(nil)}, {200, nil},
		} {
			var see seen
			_, err := idem.Do(t.Context(), s, testKey, payload, func(ctx context.Context) (string, idem.Status, error) {
				return see.fn(ctx, run.status, run.err)
			}, idem.WithLease(lease), events.option())
			wantErr(t, err, targets(run.err)...)
			runs = append(runs, see)
			pass(lease)
		}
		id := runs[0].ID
		if diff := cmp.Diff([]seen{{id, 1, false}, {id, 2, true}, {id, 3, true}, {id, 4, true}, {id, 5, true}}, runs); diff != "" {
			t.Errorf("runs (-want +got):\n%s", diff)
		}
		// Each takeover of a stale claim is told: of attempts 2, 4 and 5.
		var reclaims []int
		for _, e := range events.of(idem.EventReclaimed) {
			reclaims = append(reclaims, e.Attempt)
		}
		if diff := cmp.Diff([]int{2, 4, 5}, reclaims); diff != "" {
			t.Errorf("reclaiming attempts (-want +got):\n%s", diff)
		}
	})
}

func TestExecutionIDIsARandomUUID(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
	ids := map[string]bool{}
	for range 100 {
		res, err := idem.Do(t.Context(), newSpy(), testKey, payload, returns("", 200, nil).fn)
		wantErr(t, err)
		if !form.MatchString(res.ExecutionID) {
			t.Errorf("execution id %q", res.ExecutionID)
		}
		ids[res.ExecutionID] = true
	}
	if len(ids) != 100 {
		t.Errorf("%d ids in 100 runs", len(ids))
	}
}

func TestOutsideAClosureThereIsNoRun(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	if id, n, r := idem.ExecutionID(ctx), idem.Attempt(ctx), idem.Reclaimed(ctx); id != "" || n != 0 || r {
		t.Errorf("ExecutionID %q, Attempt %d, Reclaimed %v", id, n, r)
	}
}

func TestInnerClosureSeesItsOwnRun(t *testing.T) {
	t.Parallel()
	inner := idem.Key{User: "u", Scope: "inner", Key: "k"}
	_, err := idem.Do(t.Context(), newSpy(), testKey, payload, func(ctx context.Context) (string, idem.Status, error) {
		outerID := idem.ExecutionID(ctx)
		_, err := idem.Do(ctx, newSpy(), inner, payload, func(ctx context.Context) (string, idem.Status, error) {
			if idem.ExecutionID(ctx) == outerID {
				t.Error("the inner closure sees the outer run")
			}
			return "", 200, nil
		})
		if idem.ExecutionID(ctx) != outerID {
			t.Error("the outer closure no longer sees its run")
		}
		return "", 200, err
	})
	wantErr(t, err)
}
