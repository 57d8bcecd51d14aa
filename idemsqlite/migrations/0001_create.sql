-- Times are microseconds since 1970-01-01 UTC. The view below shows them as
-- text.
--
-- purge_after is never later than expires_at, and the only column besides the
-- key that is indexed. It stays as it is unless a record comes to expire
-- sooner, so completing a claim writes one page and no index.
CREATE TABLE idempotency_requests (
	user_id          TEXT NOT NULL,
	scope            TEXT NOT NULL,
	idempotency_key  TEXT NOT NULL,
	request_hash     TEXT NOT NULL,
	hash_version     INTEGER NOT NULL,
	status           TEXT NOT NULL CHECK (status IN ('processing', 'succeeded', 'failed')),
	token            BLOB,
	execution_id     BLOB NOT NULL,
	attempt          INTEGER NOT NULL,
	reclaimed        INTEGER NOT NULL,
	lease_expires_at INTEGER NOT NULL,
	expires_at       INTEGER NOT NULL,
	purge_after      INTEGER NOT NULL,
	inserted_at      INTEGER NOT NULL,
	updated_at       INTEGER NOT NULL,
	completed_at     INTEGER,
	response_status  INTEGER,
	response_codec   TEXT,
	response_codec_version INTEGER,
	response_body    BLOB,
	error_code       TEXT,
	error_message    TEXT,
	PRIMARY KEY (user_id, scope, idempotency_key)
) STRICT;

CREATE INDEX idempotency_requests_purge_after_idx ON idempotency_requests (purge_after);

-- For people: times as text, ids in hex, the body as its size.
CREATE VIEW idempotency_requests_readable AS
SELECT user_id, scope, idempotency_key, request_hash, hash_version, status,
	lower(hex(token)) AS token, lower(hex(execution_id)) AS execution_id, attempt, reclaimed,
	strftime('%Y-%m-%dT%H:%M:%fZ', lease_expires_at / 1e6, 'unixepoch') AS lease_expires_at,
	strftime('%Y-%m-%dT%H:%M:%fZ', expires_at / 1e6, 'unixepoch') AS expires_at,
	strftime('%Y-%m-%dT%H:%M:%fZ', inserted_at / 1e6, 'unixepoch') AS inserted_at,
	strftime('%Y-%m-%dT%H:%M:%fZ', updated_at / 1e6, 'unixepoch') AS updated_at,
	strftime('%Y-%m-%dT%H:%M:%fZ', completed_at / 1e6, 'unixepoch') AS completed_at,
	response_status, response_codec, response_codec_version, length(response_body) AS response_bytes,
	error_code, error_message
FROM idempotency_requests;
