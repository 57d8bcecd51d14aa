package idemsqlite_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemsqlite"
)

// do calls Do with a closure that works, and returns how often it ran.
func do(t *testing.T, store idem.Store, k string, work func(), opts ...idem.Option) (runs int, value string, err error) {
	t.Helper()
	opts = append([]idem.Option{patient, idem.WithLease(3 * time.Second)}, opts...)
	res, err := idem.Do(t.Context(), store, numbered(k), "payload", func(context.Context) (string, idem.Status, error) {
		runs++
		work()
		return "done", 200, nil
	}, opts...)
	return runs, res.Value, err
}

func TestB62AStoreThatIsDown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		breaks func(t *testing.T, s *idemsqlite.Store, path string)
		mends  func(t *testing.T, s *idemsqlite.Store, path string)
		cause  error
	}{
		{
			name:   "closed",
			breaks: func(t *testing.T, s *idemsqlite.Store, _ string) { s.Close() },
			cause:  idemsqlite.ErrClosed,
		},
		{
			name:   "deleted",
			breaks: func(t *testing.T, _ *idemsqlite.Store, path string) { remove(t, path) },
			cause:  idemsqlite.ErrReplaced,
		},
		{
			name: "replaced",
			breaks: func(t *testing.T, _ *idemsqlite.Store, path string) {
				remove(t, path)
				open(t, path)
			},
			cause: idemsqlite.ErrReplaced,
		},
		{
			name: "without its table",
			breaks: func(t *testing.T, _ *idemsqlite.Store, path string) {
				sqlExec(t, plain(t, path), `ALTER TABLE idempotency_requests RENAME TO elsewhere`)
			},
			mends: func(t *testing.T, _ *idemsqlite.Store, path string) {
				sqlExec(t, plain(t, path), `ALTER TABLE elsewhere RENAME TO idempotency_requests`)
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := file(t)
			store := open(t, path)
			runs, value, err := do(t, store, "k", func() { c.breaks(t, store, path) })
			if runs != 1 || value != "done" || !errors.Is(err, idem.ErrNotRecorded) || c.cause != nil && !errors.Is(err, c.cause) {
				t.Errorf("between claim and outcome: %d runs, %q, %v", runs, value, err)
			}
			runs, _, err = do(t, store, "k2", func() {})
			if runs != 0 || !errors.Is(err, idem.ErrUnavailable) || c.cause != nil && !errors.Is(err, c.cause) {
				t.Errorf("before the claim: %d runs, %v", runs, err)
			}
			if c.mends == nil {
				return
			}
			c.mends(t, store, path)
			for _, k := range []string{"k", "k2"} {
				if runs, _, err := do(t, store, k, func() {}, idem.WithWait(time.Minute)); runs != 1 || err != nil {
					t.Errorf("afterwards: %d runs of %s, %v", runs, k, err)
				}
			}
			intact(t, plain(t, path))
		})
	}
}

func TestB62ADiskThatIsFull(t *testing.T) {
	t.Parallel()
	path := file(t)
	store := open(t, path)
	large := strings.Repeat("x", 100_000)
	long := strings.Repeat("k", 240)
	spare := 100
	call := func(k string, opts ...idem.Option) (runs int, err error) {
		opts = append(opts, patient, idem.WithLease(3*time.Second))
		_, err = idem.Do(t.Context(), store, numbered(k), "payload", func(context.Context) (string, idem.Status, error) {
			runs++
			return large, 200, nil
		}, opts...)
		return runs, err
	}
	limit(t, store, 3)
	runs, err := call("k")
	if runs != 1 || !errors.Is(err, idem.ErrNotRecorded) || !strings.Contains(err.Error(), "full") {
		t.Errorf("between claim and outcome: %d runs, %v", runs, err)
	}
	limit(t, store, 0)
	until(t, "the pages that the file has to be full", func() bool {
		spare++
		_, err := store.Claim(t.Context(), idem.ClaimRequest{
			Key: numbered(long + itoa(spare)), Hash: idem.Hash{Version: 1, Sum: strings.Repeat("0", 64)}, Token: idem.ID{1}, ExecutionID: idem.ID{1},
			Lease: time.Hour, Retention: time.Hour,
		})
		return err != nil && strings.Contains(err.Error(), "full")
	})
	runs, err = call(long + itoa(spare))
	if runs != 0 || !errors.Is(err, idem.ErrUnavailable) || !strings.Contains(err.Error(), "full") {
		t.Errorf("before the claim: %d runs, %v", runs, err)
	}
	limit(t, store, -1)
	if runs, err := call("k", idem.WithWait(time.Minute)); runs != 1 || err != nil {
		t.Errorf("afterwards: %d runs, %v", runs, err)
	}
	intact(t, plain(t, path))
}

