package txtests_test

import (
	"errors"
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

func TestACallerCutOffDuringItsCommit(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{kindDoTx, kindBegin} {
		for name := range gates {
			for _, found := range []bool{true, false} {
				t.Run(kind+": in "+name+map[bool]string{true: ", which ends in time", false: ", which does not end in time"}[found], func(t *testing.T) {
					t.Parallel()
					config := migrated(t)
					pool := connect(t, config)
					proxy := pgtest.NewProxy(t, config)
					key := k("in flight")
					open := closeGate(t, pool, name)
					var res idem.Result[string]
					var err error
					called := beside(func() {
						res, err = call(watchdog(t), pg.New(connect(t, proxy.Config())), kind, key, func(string) {})
					})
					eventually(t, pool, atGate)
					proxy.Cut()
					if found {
						open()
					}
					<-called
					if found && (err != nil || res.Value != "paid" || res.Replayed || res.CompletedAt.IsZero()) {
						t.Errorf("got %+v, %v", res, err)
					}
					if !found {
						wantErr(t, err, idem.ErrOutcomeUnknown)
						wantEffects(t, pool, key, 0)
						open()
					}
					settledDown(t, pool)
					wantEffects(t, pool, key, 1)
					comesAgain(t, pool, kind, key, true)
				})
			}
		}
	}
}

// The server itself dies: whatever it had acknowledged is there when it is back.
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
	for _, point := range []string{beforeInsert, afterInsert} {
		key := k("%s", point)
		_, err := call(watchdog(t), pg.New(pool), kindDoTx, key, func(at string) {
			if at == point {
				server.Kill()
			}
		})
		if err == nil || errors.Is(err, idem.ErrInProgress) {
			t.Errorf("%s: got error %v", point, err)
		}
		t.Logf("%s: %v", point, err)
		server.Restart()
		pool.Reset()
		wantEffects(t, pool, key, 0)
		comesAgain(t, pool, kindDoTx, key, false)
	}
}
