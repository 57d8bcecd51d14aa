package pg

import (
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
)

// names are the schema and the table that a store works on.
type names struct {
	schema, table string
	alone         bool // no combining
}

func namesOf(opts []Option) names {
	n := names{table: "idempotency_requests"}
	for _, o := range opts {
		o(&n)
	}
	return n
}

func (n names) quoted(table string) string {
	if n.schema == "" {
		return pgx.Identifier{table}.Sanitize()
	}
	return pgx.Identifier{n.schema, table}.Sanitize()
}

// statements are the store's SQL for its table. Each is one atomic step, and all
// of it happens at one time, by the database's clock: that at which the statement
// came, and not its transaction. If it then waits for a lock, what it claims ends
// by so much sooner, and what it finds is not taken for over too early.
type statements struct {
	claim, takeOver, complete, release, renew, lookup string
	purge                                             [2]string // the limit is between

	lock, lockOrRaise, nested           string // within a transaction, see dotx.go
	finish, finishOver, completeOrRaise string
	claimMany, completeMany             string // for several callers, see many.go
}

// record is one value: a plan costs the server by the columns of its nodes, and
// more than what the plan then does. See [answer].
const record = `ROW(status, request_hash, hash_version, token, execution_id, attempt, reclaimed, lease_expires_at,
		expires_at, completed_at, response_status, response_codec, response_codec_version, response_body,
		error_code, error_message)`

