package txtests_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
)

// Rivals that do not keep to the key's lock: an operator, an earlier release, an owner that everybody thought dead. Each
// comes between the begin and the finish. The suite in storetest has those that do.
func TestARivalBetweenBeginAndFinish(t *testing.T) {
	t.Parallel()
	ctx := watchdog(t)
	pool := open(t)
	s := pg.New(pool)
	other := `UPDATE ` + table + ` SET request_hash = '` + strings.Repeat("0", 64) + `' WHERE idempotency_key = $1`
	// settle makes a rival's record in the place of whatever the key has.
	settle := func(t *testing.T, key idem.Key) {
		from := k("rival of %s", key.Key)
		_, err := idem.Do(ctx, s, from, "p", func(context.Context) (int64, idem.Status, error) { return 42, 200, nil })
		wantErr(t, err, nil)
		mustExec(t, pool, `DELETE FROM `+table+` WHERE idempotency_key = $1`, key.Key)
		mustExec(t, pool, `UPDATE `+table+` SET idempotency_key = $1 WHERE idempotency_key = $2`, key.Key, from.Key)
	}
	claim := func(t *testing.T, key idem.Key) {
		from := k("claim of %s", key.Key)
		crash(t, s, from, "p")
		mustExec(t, pool, `DELETE FROM `+table+` WHERE idempotency_key = $1`, key.Key)
		mustExec(t, pool, `UPDATE `+table+` SET idempotency_key = $1 WHERE idempotency_key = $2`, key.Key, from.Key)
	}
	befores := map[string]func(*testing.T, idem.Key){
		"new":   func(*testing.T, idem.Key) {},
		"stale": func(t *testing.T, key idem.Key) { crash(t, s, key, "p"); endLease(t, pool, key) },
		"released": func(t *testing.T, key idem.Key) {
			_, _ = idem.Do(ctx, s, key, "p", func(context.Context) (int64, idem.Status, error) { return 0, 503, nil })
		},
		"expired": func(t *testing.T, key idem.Key) { settled(t, s, pool, key); expire(t, pool, key) },
	}
	rivals := map[string]struct {
		move func(*testing.T, idem.Key)
		told func(idem.Result[int64], error) bool
	}{
		"finishes": {settle, func(res idem.Result[int64], err error) bool { return err == nil && res.Replayed && res.Value == 42 }},
		"finishes with another payload": {
			func(t *testing.T, key idem.Key) { settle(t, key); mustExec(t, pool, other, key.Key) },
			func(res idem.Result[int64], err error) bool {
				return errors.Is(err, idem.ErrPayloadMismatch) && res == (idem.Result[int64]{})
			},
		},
		"claims": {claim, func(_ idem.Result[int64], err error) bool { return errors.Is(err, idem.ErrInProgress) }},
		"claims with another payload": {
			func(t *testing.T, key idem.Key) { claim(t, key); mustExec(t, pool, other, key.Key) },
			func(_ idem.Result[int64], err error) bool { return errors.Is(err, idem.ErrPayloadMismatch) },
		},
		"leaves a record that cannot be read": {
			func(t *testing.T, key idem.Key) {
				settle(t, key)
				mustExec(t, pool, `UPDATE `+table+` SET completed_at = NULL WHERE idempotency_key = $1`, key.Key)
			},
			func(_ idem.Result[int64], err error) bool { return errors.Is(err, idem.ErrCorruptRecord) },
		},
	}
	for before, prepare := range befores {
		for name, rival := range rivals {
			key := k("%s, %s", before, name)
			prepare(t, key)
			res, err := pg.DoTx(ctx, s, key, "p", func(ctx context.Context, tx pgx.Tx) (int64, idem.Status, error) {
				rival.move(t, key)
				return 1, 201, pay(ctx, tx, key)
			})
			if !rival.told(res, err) {
				t.Errorf("the key was %s, a rival %s: the loser got %+v, %v", before, name, res, err)
			}
			if n := effects(t, pool, key); n != 0 {
				t.Errorf("the key was %s, a rival %s: %d effects of the loser", before, name, n)
			}
		}
	}
	wantReleased(t, pool)
}

// The same between Do's claim and the end of a transaction of pg.Begin.
func TestARivalBetweenClaimAndCompletion(t *testing.T) {
	t.Parallel()
	ctx := watchdog(t)
	pool := open(t)
	s := pg.New(pool)
	for name, move := range map[string]string{
		"takes over":         `UPDATE ` + table + ` SET token = gen_random_uuid(), attempt = attempt + 1 WHERE idempotency_key = $1`,
		"releases":           `UPDATE ` + table + ` SET token = NULL WHERE idempotency_key = $1`,
		"deletes the record": `DELETE FROM ` + table + ` WHERE idempotency_key = $1`,
	} {
		key := k("%s", name)
		res, err := doWithBegin(ctx, s, key, nil, func() { mustExec(t, pool, move, key.Key) })
		if !errors.Is(err, idem.ErrLeaseLost) || res.Value != "paid" {
			t.Errorf("a rival %s: the loser got %+v, %v", name, res, err)
		}
		wantEffects(t, pool, key, 0)
	}
	wantReleased(t, pool)
}
