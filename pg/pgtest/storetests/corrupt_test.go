package storetests_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
)

// Records that Do cannot have made: whatever reads them refuses, and runs nothing.
func TestB15CorruptRecords(t *testing.T) {
	t.Parallel()
	pool := open(t)
	loosen(t, pool)
	store := pg.New(pool)
	for name, set := range map[string]string{
		"unknown status":          `status = 'bogus'`,
		"empty status":            `status = ''`,
		"status in upper case":    `status = 'SUCCEEDED'`,
		"NULL status":             `status = NULL`,
		"NULL body":               `response_body = NULL`,
		"truncated body":          `response_body = '\x7b2261'`,
		"empty body":              `response_body = ''`,
		"body of another type":    `response_body = '"text"'`,
		"body with a tail":        `response_body = response_body || ' 1'::bytea`,
		"unknown codec":           `response_codec = 'bogus'`,
		"later codec version":     `response_codec_version = 99`,
		"NULL time of completion": `completed_at = NULL`,
		"NULL hash":               `request_hash = NULL`,
		"NULL attempt":            `attempt = NULL`,
		"NULL lease":              `lease_expires_at = NULL`,
		"NULL expiry":             `expires_at = NULL`,
		"expiry at infinity":      `expires_at = 'infinity'`,
		"lease at -infinity":      `lease_expires_at = '-infinity'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := k("%s", name)
			var n runs
			n.mustDo(t, store, key, "p")
			mustExec(t, pool, "UPDATE "+table+" SET "+set+" WHERE idempotency_key = $1", key.Key)

			_, err := n.do(watchdog(t), store, key, "p")
			wantErr(t, err, idem.ErrCorruptRecord)
			_, err = idem.Resolve(watchdog(t), store, key, n.closure)
			if err == nil {
				t.Error("Resolve settled a corrupt record")
			}
			err = pgx.BeginFunc(watchdog(t), pool, func(tx pgx.Tx) error {
				_, err := n.do(watchdog(t), pg.New(tx), key, "p")
				if !errors.Is(err, idem.ErrCorruptRecord) {
					t.Errorf("in a transaction: error %v, want %v", err, idem.ErrCorruptRecord)
				}
				mustExec(t, tx, "SELECT 1")
				return nil
			})
			wantErr(t, err, nil)
			n.want(t, 1)
		})
	}
}

// loosen takes all constraints but the primary key off the table.
func loosen(t *testing.T, db querier) {
	t.Helper()
	for _, column := range []string{"status", "request_hash", "attempt", "lease_expires_at", "expires_at"} {
		mustExec(t, db, "ALTER TABLE "+table+" ALTER "+column+" DROP NOT NULL")
	}
}

func TestB15TheTableRefusesNulls(t *testing.T) {
	t.Parallel()
	pool := open(t)
	var n runs
	n.mustDo(t, pg.New(pool), k("b15"), "p")
	for _, set := range []string{
		`status = NULL`, `request_hash = NULL`, `expires_at = NULL`, `lease_expires_at = NULL`,
		`execution_id = NULL`, `attempt = NULL`, `inserted_at = NULL`,
	} {
		_, err := pool.Exec(watchdog(t), "UPDATE "+table+" SET "+set)
		if sqlState(err) != "23502" {
			t.Errorf("%s: error %v, want a constraint's", set, err)
		}
	}
}
