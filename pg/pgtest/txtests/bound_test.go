package txtests_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
)

type wrappedPool struct{ *pgxpool.Pool }

type wrappedTx struct{ pgx.Tx }

func TestWhatAStoreWorksOver(t *testing.T) {
	t.Parallel()
	ctx := watchdog(t)
	pool := open(t)
	acquired, err := pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer acquired.Release()
	conn, err := pgx.ConnectConfig(ctx, pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	nested, err := tx.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		db    pg.DB
		bound idem.Binding
	}{
		"a pool":                   {pool, idem.BoundToNothing},
		"a wrapped pool":           {wrappedPool{pool}, idem.BoundToNothing},
		"a connection of the pool": {acquired, idem.BoundToConn},
		"a connection":             {conn, idem.BoundToConn},
		"a wrapped transaction":    {wrappedTx{tx}, idem.BoundToTx},
		"a nested transaction":     {nested, idem.BoundToTx},
	} {
		s, key := pg.New(c.db), k("%s", name)
		if got := s.Bound(); got != c.bound {
			t.Errorf("%s: bound to %v, want %v", name, got, c.bound)
		}
		var n runs
		for i, replayed := range []bool{false, true} {
			res, err := n.doTx(ctx, s, key, "p")
			if err != nil || res.Replayed != replayed {
				t.Errorf("%s: call %d: %+v, %v", name, i, res, err)
			}
		}
		_, err := n.doTx(ctx, s, key, "another")
		wantErr(t, err, idem.ErrPayloadMismatch)
		if c.bound != idem.BoundToTx {
			wantEffects(t, pool, key, 1)
		}
	}
	wantErr(t, nested.Commit(ctx), nil)
	wantErr(t, tx.Commit(ctx), nil)
	wantEffects(t, pool, k("a wrapped transaction"), 1)
	wantEffects(t, pool, k("a nested transaction"), 1)
}

func TestBeginOverEveryKindOfDatabase(t *testing.T) {
	t.Parallel()
	ctx := watchdog(t)
	pool := open(t)
	conn, err := pgx.ConnectConfig(ctx, pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for name, db := range map[string]pg.DB{"a pool": pool, "a connection": conn, "a transaction": tx} {
		res, err := doWithBegin(ctx, pg.New(db), k("%s", name), nil, nil)
		if err != nil || res.Value != "paid" {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
	}
	wantErr(t, tx.Commit(ctx), nil)
	for _, name := range []string{"a pool", "a connection", "a transaction"} {
		wantEffects(t, pool, k("%s", name), 1)
	}
}

// onlyDB is what the interface pg.DB asks for, and no more.
type onlyDB struct{ pg.DB }

func TestADatabaseWithoutConnectionsIsAClearError(t *testing.T) {
	t.Parallel()
	pool := open(t)
	_, err := new(runs).doTx(watchdog(t), pg.New(onlyDB{pool}), k("wrapped"), "p")
	if !errors.Is(err, idem.ErrInvalidOption) || !strings.Contains(err.Error(), "needs a database that is a pool, a connection or a transaction") {
		t.Errorf("got error %v", err)
	}
}

func TestTablesDoNotBlockEachOther(t *testing.T) {
	t.Parallel()
	ctx := watchdog(t)
	pool := open(t)
	beside := pg.WithTable("beside")
	if err := pg.Migrate(ctx, pool, beside); err != nil {
		t.Fatal(err)
	}
	elsewhere := open(t) // the same table in another schema
	key := k("one")
	_, err := pg.DoTx(ctx, pg.New(pool), key, "p", func(ctx context.Context, _ pgx.Tx) (string, idem.Status, error) {
		for name, s := range map[string]*pg.Store{"another table": pg.New(pool, beside), "another schema": pg.New(elsewhere)} {
			if _, err := new(runs).doTx(ctx, s, key, "p"); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		return "", 201, nil
	})
	wantErr(t, err, nil)
	if n := effects(t, elsewhere, key); n != 1 {
		t.Errorf("%d effects in the other schema", n)
	}
}

func TestAPoolOfOne(t *testing.T) {
	t.Parallel()
	pool := open(t, maxConns(1))
	s := pg.New(pool)
	new(runs).mustDoTx(t, s, k("alone"), "p")
	wantEffects(t, pool, k("alone"), 1)

	// A closure that takes a second connection waits for its own: its context must end that.
	ctx, cancel := context.WithTimeout(watchdog(t), 300*time.Millisecond)
	defer cancel()
	_, err := pg.DoTx(ctx, s, k("second"), "p", func(ctx context.Context, _ pgx.Tx) (string, idem.Status, error) {
		_, err := pool.Exec(ctx, "SELECT 1")
		return "", 201, err
	})
	wantErr(t, err, context.DeadlineExceeded)
	// A call of the library's is bounded by its own limit.
	_, err = pg.DoTx(watchdog(t), s, k("second"), "p", func(ctx context.Context, _ pgx.Tx) (string, idem.Status, error) {
		_, err := new(runs).doTx(ctx, s, k("third"), "p", idem.WithStoreTimeout(300*time.Millisecond))
		return "", 503, err
	})
	wantErr(t, err, idem.ErrUnavailable)
	new(runs).mustDoTx(t, s, k("second"), "p")
}
