-- The definite declines since "since": what attempt limits count.
ALTER TABLE durable_intent ADD COLUMN declines INTEGER NOT NULL DEFAULT 0;

INSERT INTO durable_schema (version, oldest, applied)
	VALUES (2, 1, CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000);
