-- The parts of the identity are compared byte by byte, whatever the database's
-- collation. user_id comes first, so that the table can be distributed by user.
--
-- purge_after is a time before which the record does not expire, and the only
-- column besides the key that is indexed. It is set by the claim and changes only
-- if a later request shortens the retention, so the updates that renew and
-- complete a claim stay HOT. They need room on the row's page: a record with its
-- answer is about twice as large as the claim it was, and pages may be filled with
-- claims that are under way. See docs/postgres.md for what was measured.
--
-- There is no CHECK on status: the server would compile it anew for each write, a
-- tenth of what a claim takes it. Whoever reads a status that is none refuses it.
CREATE TABLE {{table}} (
	user_id          text COLLATE "C" NOT NULL,
	scope            text COLLATE "C" NOT NULL,
	idempotency_key  text COLLATE "C" NOT NULL,
	request_hash     text NOT NULL,
	hash_version     smallint NOT NULL,
	status           text NOT NULL, -- 'processing', 'succeeded' or 'failed'
	token            uuid,
	execution_id     uuid NOT NULL,
	attempt          integer NOT NULL,
	reclaimed        boolean NOT NULL,
	lease_expires_at timestamptz NOT NULL,
	expires_at       timestamptz NOT NULL,
	purge_after      timestamptz NOT NULL,
	inserted_at      timestamptz NOT NULL,
	updated_at       timestamptz NOT NULL,
	completed_at     timestamptz,
	response_status  smallint,
	response_codec   text,
	response_codec_version integer,
	response_body    bytea,
	error_code       text,
	error_message    text,
	PRIMARY KEY (user_id, scope, idempotency_key)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX {{purge_index}} ON {{table}} (purge_after);

COMMENT ON TABLE {{table}} IS 'Records of github.com/idem-go/idem. See docs/postgres.md.';
