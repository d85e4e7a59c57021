-- Names compare byte by byte (COLLATE "C"), so that neither case nor a locale makes two names one. The numbers of states,
-- classes and kinds are those of package durable, and never change: 0 pending, 1 waiting, 2 sending, 3 asking, 4 unknown,
-- 5 done, 6 dead, 7 canceled.

-- A row for each version of the tables. oldest is the oldest version of the package that may work with them.
CREATE TABLE {{schema}}durable_schema (
	version integer PRIMARY KEY,
	oldest  integer NOT NULL,
	applied timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- id is the first half of the SHA-256 of scope, operation and key, which are unique by it: one index for both, and short.
-- a_… is the last attempt, a row of the journal that is written with the intent's own, and stands in durable_attempt when
-- there is another one. The columns of a fixed width stand first, and what is large last.
CREATE TABLE {{schema}}durable_intent (
	id          uuid        PRIMARY KEY,
	seq         bigint      GENERATED ALWAYS AS IDENTITY, -- the order in which they came
	next_at     timestamptz NOT NULL,
	updated     timestamptz NOT NULL,
	created     timestamptz NOT NULL,
	since       timestamptz NOT NULL,
	epoch       bigint      NOT NULL DEFAULT 1,
	generation  bigint      NOT NULL DEFAULT 0,
	attempts    bigint      NOT NULL DEFAULT 0,
	tries       bigint      NOT NULL DEFAULT 0,
	declines    bigint      NOT NULL DEFAULT 0,
	letter      bigint      NOT NULL DEFAULT 0,
	"row"       bigint      NOT NULL,
	a_n         bigint      NOT NULL DEFAULT 0, -- the last attempt, 0: there was none
	a_epoch     bigint      NOT NULL DEFAULT 0,
	a_status    bigint      NOT NULL DEFAULT 0,
	a_kind      smallint    NOT NULL DEFAULT 0,
	a_class     smallint    NOT NULL DEFAULT 0,
	state       smallint    NOT NULL DEFAULT 0,
	class       smallint    NOT NULL DEFAULT 0,
	later       boolean     NOT NULL, -- its time has not come: claims promote it then
	doubt       boolean     NOT NULL DEFAULT false,
	ask         boolean     NOT NULL DEFAULT false,
	scope       text COLLATE "C" NOT NULL,
	operation   text COLLATE "C" NOT NULL,
	key         text COLLATE "C" NOT NULL,
	gateway     text COLLATE "C" NOT NULL,
	fingerprint text        NOT NULL,
	worker      text COLLATE "C" NOT NULL DEFAULT '',
	code        text        NOT NULL DEFAULT '',
	reference   text        NOT NULL DEFAULT '',
	reason      text        NOT NULL DEFAULT '',
	batch       text        NOT NULL,
	a_key       text        NOT NULL DEFAULT '',
	a_worker    text        NOT NULL DEFAULT '',
	a_code      text        NOT NULL DEFAULT '',
	a_reference text        NOT NULL DEFAULT '',
	a_error     text        NOT NULL DEFAULT '',
	a_sent      timestamptz,
	a_finished  timestamptz,
	deadline    timestamptz,
	first_at    timestamptz,
	last_at     timestamptz,
	taken_at    timestamptz,
	payload     bytea       NOT NULL,
	result      bytea       NOT NULL DEFAULT ''
);

-- Each intent is in one of the first four: what may be claimed soon, and later, what is held, what may be swept. They have
-- the state, so that counting reads nothing else. The last one is for lists; held intents are few, and listed by theirs.
CREATE INDEX durable_intent_due ON {{schema}}durable_intent (gateway, scope, next_at, seq) INCLUDE (state)
	WHERE state IN (0, 1, 4) AND NOT later;
CREATE INDEX durable_intent_later ON {{schema}}durable_intent (next_at) INCLUDE (state) WHERE state IN (0, 1, 4) AND later;
CREATE INDEX durable_intent_held ON {{schema}}durable_intent (worker) INCLUDE (state) WHERE state IN (2, 3);
CREATE INDEX durable_intent_over ON {{schema}}durable_intent (updated) INCLUDE (state) WHERE state IN (5, 7);
CREATE INDEX durable_intent_listed ON {{schema}}durable_intent (state, created) WHERE state NOT IN (2, 3);

-- Status queries, which are sent while the provider asks to wait.
CREATE INDEX durable_intent_query ON {{schema}}durable_intent (gateway, next_at) WHERE state = 4 AND ask AND NOT later;

-- The journal but for the last attempt of each intent. n is the generation.
CREATE TABLE {{schema}}durable_attempt (
	intent      uuid        NOT NULL,
	n           bigint      NOT NULL,
	kind        smallint    NOT NULL, -- 1 send, 2 query, 3 resolve, 4 erase
	epoch       bigint      NOT NULL,
	key         text        NOT NULL,
	worker      text        NOT NULL,
	sent        timestamptz NOT NULL,
	finished    timestamptz,
	class       smallint    NOT NULL,
	code        text        NOT NULL,
	status      bigint      NOT NULL,
	reference   text        NOT NULL,
	error       text        NOT NULL,
	PRIMARY KEY (intent, n)
);

-- Dead letters. n is their number, redriven_at is NULL while they are open.
CREATE TABLE {{schema}}durable_letter (
	intent      uuid        NOT NULL,
	n           bigint      NOT NULL,
	gateway     text        NOT NULL,
	batch       text        NOT NULL,
	"row"       bigint      NOT NULL,
	reason      text        NOT NULL,
	class       smallint    NOT NULL,
	code        text        NOT NULL,
	doubt       boolean     NOT NULL,
	attempts    bigint      NOT NULL,
	dead_at     timestamptz NOT NULL,
	redriven_at timestamptz,
	"by"        text        NOT NULL DEFAULT '',
	note        text        NOT NULL DEFAULT '',
	PRIMARY KEY (intent, n)
);

CREATE INDEX durable_letter_all ON {{schema}}durable_letter (dead_at);
CREATE INDEX durable_letter_open ON {{schema}}durable_letter (dead_at) WHERE redriven_at IS NULL;

-- One row for each worker that is alive, or holds something.
CREATE TABLE {{schema}}durable_worker (
	id         text COLLATE "C" PRIMARY KEY,
	expires_at timestamptz NOT NULL
);

-- Gateways that persons hold. A row stays when the hold is over.
CREATE TABLE {{schema}}durable_hold (
	gateway     text COLLATE "C" PRIMARY KEY,
	since       timestamptz NOT NULL,
	until       timestamptz, -- NULL: until it is released
	"by"        text NOT NULL,
	note        text NOT NULL,
	released_by text NOT NULL DEFAULT ''
);

-- Gateways, or scopes of them, that wait because the provider asked to. scope is '' for all scopes. A row stays for a day
-- after the hold.
CREATE TABLE {{schema}}durable_provider_hold (
	gateway text COLLATE "C" NOT NULL,
	scope   text COLLATE "C" NOT NULL,
	since   timestamptz NOT NULL,
	until   timestamptz NOT NULL,
	note    text        NOT NULL,
	PRIMARY KEY (gateway, scope)
);

CREATE INDEX durable_provider_hold_until ON {{schema}}durable_provider_hold (until);

-- Redrives of many dead letters. job is a driver.Job in JSON, filter a hash of its filter, which finds an equal one.
CREATE TABLE {{schema}}durable_job (
	id     bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	open   boolean NOT NULL,
	filter text    NOT NULL,
	job    text    NOT NULL
);

CREATE INDEX durable_job_open ON {{schema}}durable_job (id) WHERE open;
CREATE UNIQUE INDEX durable_job_filter ON {{schema}}durable_job (filter) WHERE open;
