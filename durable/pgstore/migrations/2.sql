-- The definite declines since "since": what attempt limits count.
ALTER TABLE {{schema}}durable_intent ADD COLUMN declines bigint NOT NULL DEFAULT 0;
