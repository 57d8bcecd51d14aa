package txtests_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/pg"
	"github.com/idem-go/idem/pg/pgtest"
)

// gates make the server wait for an advisory lock in the middle of the last batch.
var gates = map[string]string{
	"the finish": `CREATE TRIGGER gate BEFORE INSERT OR UPDATE ON ` + table + ` FOR EACH ROW WHEN (NEW.status = 'succeeded') EXECUTE FUNCTION gate()`,
	"the COMMIT": `CREATE CONSTRAINT TRIGGER gate AFTER INSERT ON payments DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION gate()`,
}

const gate = `hashtext(current_schema())`

// closeGate creates a gate and closes it. It returns a function that opens it.
func closeGate(t *testing.T, pool *pgxpool.Pool, name string) (open func()) {
	t.Helper()
	mustExec(t, pool, `CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN PERFORM pg_advisory_xact_lock_shared(`+gate+`); RETURN NEW; END $$`)
	mustExec(t, pool, gates[name])
	holder, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mustExec(t, holder, `SELECT pg_advisory_lock(`+gate+`)`)
	return func() {
		mustExec(t, holder, `SELECT pg_advisory_unlock(`+gate+`)`)
		holder.Release()
	}
}

// atGate is true when a session waits at the gate.
const atGate = `EXISTS (SELECT FROM pg_stat_activity WHERE application_name = current_setting('application_name') AND wait_event = 'advisory')`

func TestACallerKilledDuringItsCommit(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{kindDoTx, kindBegin} {
		for name := range gates {
			t.Run(kind+": in "+name, func(t *testing.T) {
				t.Parallel()
				config := migrated(t)
				pool := connect(t, config)
				key := k("in flight")
				open := closeGate(t, pool, name)
				v := startVictim(t, config, kind, key, "")
				eventually(t, pool, atGate)
				v.kill()
				for range v.said {
				}
				_, err := call(watchdog(t), pg.New(pool), kind, key, func(string) {})
				wantErr(t, err, idem.ErrInProgress) // nobody can tell yet
				open()
				settledDown(t, pool)
				wantEffects(t, pool, key, 1)
				comesAgain(t, pool, kind, key, true)
			})
		}
	}
}

// The caller asks what became of its commit for ten seconds. pgx cancels what a broken connection was doing, if it can
// reach the server: only without that does the commit stay in flight.
func TestACallerCutOffDuringItsCommit(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{kindDoTx, kindBegin} {
		for name := range gates {
			for _, then := range []string{"which is cancelled", "which ends in time", "which does not end in time"} {
				if name == "the finish" && then == "which does not end in time" {
					continue // it takes ten seconds, and is the same as in the COMMIT
				}
				t.Run(kind+": in "+name+", "+then, func(t *testing.T) {
					t.Parallel()
					config := migrated(t)
					pool := connect(t, config)
					proxy := pgtest.NewProxy(t, config)
					through := proxy.Config()
					if then != "which is cancelled" {
						through.ConnConfig.DialFunc = withoutCancelling
					}
					key := k("in flight")
					open := closeGate(t, pool, name)
					var res idem.Result[string]
					var err error
					called := beside(func() {
						res, err = call(watchdog(t), pg.New(connect(t, through)), kind, key, func(string) {})
					})
					eventually(t, pool, atGate)
					proxy.Cut()
					if then == "which ends in time" {
						open()
					}
					<-called
					switch then {
					case "which is cancelled":
						if err == nil || kind == kindDoTx && !errors.Is(err, idem.ErrUnavailable) {
							t.Errorf("got %+v, %v", res, err)
						}
						wantEffects(t, pool, key, 0)
						open()
					case "which ends in time":
						if err != nil || res.Value != "paid" || res.Replayed || res.CompletedAt.IsZero() {
							t.Errorf("got %+v, %v", res, err)
						}
					case "which does not end in time":
						wantErr(t, err, idem.ErrOutcomeUnknown)
						wantEffects(t, pool, key, 0)
						open()
					}
					settledDown(t, pool)
					done := then != "which is cancelled"
					wantEffects(t, pool, key, map[bool]int{true: 1}[done])
					comesAgain(t, pool, kind, key, done)
				})
			}
		}
	}
}

// withoutCancelling connects, but not to ask for a cancellation.
func withoutCancelling(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	return &notCancelling{Conn: conn}, err
}

type notCancelling struct{ net.Conn }

func (c *notCancelling) Write(b []byte) (int, error) {
	const cancelRequest = 80877102
	if len(b) == 16 && binary.BigEndian.Uint32(b[4:]) == cancelRequest {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

// The server itself dies: nothing of what it had not acknowledged is there when it is back.
func TestAServerThatDiesDuringTheCall(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	config, err := pgxpool.ParseConfig(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	pool := connect(t, config)
	if err := pg.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	mustExec(t, pool, `CREATE TABLE payments (key text NOT NULL)`)
	key := k("dies")
	_, err = call(watchdog(t), pg.New(pool), kindDoTx, key, func(at string) {
		if at == afterInsert {
			server.Kill()
			server.Restart()
		}
	})
	wantErr(t, err, idem.ErrUnavailable)
	wantEffects(t, pool, key, 0)
	comesAgain(t, pool, kindDoTx, key, false)
}
