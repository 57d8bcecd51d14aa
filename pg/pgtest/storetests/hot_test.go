package storetests_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
)

// hotShare returns the updates of the table and how many of them were HOT.
func hotShare(t *testing.T, pool *pgxpool.Pool) (updates, hot int) {
	t.Helper()
	for _, conn := range pool.AcquireAllIdle(t.Context()) {
		flush := "SELECT pg_stat_force_next_flush()"
		mustExec(t, conn, flush)
		mustExec(t, conn, "SELECT 1")
		conn.Release()
	}
	err := pool.QueryRow(t.Context(), "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = '"+table+"'::regclass").Scan(&updates, &hot)
	wantErr(t, err, nil)
	return updates, hot
}

// Completions, renewals and releases touch no index: they are HOT while their page has room, which fillfactor sees to.
func TestUpdatesAreHOT(t *testing.T) {
	t.Parallel()
	for name, callers := range map[string]int{"one caller": 1, "sixteen callers": 16} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const calls = 640
			pool := open(t, maxConns(16))
			store := pg.New(pool)
			body := strings.Repeat("0123456789", 30)
			var renewals, releases atomic.Int64
			race(callers, func(caller int) {
				for i := range calls / callers {
					key := k("%d/%d", caller, i)
					_, err := idem.Do(t.Context(), store, key, "p", func(ctx context.Context) (string, idem.Status, error) {
						if i%4 == 0 {
							rec, _, err := store.Lookup(ctx, key)
							wantErr(t, err, nil)
							err = store.Renew(ctx, idem.RenewRequest{Key: key, Token: rec.Token, Lease: idem.DefaultLease, Retention: idem.DefaultRetention})
							wantErr(t, err, nil)
							renewals.Add(1)
						}
						if i%16 == 1 {
							releases.Add(1)
							return "", 503, nil
						}
						return body, 201, nil
					})
					wantErr(t, err, nil)
				}
			})
			updates, hot := hotShare(t, pool)
			if want := calls + int(renewals.Load()); updates != want {
				t.Errorf("%d updates, want %d", updates, want)
			}
			share := 100 * hot / updates
			t.Logf("%d of %d updates were HOT: %d %%", hot, updates, share)
			if share < 90 {
				t.Errorf("%d %% of the updates were HOT, want 90", share)
			}
		})
	}
}