func remove(t *testing.T, path string) {
	t.Helper()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(path + suffix); err != nil {
			t.Error(err)
		}
	}
}

func limit(t *testing.T, s *idemsqlite.Store, pages int64) {
	t.Helper()
	if err := s.LimitPages(pages); err != nil {
		t.Error(err)
	}
}

// B62, and a caller never sees SQLITE_BUSY but waits until its ctx ends.
func TestB62AFileThatIsLocked(t *testing.T) {
	t.Parallel()
	path := file(t)
	store, db := open(t, path), plain(t, path)
	if _, err := once(t.Context(), store, "before"); err != nil {
		t.Fatal(err)
	}
	lock, unlock := func() { sqlExec(t, db, `BEGIN IMMEDIATE`) }, func() { sqlExec(t, db, `ROLLBACK`) }

	lock()
	runs, _, err := do(t, store, "k", func() {}, idem.WithStoreTimeout(300*time.Millisecond))
	if runs != 0 || !errors.Is(err, idem.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) ||
		strings.Contains(err.Error(), "BUSY") {
		t.Errorf("before the claim: %d runs, %v", runs, err)
	}
	if res, err := once(t.Context(), store, "before"); err != nil || !res.Replayed {
		t.Errorf("a replay must not wait for a writer: %v", err)
	}
	unlock()

	runs, value, err := do(t, store, "k", lock, idem.WithStoreTimeout(5*time.Second), idem.WithLease(5*time.Second))
	if runs != 1 || value != "done" || !errors.Is(err, idem.ErrNotRecorded) {
		t.Errorf("between claim and outcome: %d runs, %q, %v", runs, value, err)
	}

	// Those who wait get their turn when the lock goes.
	var wg sync.WaitGroup
	for _, k := range []string{"a", "b", "c"} {
		wg.Go(func() {
			if _, err := once(t.Context(), store, k); err != nil {
				t.Error(err)
			}
		})
	}
	until(t, "claims to wait", func() bool { return store.Waiting() == 3 })
	unlock()
	wg.Wait()
}

func TestCallersThatGoAwayWhileTheFileIsLockedLeaveNothing(t *testing.T) {
	t.Parallel()
	path := file(t)
	store, db := open(t, path), plain(t, path)
	sqlExec(t, db, `BEGIN IMMEDIATE`)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, k := range []string{"a", "b", "c", "d"} {
		wg.Go(func() {
			_, err := store.Claim(ctx, idem.ClaimRequest{Key: numbered(k), Token: idem.ID{1}, ExecutionID: idem.ID{1}, Lease: time.Hour, Retention: time.Hour})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want context.Canceled", err)
			}
		})
	}
	until(t, "claims to wait", func() bool { return store.Waiting() == 4 })
	cancel()
	wg.Wait()
	if n := store.Waiting(); n != 0 {
		t.Errorf("%d claims still wait", n)
	}
	sqlExec(t, db, `ROLLBACK`)
	if _, err := once(t.Context(), store, "e"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if got := value[string](t, db, `SELECT group_concat(idempotency_key) FROM idempotency_requests`); got != "e" {
		t.Errorf("records of %s, want only e", got)
	}
}

