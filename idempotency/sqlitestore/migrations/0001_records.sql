-- Times are milliseconds since 1970, by SQLite's clock. Columns of text compare byte by byte (BINARY), so that neither
-- case nor trailing blanks make two names one.
CREATE TABLE idempotency_records (
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
	expires       INTEGER NOT NULL,
	code          INTEGER NOT NULL DEFAULT 0,
	reference     TEXT    NOT NULL DEFAULT '',
	header        BLOB, -- see header.go; NULL: nil
	body          BLOB, -- NULL: nil
	UNIQUE (scope, operation, key)
) STRICT;

-- What may be swept, oldest first. Unknown records (6) never may, and however many there are, no sweep passes them.
CREATE INDEX idempotency_records_expires ON idempotency_records (expires) WHERE status <> 6;
