-- Times are microseconds since 1970, by SQLite's clock; NULL is no time. Columns of text compare byte by byte (BINARY), so
-- that neither case nor trailing blanks make two names one. The numbers of states, classes and kinds are those of package
-- durable, and never change: 0 pending, 1 waiting, 2 sending, 3 asking, 4 unknown, 5 done, 6 dead, 7 canceled.

-- A row for each version of the tables: the last one counts. oldest is the oldest version of this package, by the
-- version that it knows itself, that may work with them.
CREATE TABLE IF NOT EXISTS durable_schema (
	version INTEGER PRIMARY KEY,
	oldest  INTEGER NOT NULL,
	applied INTEGER NOT NULL
) STRICT;

-- a_… is the last attempt: an entry of the journal that is written with the intent's row. The next attempt moves it to
-- durable_attempt. Large columns are last, so that reading the others does not read them.
CREATE TABLE IF NOT EXISTS durable_intent (
	id          INTEGER PRIMARY KEY,
	scope       TEXT    NOT NULL,
	operation   TEXT    NOT NULL,
	key         TEXT    NOT NULL,
	gateway     TEXT    NOT NULL,
	fingerprint TEXT    NOT NULL,
	state       INTEGER NOT NULL,
	epoch       INTEGER NOT NULL,
	generation  INTEGER NOT NULL,
	worker      TEXT    NOT NULL,
	next_at     INTEGER NOT NULL,
	later       INTEGER NOT NULL, -- its time has not come: claims promote it then
	deadline    INTEGER,
	attempts    INTEGER NOT NULL,
	tries       INTEGER NOT NULL,
	declines    INTEGER NOT NULL DEFAULT 0,
	doubt       INTEGER NOT NULL,
	ask         INTEGER NOT NULL,
	class       INTEGER NOT NULL,
	code        TEXT    NOT NULL,
	reference   TEXT    NOT NULL,
	reason      TEXT    NOT NULL,
	letter      INTEGER NOT NULL,
	first_at    INTEGER,
	last_at     INTEGER,
	taken_at    INTEGER,
	since       INTEGER NOT NULL,
	batch       TEXT    NOT NULL,
	row         INTEGER NOT NULL,
	created     INTEGER NOT NULL,
	updated     INTEGER NOT NULL,
	a_n         INTEGER NOT NULL DEFAULT 0, -- 0: there was none
	a_kind      INTEGER NOT NULL DEFAULT 0,
	a_epoch     INTEGER NOT NULL DEFAULT 0,
	a_key       TEXT    NOT NULL DEFAULT '',
	a_worker    TEXT    NOT NULL DEFAULT '',
	a_sent      INTEGER,
	a_finished  INTEGER,
	a_class     INTEGER NOT NULL DEFAULT 0,
	a_code      TEXT    NOT NULL DEFAULT '',
	a_status    INTEGER NOT NULL DEFAULT 0,
	a_reference TEXT    NOT NULL DEFAULT '',
	a_error     TEXT    NOT NULL DEFAULT '',
	payload     BLOB    NOT NULL,
	result      BLOB    NOT NULL DEFAULT x'',
	UNIQUE (scope, operation, key)
) STRICT;

-- Each intent is in one of the first four: what may be claimed soon, and later, what is held, what may be swept. They have
-- the state, so that counting reads nothing else. The last one is for lists; held intents are few, and listed by theirs.
CREATE INDEX IF NOT EXISTS durable_intent_due ON durable_intent (gateway, scope, next_at, state)
	WHERE state IN (0, 1, 4) AND NOT later;
CREATE INDEX IF NOT EXISTS durable_intent_later ON durable_intent (next_at, state) WHERE state IN (0, 1, 4) AND later;
CREATE INDEX IF NOT EXISTS durable_intent_held ON durable_intent (worker, state) WHERE state IN (2, 3);
CREATE INDEX IF NOT EXISTS durable_intent_over ON durable_intent (updated, state) WHERE state IN (5, 7);
CREATE INDEX IF NOT EXISTS durable_intent_listed ON durable_intent (state, created) WHERE state NOT IN (2, 3);

-- Status queries, which are sent while the provider asks to wait.
CREATE INDEX IF NOT EXISTS durable_intent_query ON durable_intent (gateway, next_at) WHERE state = 4 AND ask AND NOT later;

-- The journal but for the last attempt of each intent. n is the generation.
CREATE TABLE IF NOT EXISTS durable_attempt (
	intent      INTEGER NOT NULL,
	n           INTEGER NOT NULL,
	kind        INTEGER NOT NULL, -- 1 send, 2 query, 3 resolve, 4 erase
	epoch       INTEGER NOT NULL,
	key         TEXT    NOT NULL,
	worker      TEXT    NOT NULL,
	sent        INTEGER NOT NULL,
	finished    INTEGER,
	class       INTEGER NOT NULL,
	code        TEXT    NOT NULL,
	status      INTEGER NOT NULL,
	reference   TEXT    NOT NULL,
	error       TEXT    NOT NULL,
	PRIMARY KEY (intent, n)
) STRICT, WITHOUT ROWID;

-- Dead letters. n is their number.
CREATE TABLE IF NOT EXISTS durable_letter (
	intent      INTEGER NOT NULL,
	n           INTEGER NOT NULL,
	gateway     TEXT    NOT NULL,
	batch       TEXT    NOT NULL,
	row         INTEGER NOT NULL,
	reason      TEXT    NOT NULL,
	class       INTEGER NOT NULL,
	code        TEXT    NOT NULL,
	doubt       INTEGER NOT NULL,
	attempts    INTEGER NOT NULL,
	dead_at     INTEGER NOT NULL,
	redriven_at INTEGER, -- NULL: the letter is open
	"by"        TEXT    NOT NULL,
	note        TEXT    NOT NULL,
	PRIMARY KEY (intent, n)
) STRICT, WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS durable_letter_all ON durable_letter (dead_at);
CREATE INDEX IF NOT EXISTS durable_letter_open ON durable_letter (dead_at) WHERE redriven_at IS NULL;

-- One row for each that is alive, or holds something.
CREATE TABLE IF NOT EXISTS durable_worker (
	id         TEXT    PRIMARY KEY,
	expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Redrives of many dead letters. job is a driver.Job in JSON, filter a hash of its filter, which finds an equal one.
CREATE TABLE IF NOT EXISTS durable_job (
	id     INTEGER PRIMARY KEY,
	open   INTEGER NOT NULL,
	filter TEXT    NOT NULL,
	job    TEXT    NOT NULL
) STRICT;

CREATE INDEX IF NOT EXISTS durable_job_open ON durable_job (id) WHERE open;
CREATE UNIQUE INDEX IF NOT EXISTS durable_job_filter ON durable_job (filter) WHERE open;

-- Gateways that persons hold. A row stays when the hold is over.
CREATE TABLE IF NOT EXISTS durable_hold (
	gateway     TEXT    NOT NULL PRIMARY KEY,
	since       INTEGER NOT NULL,
	until       INTEGER, -- NULL: until it is released
	"by"        TEXT    NOT NULL,
	note        TEXT    NOT NULL,
	released_by TEXT    NOT NULL
) STRICT;

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

INSERT OR IGNORE INTO durable_schema (version, oldest, applied)
	VALUES (1, 1, CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000);
