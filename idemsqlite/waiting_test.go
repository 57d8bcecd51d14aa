package idemsqlite_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemsqlite"
)

// soon is enough for what must not wait, on a busy machine.
const soon = 10 * time.Second

func within(t *testing.T, what string, d time.Duration, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(d):
		t.Errorf("%s still waits after %v", what, d)
	}
}

// A clock that is set back must not make a released key wait for it.
func TestAReleasedKeyIsFreeWhateverTheClockSays(t *testing.T) {
	t.Parallel()
	path := file(t)
	store, db := open(t, path), plain(t, path)
	claim := idem.ClaimRequest{
		Key: key, Hash: idem.Hash{Version: 1}, Token: idem.ID{1}, ExecutionID: idem.ID{1}, Lease: time.Minute, Retention: time.Hour,
	}
	if _, err := store.Claim(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	if err := store.Release(t.Context(), idem.ReleaseRequest{Key: key, Token: idem.ID{1}, Retention: time.Hour}); err != nil {
		t.Fatal(err)
	}
	sqlExec(t, db, `UPDATE idempotency_requests SET lease_expires_at = lease_expires_at + 60000000`)
	seen, _, err := store.Lookup(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	claim.Token, claim.Replace = idem.ID{2}, &seen
	rec, err := store.Claim(t.Context(), claim)
	if err != nil || rec.Token != claim.Token || rec.Attempt != 2 {
		t.Errorf("got token %v, attempt %d, %v; want the claim to be made", rec.Token, rec.Attempt, err)
	}
}

func TestCloseEndsReadersThatWait(t *testing.T) {
	t.Parallel()
	path := file(t)
	store, db := open(t, path), plain(t, path)
	sqlExec(t, db, `BEGIN IMMEDIATE`)
	const readers = 200 // more than may read at a time
	var tried atomic.Int32
	results := make(chan error, readers)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range readers {
		go func() { results <- store.ReadAlone(ctx, func() { tried.Add(1) }) }()
	}
	until(t, "readers to find the file locked", func() bool { return tried.Load() >= 4 })
	within(t, "Close", soon, func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	within(t, "a reader", soon, func() {
		for range readers {
			if err := <-results; !errors.Is(err, idemsqlite.ErrClosed) {
				t.Errorf("got %v, want ErrClosed", err)
			}
		}
	})
}

// A change that fails makes those that shared its transaction go alone. They can
// leave then, however long others are ready to wait for the file.
func TestOthersOfAFailedTransactionCanLeave(t *testing.T) {
	t.Parallel()
	path := file(t)
	store, db := open(t, path), plain(t, path)
	sqlExec(t, db, `BEGIN IMMEDIATE`) // so that both gather
	var once sync.Once
	locked, spoilt := make(chan struct{}), make(chan error, 1)
	patience, cancelPatience := context.WithTimeout(t.Context(), time.Minute)
	defer cancelPatience()
	go func() {
		spoilt <- store.Spoil(patience, func() {
			once.Do(func() {
				sqlExec(t, db, `BEGIN IMMEDIATE`)
				close(locked)
			})
		})
	}()
	until(t, "the first to wait", func() bool { return store.Waiting() == 1 })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	claimed := make(chan error, 1)
	go func() {
		_, err := store.Claim(ctx, idem.ClaimRequest{Key: key, Token: idem.ID{1}, ExecutionID: idem.ID{1}, Lease: time.Hour, Retention: time.Hour})
		claimed <- err
	}()
	until(t, "both to wait", func() bool { return store.Waiting() == 2 })
	sqlExec(t, db, `ROLLBACK`)
	<-locked
	cancel()
	within(t, "the claim", soon, func() {
		if err := <-claimed; !errors.Is(err, context.Canceled) {
			t.Errorf("the claim: %v, want context.Canceled", err)
		}
	})
	sqlExec(t, db, `ROLLBACK`)
	within(t, "the change that fails", soon, func() {
		if err := <-spoilt; err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the change that fails: %v", err)
		}
	})
	if got := value[int](t, db, `SELECT count(*) FROM idempotency_requests`); got != 0 {
		t.Errorf("%d records, want none", got)
	}
}

// B29: whoever waits for a key or for the file leaves when its ctx ends, and
// panics leave nothing locked.
func TestB29WaitersLeaveInTime(t *testing.T) {
	t.Parallel()
	path := file(t)
	store := open(t, path, idemsqlite.WithNormalSync())
	release, started := make(chan struct{}), make(chan struct{})
	owner := make(chan error, 1)
	go func() {
		_, err := idem.Do(t.Context(), store, key, "payload", func(context.Context) (string, idem.Status, error) {
			close(started)
			<-release
			return "done", 200, nil
		}, patient)
		owner <- err
	}()
	<-started
	n := size(1000, 5000)
	crowd := func(what string, call func(ctx context.Context, i int) error, right func(error) bool) {
		within(t, what, 30*time.Second, func() {
			var wg sync.WaitGroup
			for i := range n {
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
					defer cancel()
					if err := call(ctx, i); !right(err) {
						t.Errorf("%s: %v", what, err)
					}
				})
			}
			wg.Wait()
		})
	}
	crowd("waiting for a slow closure", func(ctx context.Context, _ int) error {
		_, err := idem.Do(ctx, store, key, "payload", func(context.Context) (string, idem.Status, error) {
			t.Error("a second owner")
			return "", 200, nil
		}, idem.WithWait(time.Minute))
		return err
	}, func(err error) bool {
		return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, idem.ErrInProgress)
	})
	errPanic := errors.New("panicked")
	crowd("closures that panic", func(ctx context.Context, i int) (err error) {
		defer func() {
			if recover() != nil {
				err = errPanic
			}
		}()
		_, err = idem.Do(ctx, store, numbered("panics"+itoa(i%7)), "payload", func(context.Context) (string, idem.Status, error) {
			panic("on purpose")
		})
		return err
	}, func(err error) bool {
		return errors.Is(err, errPanic) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, idem.ErrInProgress)
	})
	close(release)
	if err := <-owner; err != nil {
		t.Errorf("the owner: %v", err)
	}
	if n := store.Waiting(); n != 0 {
		t.Errorf("%d changes still wait", n)
	}
	intact(t, plain(t, path))
}
