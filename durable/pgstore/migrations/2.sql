-- The leases in a row that expired while a worker held the intent. Counts begin at 0 with this version.
ALTER TABLE {{schema}}durable_intent ADD lost bigint NOT NULL DEFAULT 0;
