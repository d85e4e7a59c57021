// Package pgstore keeps the intents of package durable in PostgreSQL, for workers on many
// machines. An order and its charge can be one transaction:
//
//	store, err := pgstore.New(ctx, pool, nil) // creates its tables
//	…
//	_, err = tx.Exec(ctx, "INSERT INTO orders …")
//	receipt, err := store.WithTx(tx).Enqueue(ctx, intent)
//	err = tx.Commit(ctx)
//	engine.Wake()
//
// Each verb is one commit with synchronous_commit on, or more (remote_apply) if the session
// has that. A transaction of the caller commits as the caller configured it. All times are
// PostgreSQL's. PostgreSQL 13 and later are supported; the tests use 15.
//
// An asynchronous standby lacks the last commits. So a failover to it loses intents, and sends done
// ones again, unless synchronous_standby_names names it. See docs/durable.md.
//
// # Locks and connections
//
// A claim waits for no lock (SKIP LOCKED), and does not read intents that are not due. Apply
// locks its intents in the order of their ids. A verb is repeated for about a second after a
// deadlock or a serialization failure.
//
// Engine.Run needs up to three connections of the pool at once. If the pool is exhausted,
// outcomes are stored later, and heartbeats use their own connection. Run also has one
// connection beside the pool, which LISTENs for commits of other processes. A transaction that
// notifies cannot be prepared (PREPARE TRANSACTION).
//
// PgBouncer may pool transactions. Then there are no notifications, and the Engine finds the
// commits of other processes when it polls. Before version 1.21, and behind other proxies, pgx
// must not prepare statements: default_query_exec_mode=exec in the DSN.
//
// # Tables
//
// A service with Options.NoMigration needs these rights (see Migrate and Schema):
//
//	GRANT USAGE ON SCHEMA … TO service;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON durable_intent, durable_attempt, durable_letter,
//		durable_worker, durable_hold, durable_provider_hold, durable_job TO service;
//	GRANT SELECT ON durable_schema TO service;
//
// See docs/durable.md.
package pgstore
