package pg

import (
	"strings"

	"github.com/jackc/pgx/v5"
)

// names are the schema and the table that a store works on.
type names struct{ schema, table string }

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

// statements are the store's SQL for its table. Each is one atomic step, and
// reads the time from the database's clock: clock_timestamp(), since the time of
// the transaction or the statement may lie before a wait for a lock.
type statements struct {
	claim, takeOver, complete, release, renew, lookup, purge string
}

const (
	clock  = `(SELECT clock_timestamp() AS now) AS clock`
	this   = `user_id = $1 AND scope = $2 AND idempotency_key = $3`
	record = `status, request_hash, hash_version, token, execution_id, attempt, reclaimed, lease_expires_at,
		expires_at, completed_at, response_status, response_codec, response_codec_version, response_body,
		error_code, error_message`
)

func statementsFor(n names) statements {
	with := strings.NewReplacer(
		"{{table}}", n.quoted(n.table),
		"{{clock}}", clock,
		"{{this}}", this,
		"{{record}}", record,
	).Replace
	return statements{
		// The look-up comes first, and the insert runs only where it found
		// nothing, so that a replay locks and writes nothing. A rival that
		// commits between the two leaves this with no row: claim again.
		claim: with(`
WITH seen AS (
	SELECT {{record}} FROM {{table}} WHERE {{this}}
), made AS (
	INSERT INTO {{table}} (user_id, scope, idempotency_key, request_hash, hash_version, status, token,
		execution_id, attempt, reclaimed, lease_expires_at, expires_at, purge_after, inserted_at, updated_at)
	SELECT $1, $2, $3, $4, $5::smallint, 'processing', $6::uuid,
		$7::uuid, 1, $8::boolean, now + $9::interval, now + $9::interval + $10::interval, now + $10::interval, now, now
	FROM {{clock}} WHERE NOT EXISTS (SELECT FROM seen)
	ON CONFLICT (user_id, scope, idempotency_key) DO NOTHING
	RETURNING {{record}}
)
SELECT {{record}}, clock_timestamp() FROM made
UNION ALL
SELECT {{record}}, clock_timestamp() FROM seen`),

		takeOver: with(`
UPDATE {{table}} SET request_hash = $4, hash_version = $5::smallint, status = 'processing', token = $6::uuid,
	execution_id = $7::uuid, attempt = attempt + 1, reclaimed = $8::boolean,
	lease_expires_at = now + $9::interval, expires_at = now + $9::interval + $10::interval,
	purge_after = CASE WHEN expires_at <= now THEN now + $10::interval ELSE purge_after END,
	inserted_at = CASE WHEN expires_at <= now THEN now ELSE inserted_at END, updated_at = now,
	completed_at = NULL, response_status = NULL, response_codec = NULL, response_codec_version = NULL,
	response_body = NULL, error_code = NULL, error_message = NULL
FROM {{clock}}
WHERE {{this}} AND status = $11 AND token IS NOT DISTINCT FROM $12::uuid AND attempt = $13
	AND (expires_at <= now OR status = 'processing' AND lease_expires_at <= now)
RETURNING {{record}}, clock_timestamp()`),

		complete: with(`
UPDATE {{table}} SET status = $5, completed_at = now, expires_at = now + $6::interval, updated_at = now,
	response_status = $7::smallint, response_codec = $8, response_codec_version = $9::integer,
	response_body = $10::bytea, error_code = $11, error_message = $12
FROM {{clock}}
WHERE {{this}} AND token = $4::uuid AND status = 'processing'
RETURNING completed_at`),

		release: with(`
UPDATE {{table}} SET token = NULL, lease_expires_at = now, expires_at = now + $5::interval, updated_at = now
FROM {{clock}}
WHERE {{this}} AND token = $4::uuid AND status = 'processing'`),

		renew: with(`
UPDATE {{table}} SET lease_expires_at = now + $5::interval, expires_at = now + $5::interval + $6::interval, updated_at = now
FROM {{clock}}
WHERE {{this}} AND token = $4::uuid AND status = 'processing'`),

		lookup: with(`SELECT {{record}}, clock_timestamp() FROM {{table}} WHERE {{this}}`),

		// Found by purge_after, which is indexed, and checked by expires_at,
		// which is exact. statement_timestamp() because an index takes no
		// volatile bound. Deleted by key: on a partitioned table a ctid names
		// one row in each partition. The limit is a literal so that the planner
		// knows how few rows there will be.
		purge: with(`
WITH expired AS (
	SELECT user_id, scope, idempotency_key, expires_at FROM {{table}}
	WHERE purge_after <= statement_timestamp() AND expires_at <= clock_timestamp()
	ORDER BY purge_after LIMIT {{limit}}
	FOR UPDATE SKIP LOCKED
), gone AS (
	DELETE FROM {{table}} AS t USING expired AS e
	WHERE t.user_id = e.user_id AND t.scope = e.scope AND t.idempotency_key = e.idempotency_key
	RETURNING t.expires_at
)
SELECT count(*), min(expires_at), clock_timestamp() FROM gone`),
	}
}
