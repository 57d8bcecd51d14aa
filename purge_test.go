package idem_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/memstore"
)

func fill(t *testing.T, s idem.Store, n int, opts ...idem.Option) {
	t.Helper()
	for i := range n {
		_, err := idem.Do(t.Context(), s, idem.Key{User: "u", Scope: "s", Key: fmt.Sprint(i)}, i, returns(i, 200, nil).fn, opts...)
		wantErr(t, err)
	}
}

func TestRunPurge(t *testing.T) {
	t.Parallel()
	synctestRun(t, "it deletes in batches until nothing is left, each time", func(t *testing.T) {
		s, events := newSpy(), &recorder{}
		s.Store = memstore.New(memstore.MaxRecords(0))
		fill(t, s.Store, 2500, idem.WithRetention(time.Hour))
		abandon(t, s.Store, testKey, payload, idem.WithRetention(2*time.Hour))
		ctx, cancel := context.WithCancel(t.Context())
		wait := goes(func() {
			wantErr(t, idem.RunPurge(ctx, s, time.Minute, events.option()), context.Canceled)
		})
		pass(time.Hour - time.Second)
		synctest.Wait()
		if got := s.count("purge"); got != 60 {
			t.Errorf("%d requests in the first hour, want one each minute", got)
		}
		pass(time.Minute)
		synctest.Wait()
		var deleted []int
		for _, e := range events.of(idem.EventPurged) {
			deleted = append(deleted, e.Purge.Deleted)
			if e.Purge.Overdue < 0 || e.Purge.Overdue > time.Minute {
				t.Errorf("overdue for %v, want at most a minute", e.Purge.Overdue)
			}
			if e.Scope != "" || e.ExecutionID != "" {
				t.Errorf("the event tells of a run: %+v", e)
			}
		}
		if diff := cmp.Diff([]int{1000, 1000, 500}, deleted); diff != "" {
			t.Errorf("deleted (-want +got):\n%s", diff)
		}
		pass(2 * time.Hour)
		synctest.Wait()
		if got := len(events.of(idem.EventPurged)); got != 4 {
			t.Errorf("%d batches, want one more, of the abandoned claim", got)
		}
		cancel()
		wait()
	})
	synctestRun(t, "it never deletes what is alive", func(t *testing.T) {
		s := newSpy()
		abandon(t, s, testKey, payload, idem.WithLease(time.Hour), idem.WithRetention(1))
		_, err := idem.Do(t.Context(), s, idem.Key{User: "u", Scope: "s", Key: "k"}, payload, returns("v", 200, nil).fn, idem.WithRetention(time.Hour))
		wantErr(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour-time.Second)
		defer cancel()
		wantErr(t, idem.RunPurge(ctx, s, time.Second), context.DeadlineExceeded)
		purged, err := s.Purge(t.Context(), idem.PurgeRequest{Limit: 10})
		wantErr(t, err)
		if purged.Deleted != 0 {
			t.Errorf("%d records are to be purged", purged.Deleted)
		}
		pass(2 * time.Second)
		purged, err = s.Purge(t.Context(), idem.PurgeRequest{Limit: 10})
		wantErr(t, err)
		if purged.Deleted != 2 {
			t.Errorf("%d records were purged, want 2", purged.Deleted)
		}
	})
	synctestRun(t, "a failure is observed and tried again at the next interval", func(t *testing.T) {
		s, events := newSpy(), &recorder{}
		fill(t, s.Store, 3, idem.WithRetention(1))
		s.onPurge = func(_ context.Context, _ idem.PurgeRequest, next func() (idem.PurgeResult, error)) (idem.PurgeResult, error) {
			if s.count("purge") < 3 {
				return idem.PurgeResult{}, errStore
			}
			return next()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Second)
		defer cancel()
		wantErr(t, idem.RunPurge(ctx, s, time.Minute, events.option()), context.DeadlineExceeded)
		events.wantKinds(t, idem.EventPurgeFailed, idem.EventPurgeFailed, idem.EventPurged)
		wantErr(t, events.all()[0].Err, errStore)
	})
	synctestRun(t, "a batch that hangs is given up", func(t *testing.T) {
		s, events := newSpy(), &recorder{}
		s.onPurge = func(ctx context.Context, _ idem.PurgeRequest, _ func() (idem.PurgeResult, error)) (idem.PurgeResult, error) {
			<-ctx.Done()
			return idem.PurgeResult{}, ctx.Err()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		wantErr(t, idem.RunPurge(ctx, s, time.Minute, events.option(), idem.WithStoreTimeout(time.Second)), context.DeadlineExceeded)
		events.wantKinds(t, idem.EventPurgeFailed, idem.EventPurgeFailed)
	})
	synctestRun(t, "its end is no failure", func(t *testing.T) {
		s, events := newSpy(), &recorder{}
		s.onPurge = func(ctx context.Context, _ idem.PurgeRequest, _ func() (idem.PurgeResult, error)) (idem.PurgeResult, error) {
			<-ctx.Done()
			return idem.PurgeResult{}, ctx.Err()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantErr(t, idem.RunPurge(ctx, s, time.Minute, events.option()), context.DeadlineExceeded)
		events.wantKinds(t)
	})
	t.Run("an interval must be positive", func(t *testing.T) {
		t.Parallel()
		for _, interval := range []time.Duration{0, -1} {
			s := newSpy()
			wantErr(t, idem.RunPurge(t.Context(), s, interval), idem.ErrInvalidOption)
			s.wantCalls(t)
		}
	})
	t.Run("a context that has ended purges nothing", func(t *testing.T) {
		t.Parallel()
		s := newSpy()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		wantErr(t, idem.RunPurge(ctx, s, time.Minute), context.Canceled)
		s.wantCalls(t)
	})
}
