-- The leases in a row that expired while a worker held the intent. Counts begin at 0 with this version.
ALTER TABLE {{schema}}durable_intent ADD lost bigint NOT NULL DEFAULT 0;

-- The time of the worker's last heartbeat. NULL: by a program for version 1.
ALTER TABLE {{schema}}durable_worker ADD renewed timestamptz;
