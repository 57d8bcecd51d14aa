package idemsqlite_test

import (
	"context"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemsqlite"
)

func TestPurgeGivesSpaceBack(t *testing.T) {
	t.Parallel()
	path := file(t)
	store, db := open(t, path, idemsqlite.WithNormalSync()), plain(t, path)
	for i := range 600 {
		req := idem.ClaimRequest{
			Key: numbered("k" + itoa(i)), Token: idem.ID{1}, ExecutionID: idem.ID{1}, Lease: time.Hour, Retention: time.Hour,
		}
		if _, err := store.Claim(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		retention := time.Duration(1)
		if i%6 == 0 {
			retention = time.Hour
		}
		if _, err := store.Complete(t.Context(), idem.CompleteRequest{
			Key: req.Key, Token: req.Token, State: idem.Succeeded, Retention: retention,
			Response: idem.Response{Codec: "raw", Body: make([]byte, 10_000)},
		}); err != nil {
			t.Fatal(err)
		}
	}
	before := value[int](t, db, `PRAGMA page_count`)
	deleted := 0
	for range 3 {
		done, err := store.Purge(t.Context(), idem.PurgeRequest{Limit: 400})
		if err != nil {
			t.Fatal(err)
		}
		deleted += done.Deleted
	}
	after, free := value[int](t, db, `PRAGMA page_count`), value[int](t, db, `PRAGMA freelist_count`)
	if left := value[int](t, db, `SELECT count(*) FROM idempotency_requests`); deleted != 500 || left != 100 {
		t.Errorf("deleted %d and left %d, want 500 and 100", deleted, left)
	}
	if after > before/2 {
		t.Errorf("the file had %d pages and has %d, of which %d are free", before, after, free)
	}
	intact(t, db)
}

func TestPurgeStopsWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	store := open(t, file(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if done, err := store.Purge(ctx, idem.PurgeRequest{Limit: 10}); err == nil || done.Deleted != 0 {
		t.Errorf("got %+v, %v", done, err)
	}
}
