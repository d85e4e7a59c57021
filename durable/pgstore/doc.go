// Package pgstore keeps the intents of package durable in PostgreSQL, for workers on many
// machines, beside the data of the work, so that an order and its charge are one
// transaction.
//
//	pool, err := pgxpool.New(ctx, dsn)
//	…
//	store, err := pgstore.New(ctx, pool, nil) // makes its tables
//	…
//	tx, err := pool.Begin(ctx)
//	…
//	_, err = tx.Exec(ctx, "INSERT INTO orders …")
//	receipt, err := store.WithTx(tx).Enqueue(ctx, intent)
//	…
//	err = tx.Commit(ctx)
//	engine.Wake()
//
// # Durability
//
// Each verb is one commit with synchronous_commit on, or more (remote_apply) if the session
// has that. A transaction of the caller (WithTx) commits as the caller configured it. All
// times are PostgreSQL's.
//
// # Locks and connections
//
// A claim waits for no lock (SKIP LOCKED). It finds the scopes that are due by seeks in a
// partial index, and does not read intents that are not due. Apply locks its
// intents in the order of their ids, and waits for other transactions that have them. A
// finished attempt is written without reading the intent: generation and worker say that it
// is unchanged. After a deadlock or a serialization failure, a verb is repeated for a second
// or so.
//
// A verb takes a connection of the pool for one to three round trips. Engine.Run needs three
// at once at most. If the pool is exhausted, outcomes are stored later, and a heartbeat that
// gets no connection within a ninth of the lease makes its own.
//
// # Notifications
//
// An Engine that runs has one more connection, beside the pool, on which it LISTENs for
// commits of other processes. A transaction of the caller (WithTx, WithSQLTx) notifies at its
// commit, and then cannot be prepared (PREPARE TRANSACTION). The store's own commits are
// followed by a notification in the background. PostgreSQL lets only one transaction that
// notifies commit at a time, so of a process's transactions at most 5 per 10 ms notify; the
// others are followed by a notification in the background. Without notifications, as behind
// PgBouncer, the Engine finds the commits of other processes when it polls.
//
// # PgBouncer
//
// Nothing depends on a connection's session: settings and locks are those of a
// transaction. So PgBouncer may pool transactions. Its version 1.21 and later keep track
// of prepared statements, if max_prepared_statements is set; with an earlier one, or
// another proxy, make pgx do without them: default_query_exec_mode=exec in the DSN, or
// simple_protocol. Tests run in both.
//
// # The tables
//
// durable_intent has a row for each intent, with its last attempt (a_…), which is committed
// with the claim. durable_attempt has the earlier attempts, durable_letter the dead letters,
// durable_worker the workers that are alive, durable_hold the gateways that persons hold, and
// durable_job the jobs. The id of an intent is half of a hash:
//
//	SELECT * FROM durable_intent WHERE id = encode(substr(sha256(int4send(octet_length($1)) || convert_to($1, 'UTF8') ||
//		int4send(octet_length($2)) || convert_to($2, 'UTF8') || convert_to($3, 'UTF8')), 1, 16), 'hex')::uuid
//
// A service needs only these rights, if the tables are made beforehand (Migrate, or the text
// of Schema) and Options.NoMigration is set:
//
//	GRANT USAGE ON SCHEMA … TO service;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON durable_intent, durable_attempt, durable_letter, durable_worker,
//		durable_hold, durable_job TO service;
//	GRANT SELECT ON durable_schema TO service;
//
// The schema has a version, and the oldest version of the package that can work with it.
// Older programs than that get ErrSchema.
//
// It is written for PostgreSQL 13 and later, and tested with 15.
package pgstore