func statementsFor(n names, binding idem.Binding) statements {
	// A claim takes its lock shared: claims do not hinder each other. But one in
	// a caller's transaction stays uncommitted for long, and others would wait
	// for its row.
	tryLock := "pg_try_advisory_xact_lock_shared"
	if binding == idem.BoundToTx {
		tryLock = "pg_try_advisory_xact_lock"
	}
	with := strings.NewReplacer(
		"{{table}}", n.quoted(n.table),
		"{{this}}", "user_id = $1 AND scope = $2 AND idempotency_key = $3",
		"{{record}}", record,
		"{{now}}", "statement_timestamp()",
		"{{us}}", "interval '1 microsecond'",
		"{{try_lock}}", tryLock,
		// Raises if this is not the transaction that began then: a closure has
		// ended that one by SQL. The root of -1 is an error, that of 0 is 0.
		"{{same_transaction}}", "sqrt((transaction_timestamp() = coalesce($18::timestamptz, transaction_timestamp()))::integer - 1) = 0",
		// Locks are the whole database's: they are on the key's digest and the table.
		"{{oid}}", "'"+strings.ReplaceAll(n.quoted(n.table), "'", "''")+"'::regclass::oid::bigint",
	).Replace
	complete := with(`
UPDATE {{table}} SET status = $5, completed_at = {{now}}, expires_at = {{now}} + $6::interval,
	purge_after = least(purge_after, {{now}} + $6::interval), updated_at = {{now}},
	response_status = $7::smallint, response_codec = $8, response_codec_version = $9::integer,
	response_body = $10::bytea, error_code = $11, error_message = $12
WHERE {{this}} AND token = $4::uuid AND status = 'processing'
RETURNING completed_at`)
	// The whole life of a record within one transaction.
	insert := with(`
	INSERT INTO {{table}} AS old (user_id, scope, idempotency_key, request_hash, hash_version, status, token,
		execution_id, attempt, reclaimed, lease_expires_at, expires_at, purge_after, inserted_at, updated_at,
		completed_at, response_status, response_codec, response_codec_version, response_body, error_code, error_message)
	SELECT $1, $2, $3, $4, $5::smallint, $6, $7::uuid,
		$8::uuid, $9::integer, $10::boolean, {{now}}, {{now}} + $11::interval, {{now}} + $11::interval, {{now}}, {{now}},
		{{now}}, $12::smallint, $13, $14::integer, $15::bytea, $16, $17`)
	return statements{
		// The look-up comes first, and the rest runs only where it found
		// nothing, so that a replay locks and writes nothing. The insert would
		// wait for a transaction that is about to insert the same key: the
		// shared lock, which such a transaction holds exclusively, says so
		// instead. No row means that, or that a rival committed in between.
		claim: with(`
WITH seen AS (
	SELECT {{record}} AS record FROM {{table}} WHERE {{this}}
), made AS (
	INSERT INTO {{table}} (user_id, scope, idempotency_key, request_hash, hash_version, status, token,
		execution_id, attempt, reclaimed, lease_expires_at, expires_at, purge_after, inserted_at, updated_at)
	SELECT $1, $2, $3, $4, $5::smallint, 'processing', $6::uuid,
		$7::uuid, 1, $8::boolean, {{now}} + $9::interval, {{now}} + $9::interval + $10::interval, {{now}} + $10::interval,
		{{now}}, {{now}}
	WHERE CASE WHEN NOT EXISTS (SELECT FROM seen) THEN {{try_lock}}($11::bigint # {{oid}}) END
	ON CONFLICT (user_id, scope, idempotency_key) DO NOTHING
	RETURNING updated_at
)
SELECT NULL::record, updated_at FROM made
UNION ALL
SELECT record, {{now}} FROM seen`),

		takeOver: with(`
WITH locked AS MATERIALIZED (
	SELECT {{try_lock}}($11::bigint # {{oid}}) AS ok
)
UPDATE {{table}} SET request_hash = $4, hash_version = $5::smallint, status = 'processing', token = $6::uuid,
	execution_id = $7::uuid, attempt = attempt + 1, reclaimed = $8::boolean,
	lease_expires_at = {{now}} + $9::interval, expires_at = {{now}} + $9::interval + $10::interval,
	purge_after = CASE WHEN expires_at <= {{now}} THEN {{now}} + $10::interval ELSE least(purge_after, {{now}} + $10::interval) END,
	inserted_at = CASE WHEN expires_at <= {{now}} THEN {{now}} ELSE inserted_at END, updated_at = {{now}},
	completed_at = NULL, response_status = NULL, response_codec = NULL, response_codec_version = NULL,
	response_body = NULL, error_code = NULL, error_message = NULL
FROM locked
WHERE locked.ok AND {{this}} AND status = $12 AND token IS NOT DISTINCT FROM $13::uuid AND attempt = $14
	AND (expires_at <= {{now}} OR status = 'processing' AND (token IS NULL OR lease_expires_at <= {{now}}))
RETURNING NULL::record, updated_at`),

		complete: complete,

		release: with(`
UPDATE {{table}} SET token = NULL, lease_expires_at = {{now}}, expires_at = {{now}} + $5::interval,
	purge_after = least(purge_after, {{now}} + $5::interval), updated_at = {{now}}
WHERE {{this}} AND token = $4::uuid AND status = 'processing'`),

		renew: with(`
UPDATE {{table}} SET lease_expires_at = {{now}} + $5::interval, expires_at = {{now}} + $5::interval + $6::interval,
	purge_after = least(purge_after, {{now}} + $6::interval), updated_at = {{now}}
WHERE {{this}} AND token = $4::uuid AND status = 'processing'`),

		lookup: with(`SELECT {{record}}, {{now}} FROM {{table}} WHERE {{this}}`),

		// Found by purge_after, which is indexed, and checked by expires_at,
		// which is exact. Deleted by where they are, so that a batch costs the
		// same whatever the size of the table: to join by key, the planner would
		// read all of a small one. A ctid alone names one row in each partition.
		// The limit is a literal so that the planner knows how few rows there will be.
		purge: [2]string{with(`
WITH expired AS MATERIALIZED (
	SELECT tableoid AS partition, ctid AS place FROM {{table}}
	WHERE purge_after <= {{now}} AND expires_at <= {{now}}
	ORDER BY purge_after LIMIT `), with(`
	FOR UPDATE SKIP LOCKED
), gone AS (
	DELETE FROM {{table}} AS t USING expired AS e
	WHERE t.ctid = ANY (ARRAY(SELECT place FROM expired)) AND t.tableoid = e.partition AND t.ctid = e.place
	RETURNING t.expires_at
)
SELECT count(*), min(expires_at), {{now}} FROM gone`)},

		// A transaction of the store's own may be idle for as long as is said.
		lock: with(`
SELECT pg_try_advisory_xact_lock($1::bigint # {{oid}}), transaction_timestamp(),
	CASE WHEN $2 <> '' THEN set_config('idle_in_transaction_session_timeout', $2, true) END`),

		lockOrRaise: with(`SELECT 1 / pg_try_advisory_xact_lock($1::bigint # {{oid}})::integer`),

		// Whether this session holds the lock already: locks are re-entrant.
		nested: with(`
SELECT EXISTS (
	SELECT FROM pg_locks, (SELECT $1::bigint # {{oid}} AS id) AS lock
	WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND mode = 'ExclusiveLock' AND objsubid = 1
		AND classid::bigint = (lock.id >> 32) & 4294967295 AND objid::bigint = lock.id & 4294967295
)`),

		// The whole record at once. If a rival was first, this raises, so that the
		// COMMIT behind it in the batch is never reached.
		finish: insert + with(` WHERE {{same_transaction}} RETURNING completed_at`),

		// The same in the place of the record that was seen, if it is still that:
		// if not, there is no row, and the division raises.
		finishOver: `WITH done AS (` + insert + with(`
	ON CONFLICT (user_id, scope, idempotency_key) DO UPDATE SET
		request_hash = excluded.request_hash, hash_version = excluded.hash_version, status = excluded.status,
		token = excluded.token, execution_id = excluded.execution_id, attempt = excluded.attempt,
		reclaimed = excluded.reclaimed, lease_expires_at = excluded.lease_expires_at, expires_at = excluded.expires_at,
		purge_after = CASE WHEN old.expires_at <= excluded.updated_at THEN excluded.purge_after
			ELSE least(old.purge_after, excluded.purge_after) END,
		inserted_at = CASE WHEN old.expires_at <= excluded.updated_at THEN excluded.inserted_at ELSE old.inserted_at END,
		updated_at = excluded.updated_at, completed_at = excluded.completed_at,
		response_status = excluded.response_status, response_codec = excluded.response_codec,
		response_codec_version = excluded.response_codec_version, response_body = excluded.response_body,
		error_code = excluded.error_code, error_message = excluded.error_message
	WHERE old.status = $19 AND old.token IS NOT DISTINCT FROM $20::uuid AND old.attempt = $21
		AND (old.expires_at <= excluded.updated_at
			OR old.status = 'processing' AND (old.token IS NULL OR old.lease_expires_at <= excluded.updated_at))
	RETURNING completed_at
)
SELECT max(completed_at) FROM done HAVING {{same_transaction}} AND 1 / count(*) = 1`),

		// As claim, for several keys that differ. LATERAL and OFFSET make each
		// look-up one of its own, by index, whatever the planner believes of the
		// table. Sorted, so that two of these rarely meet crosswise.
		claimMany: with(`
WITH req AS MATERIALIZED (
	SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::integer[], $6::uuid[],
		$7::uuid[], $8::boolean[], $9::bigint[], $10::bigint[], $11::bigint[]) WITH ORDINALITY
		AS r (user_id, scope, idempotency_key, request_hash, hash_version, token,
			execution_id, reclaimed, lease, retention, digest, n)
), seen AS (
	SELECT n, record FROM req AS r, LATERAL (
		SELECT {{record}} AS record FROM {{table}} AS t
		WHERE t.user_id = r.user_id AND t.scope = r.scope AND t.idempotency_key = r.idempotency_key OFFSET 0
	) AS t
), locked AS MATERIALIZED (
	SELECT r.*, {{try_lock}}(r.digest::bigint # {{oid}}) AS ok
	FROM req AS r WHERE NOT EXISTS (SELECT FROM seen WHERE seen.n = r.n)
), made AS (
	INSERT INTO {{table}} (user_id, scope, idempotency_key, request_hash, hash_version, status, token,
		execution_id, attempt, reclaimed, lease_expires_at, expires_at, purge_after, inserted_at, updated_at)
	SELECT user_id, scope, idempotency_key, request_hash, hash_version, 'processing', token,
		execution_id, 1, reclaimed, {{now}} + lease * {{us}}, {{now}} + lease * {{us}} + retention * {{us}},
		{{now}} + retention * {{us}}, {{now}}, {{now}}
	FROM locked WHERE ok ORDER BY user_id, scope, idempotency_key
	ON CONFLICT (user_id, scope, idempotency_key) DO NOTHING
	RETURNING token, updated_at
)
SELECT NULL::record, updated_at, 0, token FROM made
UNION ALL
SELECT record, {{now}}, n, NULL FROM seen`),

		completeMany: with(`
WITH req AS MATERIALIZED (
	SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::uuid[], $5::text[], $6::bigint[], $7::smallint[],
		$8::text[], $9::integer[], $10::bytea[], $11::text[], $12::text[])
		AS r (user_id, scope, idempotency_key, token, status, retention, response_status,
			response_codec, response_codec_version, response_body, error_code, error_message)
	ORDER BY 1, 2, 3
)
UPDATE {{table}} AS t SET status = r.status, completed_at = {{now}}, expires_at = {{now}} + r.retention * {{us}},
	purge_after = least(t.purge_after, {{now}} + r.retention * {{us}}), updated_at = {{now}},
	response_status = r.response_status, response_codec = r.response_codec,
	response_codec_version = r.response_codec_version, response_body = r.response_body,
	error_code = r.error_code, error_message = r.error_message
FROM req AS r
WHERE t.user_id = r.user_id AND t.scope = r.scope AND t.idempotency_key = r.idempotency_key
	AND t.token = r.token AND t.status = 'processing'
RETURNING t.token, t.completed_at`),

		completeOrRaise: `WITH done AS (` + complete + `) SELECT max(completed_at) FROM done HAVING ` +
			strings.ReplaceAll(with(`{{same_transaction}}`), "$18", "$13") + ` AND 1 / count(*) = 1`,
	}
}
