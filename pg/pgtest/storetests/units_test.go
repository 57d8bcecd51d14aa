package storetests_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
)

// The lease's end in the raw column is the lease's length after the claim: one unit, no rounding to zero, no overflow.
func TestB13LeaseInTheColumn(t *testing.T) {
	t.Parallel()
	config := migrated(t)
	for _, mode := range execModes {
		pool := connect(t, config, maxConns(1), execMode(mode))
		got, want := map[time.Duration]int64{}, map[time.Duration]int64{ // microseconds, rounded up
			1: 1, time.Microsecond: 1, 1001: 2, 500 * time.Millisecond: 500_000, 2 * time.Second: 2_000_000,
			100 * 365 * 24 * time.Hour: 100 * 365 * 24 * 3600 * 1e6, 1<<63 - 1: 9223372036854776,
		}
		for lease := range want {
			key := k("%v %v", mode, lease)
			_, err := pg.New(pool).Claim(watchdog(t), idem.ClaimRequest{ // Do would renew
				Key: key, Token: idem.ID{1}, ExecutionID: idem.ID{2}, Lease: lease, Retention: 1<<63 - 1,
			})
			wantErr(t, err, nil)
			got[lease] = query[int64](t, pool, `SELECT (extract(epoch FROM lease_expires_at - inserted_at) * 1000000)::bigint
				FROM `+table+` WHERE idempotency_key = $1`, key.Key)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v: microseconds from claim to lease end (-want +got):\n%s", mode, diff)
		}
	}
}

func TestB13LeaseOfTwoSeconds(t *testing.T) {
	t.Parallel()
	pool := open(t)
	store := pg.New(pool)
	for lease, probe := range map[time.Duration]string{2 * time.Second: "0.5s", 500 * time.Millisecond: "0.1s"} {
		key := k("%v", lease)
		crash(t, store, key, "p", idem.WithLease(lease))
		mustExec(t, pool, "SELECT pg_sleep_until(lease_expires_at - $2::interval) FROM "+table+" WHERE idempotency_key = $1", key.Key, probe)
		var n runs
		_, err := n.do(watchdog(t), store, key, "p")
		alive := query[bool](t, pool, "SELECT lease_expires_at > clock_timestamp() FROM "+table+" WHERE idempotency_key = $1", key.Key)
		if alive { // else the machine was too slow to ask in time
			wantErr(t, err, idem.ErrInProgress)
			n.want(t, 0)
		}
		mustExec(t, pool, "SELECT pg_sleep_until(lease_expires_at) FROM "+table+" WHERE idempotency_key = $1 AND status = 'processing'", key.Key)
		if alive {
			n.mustDo(t, store, key, "p")
			n.want(t, 1)
		}
	}
}
