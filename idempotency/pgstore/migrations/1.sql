-- The records of operations. Names are compared byte by byte, whatever the
-- database's collation. Joined work writes its row once, so that pages are filled;
-- what has a fixed width stands first, so that nothing is lost to alignment.
CREATE TABLE {{records}} (
	started       timestamptz      NOT NULL,
	updated       timestamptz      NOT NULL,
	expires       timestamptz      NOT NULL,
	generation    bigint           NOT NULL,
	code          bigint           NOT NULL DEFAULT 0,
	lease_expires timestamptz,               -- NULL unless the operation is in progress or unknown
	status        smallint         NOT NULL, -- 1 in progress, 2 completed, 3 failed, retryable, 4 failed, final, 5 completed, unreplayable, 6 unknown
	takeover      smallint         NOT NULL, -- of a dead execution: 0 and 3 mark it unknown, 1 execute again, 2 resume
	scope         text COLLATE "C" NOT NULL,
	operation     text COLLATE "C" NOT NULL,
	key           text COLLATE "C" NOT NULL,
	fingerprint   text COLLATE "C" NOT NULL,
	owner         text COLLATE "C" NOT NULL,
	header        text COLLATE "C",          -- a JSON object; each byte of a value is one code point
	body          bytea,
	reference     bytea,
	PRIMARY KEY (scope, operation, key)
);

-- What is swept. What is in progress or unknown is not, and would be in the way. (To
-- ask a row whether it is NULL is what costs the least of a partial index. A BRIN
-- index is smaller by far, but a sweep by it is twenty times as slow.)
CREATE INDEX {{expires}} ON {{records}} (expires) WHERE lease_expires IS NULL;

-- What may be abandoned, and what waits for a reconciler. Joined work never passes
-- through it.
CREATE INDEX {{open}} ON {{records}} (scope, operation, key) WHERE lease_expires IS NOT NULL;

-- Which migrations were executed here, and since which version of the package's
-- schema programs can work with the result.
CREATE TABLE {{versions}} (
	version integer     PRIMARY KEY,
	oldest  integer     NOT NULL,
	applied timestamptz NOT NULL DEFAULT now()
);
