package storetests_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
)

// A caller's transaction stays as it was, whatever the call in it meets.
func TestB39CallersTransactionStaysUsable(t *testing.T) {
	t.Parallel()
	pool := open(t)
	mustExec(t, pool, "CREATE TABLE effects (name text)")
	var n runs
	n.mustDo(t, pg.New(pool), k("done"), "p")
	crash(t, pg.New(pool), k("held"), "p")

	for name, test := range map[string]struct {
		key     idem.Key
		payload any
		opts    []pg.Option
		want    error
	}{
		"first run":     {k("new"), "p", nil, nil},
		"replay":        {k("done"), "p", nil, nil},
		"mismatch":      {k("done"), "other", nil, idem.ErrPayloadMismatch},
		"in progress":   {k("held"), "p", nil, idem.ErrInProgress},
		"missing table": {k("new 2"), "p", []pg.Option{pg.WithTable("missing")}, idem.ErrUnavailable},
		"bad key":       {k(""), "p", nil, idem.ErrInvalidKey},
	} {
		for _, nested := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ctx := watchdog(t)
				err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					body := func(tx pgx.Tx) error {
						mustExec(t, tx, "INSERT INTO effects VALUES ($1)", name)
						_, err := n.do(ctx, pg.New(tx, test.opts...), test.key, test.payload)
						wantErr(t, err, test.want)
						mustExec(t, tx, "SELECT 1")
						return nil
					}
					if nested {
						return pgx.BeginFunc(ctx, tx, body)
					}
					return body(tx)
				})
				wantErr(t, err, nil)
				if query[int](t, pool, "SELECT count(*) FROM effects WHERE name = $1", name) == 0 {
					t.Error("the caller's own write is gone")
				}
			})
		}
	}
}

// In a caller's transaction the record and the caller's writes share their fate.
func TestTransactionDecides(t *testing.T) {
	t.Parallel()
	pool := open(t)
	ctx := watchdog(t)
	var n runs
	undo := errors.New("undo")
	for i, end := range []error{undo, undo, nil, nil} {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			res, err := n.do(ctx, pg.New(tx), k("tx"), "p")
			wantErr(t, err, nil)
			if res.Replayed != (i == 3) {
				t.Errorf("transaction %d: replayed %v", i, res.Replayed)
			}
			return end
		})
		wantErr(t, err, end)
	}
	n.want(t, 3) // two of them were undone
}

// A failed statement of the closure aborts the caller's transaction. Do tells that nothing was recorded, at once.
func TestAbortedTransaction(t *testing.T) {
	t.Parallel()
	pool := open(t)
	ctx := watchdog(t)
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := idem.Do(ctx, pg.New(tx), k("tx"), "p", func(ctx context.Context) (int, idem.Status, error) {
			_, err := tx.Exec(ctx, "SELECT 1/0")
			return 1, 422, err
		})
		wantErr(t, err, idem.ErrNotRecorded)
		if sqlState(err) != "22012" {
			t.Errorf("error %v, want the closure's among it", err)
		}
		return err
	})
	wantErr(t, err, idem.ErrNotRecorded)
	if count(t, pool) != 0 {
		t.Error("a record is left")
	}
}

// The claim of an open transaction is not visible yet. Others do not wait for it: it is in progress.
func TestClaimInOpenTransactionDoesNotHangOthers(t *testing.T) {
	t.Parallel()
	pool := open(t)
	ctx := watchdog(t)
	var n runs
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		n.mustDo(t, pg.New(tx), k("tx"), "p")
		_, err := n.do(ctx, pg.New(pool), k("tx"), "p", idem.WithStoreTimeout(2*time.Second))
		wantErr(t, err, idem.ErrInProgress)
		return nil
	})
	wantErr(t, err, nil)
	if res := n.mustDo(t, pg.New(pool), k("tx"), "p"); !res.Replayed {
		t.Error("no replay after the commit")
	}
	n.want(t, 1)
}