func TestCloseEndsWhoeverWaits(t *testing.T) {
	t.Parallel()
	path := file(t)
	store, db := open(t, path), plain(t, path)
	sqlExec(t, db, `BEGIN IMMEDIATE`)
	var wg sync.WaitGroup
	for _, k := range []string{"a", "b", "c"} {
		wg.Go(func() {
			_, err := once(t.Context(), store, k)
			if !errors.Is(err, idem.ErrUnavailable) || !errors.Is(err, idemsqlite.ErrClosed) {
				t.Errorf("got %v, want ErrClosed", err)
			}
		})
	}
	until(t, "claims to wait", func() bool { return store.Waiting() == 3 })
	for range 2 {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
}

// B43: claims that are cancelled at any point leave the store healthy.
func TestB43CancelledCallsLeaveNothingHalfDone(t *testing.T) {
	t.Parallel()
	path := file(t)
	store := open(t, path, idemsqlite.WithNormalSync())
	n := size(300, 1000)
	var ran atomic.Int32
	work := func(ctx context.Context) (string, idem.Status, error) {
		ran.Add(1)
		return "done", 200, nil
	}
	if err := each(8, n, func(k string) error {
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		_, err := idem.Do(ctx, store, numbered(k), "payload", work)
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	for i := range n {
		if err := each(1, 1, func(string) error {
			_, err := idem.Do(t.Context(), store, numbered("k"+itoa(i)), "payload", work)
			return err
		}); err != nil {
			t.Errorf("call %d is stuck: %v", i, err)
		}
	}
	if got := int(ran.Load()); got != n {
		t.Errorf("%d executions of %d keys", got, n)
	}
	intact(t, plain(t, path))
}

// Callers share transactions. What spoils one for a caller must not be the
// others' loss, nor be told as done.
func TestOneChangeThatFailsDoesNotTakeOthersWithIt(t *testing.T) {
	t.Parallel()
	path := file(t)
	store, db := open(t, path), plain(t, path)
	fill(t, store)
	bodies := map[string][]byte{"a": []byte("a"), "b": []byte("b"), "huge": make([]byte, 1<<20), "c": []byte("c"), "d": []byte("d")}
	for k := range bodies {
		if _, err := store.Claim(t.Context(), idem.ClaimRequest{
			Key: numbered(k), Token: idem.ID{1}, ExecutionID: idem.ID{1}, Lease: time.Hour, Retention: time.Hour,
		}); err != nil {
			t.Fatal(err)
		}
	}
	limit(t, store, 10)
	sqlExec(t, db, `BEGIN IMMEDIATE`) // so that all of them gather
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		failed []string
	)
	for k, body := range bodies {
		wg.Go(func() {
			_, err := store.Complete(t.Context(), idem.CompleteRequest{
				Key: numbered(k), Token: idem.ID{1}, State: idem.Succeeded, Retention: time.Hour,
				Response: idem.Response{Codec: "raw", Body: body},
			})
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, k)
			}
		})
	}
	until(t, "completions to wait", func() bool { return store.Waiting() == len(bodies) })
	sqlExec(t, db, `ROLLBACK`)
	wg.Wait()
	if diff := cmp.Diff([]string{"huge"}, failed); diff != "" {
		t.Errorf("completions that failed (-want +got):\n%s", diff)
	}
	if got := value[string](t, db, `SELECT group_concat(k) FROM (SELECT idempotency_key AS k FROM idempotency_requests
		WHERE status = 'succeeded' AND length(k) = 1 ORDER BY k)`); got != "a,b,c,d" {
		t.Errorf("completed: %s", got)
	}
	limit(t, store, -1)
	intact(t, db)
}

func TestB15ARecordThatCannotBeReadRunsNothing(t *testing.T) {
	t.Parallel()
	path := file(t)
	store, db := open(t, path), plain(t, path)
	sqlExec(t, db, `PRAGMA ignore_check_constraints = ON`)
	for _, damage := range []string{
		`status = 'bogus'`,
		`status = ''`,
		`completed_at = NULL`,
		`response_body = NULL`,
		`response_body = x''`,
		`response_body = substr(response_body, 1, 3)`,
		`response_body = x'00'`,
		`response_codec = 'unknown'`,
		`response_codec_version = 99`,
		`execution_id = x'01'`,
		`token = x'0102'`,
	} {
		if _, err := once(t.Context(), store, damage); err != nil {
			t.Fatal(err)
		}
		sqlExec(t, db, `UPDATE idempotency_requests SET `+damage+` WHERE idempotency_key = ?`, damage)
		runs, _, err := do(t, store, damage, func() {})
		if runs != 0 || !errors.Is(err, idem.ErrCorruptRecord) {
			t.Errorf("%s: %d runs, %v", damage, runs, err)
		}
	}
}

func TestADamagedFileRunsNothing(t *testing.T) {
	t.Parallel()
	path := file(t)
	store := open(t, path)
	fill(t, store)
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const page = 4096
	for i := 2 * page; i < len(content); i++ { // the first pages are needed to open it
		content[i] = 0xa5
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := idemsqlite.Open(path)
	if err != nil {
		if !strings.Contains(err.Error(), "malformed") {
			t.Error(err)
		}
		return
	}
	defer again.Close()
	runs, _, err := do(t, again, "k", func() {})
	if runs != 0 || !errors.Is(err, idem.ErrUnavailable) {
		t.Errorf("%d runs, %v", runs, err)
	}
}
