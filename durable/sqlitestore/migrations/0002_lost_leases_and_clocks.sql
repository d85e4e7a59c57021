-- The leases in a row that expired while a worker held the intent. Counts begin at 0 with this version.
ALTER TABLE durable_intent ADD COLUMN lost INTEGER NOT NULL DEFAULT 0;

-- The time of the worker's last heartbeat. NULL: by a program for version 1.
ALTER TABLE durable_worker ADD COLUMN renewed INTEGER;

INSERT OR IGNORE INTO durable_schema (version, oldest, applied)
	VALUES (2, 1, CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000);
