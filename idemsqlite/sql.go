package idemsqlite

import (
	"strconv"
	"strings"
)

// statements are the store's SQL. Each is one atomic step. The time is read
// inside of it, when it has the lock, and once: an expression of a subquery that
// is not materialized may be evaluated for every use. UPDATE has no other
// places for values of FROM than SET and WHERE, so the time comes back as
// updated_at.
var statements = struct {
	claim, takeOver, complete, purgeSooner, release, renew, lookup, purge, pages, vacuum string
}{
	claim: with(`{{clock}}
INSERT INTO idempotency_requests (user_id, scope, idempotency_key, request_hash, hash_version, status, token,
	execution_id, attempt, reclaimed, lease_expires_at, expires_at, purge_after, inserted_at, updated_at)
SELECT ?1, ?2, ?3, ?4, ?5, 'processing', ?6,
	?7, 1, ?8, now + ?9, now + ?9 + ?10, now + ?10, now, now
FROM clock WHERE true
ON CONFLICT (user_id, scope, idempotency_key) DO NOTHING
RETURNING updated_at`),

	takeOver: with(`{{clock}}
UPDATE idempotency_requests SET request_hash = ?4, hash_version = ?5, status = 'processing', token = ?6,
	execution_id = ?7, attempt = attempt + 1, reclaimed = ?8,
	lease_expires_at = now + ?9, expires_at = now + ?9 + ?10,
	purge_after = CASE WHEN expires_at <= now THEN now + ?10 ELSE min(purge_after, now + ?10) END,
	inserted_at = CASE WHEN expires_at <= now THEN now ELSE inserted_at END, updated_at = now,
	completed_at = NULL, response_status = NULL, response_codec = NULL, response_codec_version = NULL,
	response_body = NULL, error_code = NULL, error_message = NULL
FROM clock
WHERE {{this}} AND status = ?11 AND token IS ?12 AND attempt = ?13
	AND (expires_at <= now OR status = 'processing' AND (token IS NULL OR lease_expires_at <= now))
RETURNING updated_at`),

	complete: with(`{{clock}}
UPDATE idempotency_requests SET status = ?5, completed_at = now, expires_at = now + ?6, updated_at = now,
	response_status = ?7, response_codec = ?8, response_codec_version = ?9,
	response_body = ?10, error_code = ?11, error_message = ?12
FROM clock
WHERE {{this}} AND token = ?4 AND status = 'processing'
RETURNING completed_at, expires_at < purge_after`),

	// A statement of its own: one that sets an indexed column writes the index,
	// even if the value stays the same.
	purgeSooner: with(`
UPDATE idempotency_requests SET purge_after = expires_at WHERE {{this}}`),

	release: with(`{{clock}}
UPDATE idempotency_requests SET token = NULL, lease_expires_at = now, expires_at = now + ?5,
	purge_after = min(purge_after, now + ?5), updated_at = now
FROM clock
WHERE {{this}} AND token = ?4 AND status = 'processing'`),

	renew: with(`{{clock}}
UPDATE idempotency_requests SET lease_expires_at = now + ?5, expires_at = now + ?5 + ?6,
	purge_after = min(purge_after, now + ?5 + ?6), updated_at = now
FROM clock
WHERE {{this}} AND token = ?4 AND status = 'processing'`),

	lookup: with(`SELECT {{record}}, idem_now() FROM idempotency_requests WHERE {{this}}`),

	purge: with(`{{clock}}
DELETE FROM idempotency_requests WHERE rowid IN (
	SELECT r.rowid FROM idempotency_requests AS r, clock
	WHERE purge_after <= now AND expires_at <= now ORDER BY purge_after LIMIT ?1
)
RETURNING expires_at, idem_now()`),

	pages:  `SELECT freelist_count, page_count FROM pragma_freelist_count, pragma_page_count`,
	vacuum: `PRAGMA incremental_vacuum(` + strconv.Itoa(vacuumPages) + `)`,
}

var with = strings.NewReplacer(
	"{{clock}}", `WITH clock(now) AS MATERIALIZED (SELECT idem_now())`,
	"{{this}}", `user_id = ?1 AND scope = ?2 AND idempotency_key = ?3`,
	"{{record}}", `status, request_hash, hash_version, token, execution_id, attempt, reclaimed, lease_expires_at,
	expires_at, completed_at, response_status, response_codec, response_codec_version, response_body,
	error_code, error_message`,
).Replace
