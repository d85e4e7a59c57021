-- Names compare byte by byte (COLLATE "C"), so that neither case nor a locale makes two names one. The numbers of states,
-- classes and kinds are those of package durable, and never change: 0 pending, 1 waiting, 2 sending, 3 asking, 4 unknown,
-- 5 done, 6 dead, 7 cancelled.

-- A row for each version of the tables. oldest is the oldest version of the package that may work with them.
CREATE TABLE {{schema}}durable_schema (
	version integer PRIMARY KEY,
	oldest  integer NOT NULL,
	applied timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE {{schema}}durable_intent (
	id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	scope       text COLLATE "C" NOT NULL,
	operation   text COLLATE "C" NOT NULL,
	key         text COLLATE "C" NOT NULL,
	gateway     text COLLATE "C" NOT NULL,
	fingerprint text        NOT NULL,
	state       smallint    NOT NULL,
	epoch       bigint      NOT NULL,
	generation  bigint      NOT NULL,
	worker      text COLLATE "C" NOT NULL,
	next_at     timestamptz NOT NULL,
	later       boolean     NOT NULL, -- it need not be looked at until soon before next_at: see durable.Soon
	deadline    timestamptz,
	attempts    bigint      NOT NULL,
	tries       bigint      NOT NULL,
	doubt       boolean     NOT NULL,
	ask         boolean     NOT NULL,
	class       smallint    NOT NULL,
	code        text        NOT NULL,
	reference   text        NOT NULL,
	reason      text        NOT NULL,
	letter      bigint      NOT NULL,
	first_at    timestamptz,
	last_at     timestamptz,
	taken_at    timestamptz,
	since       timestamptz NOT NULL,
	batch       text        NOT NULL,
	"row"       bigint      NOT NULL,
	created     timestamptz NOT NULL,
	updated     timestamptz NOT NULL,
	payload     bytea       NOT NULL,
	result      bytea       NOT NULL DEFAULT '',
	UNIQUE (scope, operation, key)
);

-- Each intent is in one of these: what may be claimed soon, and later, what is held, what is dead, what may be swept. They
-- have the state, so that counting reads nothing else.
CREATE INDEX durable_intent_due ON {{schema}}durable_intent (gateway, scope, next_at, id) INCLUDE (state)
	WHERE state IN (0, 1, 4) AND NOT later;
CREATE INDEX durable_intent_later ON {{schema}}durable_intent (next_at) INCLUDE (state) WHERE state IN (0, 1, 4) AND later;
CREATE INDEX durable_intent_held ON {{schema}}durable_intent (worker) INCLUDE (state) WHERE state IN (2, 3);
CREATE INDEX durable_intent_dead ON {{schema}}durable_intent (state) WHERE state = 6;
CREATE INDEX durable_intent_over ON {{schema}}durable_intent (updated) INCLUDE (state) WHERE state IN (5, 7);

-- The journal. n is the generation.
CREATE TABLE {{schema}}durable_attempt (
	intent      bigint      NOT NULL,
	n           bigint      NOT NULL,
	kind        smallint    NOT NULL, -- 1 send, 2 find, 3 resolve
	epoch       bigint      NOT NULL,
	key         text        NOT NULL,
	worker      text        NOT NULL,
	sent_at     timestamptz NOT NULL,
	finished_at timestamptz,
	class       smallint    NOT NULL,
	code        text        NOT NULL,
	status      bigint      NOT NULL,
	reference   text        NOT NULL,
	error       text        NOT NULL,
	PRIMARY KEY (intent, n)
);

-- Dead letters. n is their number, redriven_at is NULL while they are open.
CREATE TABLE {{schema}}durable_letter (
	intent      bigint      NOT NULL,
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
