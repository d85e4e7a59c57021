-- The records of operations. Names are compared byte by byte, whatever the
-- database's collation. No index has a column that changes while an operation is
-- executed, and pages are not filled, so that a record's end is written beside its
-- beginning (HOT) and no index is touched.
CREATE TABLE {{records}} (
	scope         text COLLATE "C" NOT NULL,
	operation     text COLLATE "C" NOT NULL,
	key           text COLLATE "C" NOT NULL,
	fingerprint   text COLLATE "C" NOT NULL,
	status        smallint         NOT NULL, -- 1 in progress, 2 completed, 3 failed, retryable, 4 failed, final, 5 completed, unreplayable, 6 unknown
	owner         text COLLATE "C" NOT NULL,
	generation    bigint           NOT NULL,
	lease_expires timestamptz      NOT NULL,
	started       timestamptz      NOT NULL,
	updated       timestamptz      NOT NULL,
	expires       timestamptz      NOT NULL,
	code          bigint           NOT NULL DEFAULT 0,
	header        text COLLATE "C", -- a JSON object; each byte of a value is one code point
	body          bytea,
	reference     bytea,
	PRIMARY KEY (scope, operation, key)
) WITH (fillfactor = 60);

CREATE INDEX {{expires}} ON {{records}} (expires);

-- Which migrations were executed here.
CREATE TABLE {{versions}} (
	version integer     PRIMARY KEY,
	applied timestamptz NOT NULL DEFAULT now()
);
