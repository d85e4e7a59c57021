-- Times are milliseconds since 1970, by SQLite's clock. Columns of text compare byte by byte (BINARY), so that neither
-- case nor trailing blanks make two names one. The numbers of status and takeover are those of package idempotency.

-- A row for each version of the tables: the last one counts. oldest is the oldest version of this package, by the
-- version that it knows itself, that may work with them.
CREATE TABLE IF NOT EXISTS idempotency_schema (
	version INTEGER PRIMARY KEY,
	oldest  INTEGER NOT NULL,
	applied INTEGER NOT NULL
) STRICT;

CREATE TABLE IF NOT EXISTS idempotency_records (
	id            INTEGER PRIMARY KEY,
	scope         TEXT    NOT NULL,
	operation     TEXT    NOT NULL,
	key           TEXT    NOT NULL,
	fingerprint   TEXT    NOT NULL,
	status        INTEGER NOT NULL,
	owner         TEXT    NOT NULL,
	generation    INTEGER NOT NULL,
	started       INTEGER NOT NULL,
	updated       INTEGER NOT NULL,
	lease_expires INTEGER NOT NULL,
	takeover      INTEGER NOT NULL,
	expires       INTEGER NOT NULL,
	code          INTEGER NOT NULL DEFAULT 0,
	reference     TEXT    NOT NULL DEFAULT '',
	header        BLOB, -- see header.go; NULL: nil
	body          BLOB, -- NULL: nil
	UNIQUE (scope, operation, key)
) STRICT;

-- What may be swept, oldest first. Unknown records (6) never may, and however many there are, no sweep passes them.
CREATE INDEX IF NOT EXISTS idempotency_records_expires ON idempotency_records (expires) WHERE status <> 6;

-- Records that have not ended: in progress (1), for Reap, and Unknown (6), in the order of a list.
CREATE INDEX IF NOT EXISTS idempotency_records_open ON idempotency_records (status, scope, operation, key)
	WHERE status = 1 OR status = 6;

INSERT OR IGNORE INTO idempotency_schema (version, oldest, applied)
	VALUES (1, 1, CAST(round(unixepoch('subsec') * 1000) AS INTEGER));
