-- Gateways, or scopes of them, that wait because the provider asked to. scope is '' for all scopes. A row stays for a day
-- after the hold.
CREATE TABLE IF NOT EXISTS durable_provider_hold (
	gateway TEXT    NOT NULL,
	scope   TEXT    NOT NULL,
	since   INTEGER NOT NULL,
	until   INTEGER NOT NULL,
	note    TEXT    NOT NULL,
	PRIMARY KEY (gateway, scope)
) STRICT, WITHOUT ROWID;

-- Status queries, which are sent while the provider asks to wait.
CREATE INDEX IF NOT EXISTS durable_intent_query ON durable_intent (gateway, next_at) WHERE state = 4 AND ask = 1 AND later = 0;

INSERT OR IGNORE INTO durable_schema (version, oldest, applied)
	VALUES (2, 1, CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000);
