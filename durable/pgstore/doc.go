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
// # What lasts
//
// Each verb is one commit. synchronous_commit is on for it, where the database or the
// session has set it to less; where to more (remote_apply) that stays. A transaction of
// the caller's (WithTx) commits as its owner wants. All times are PostgreSQL's.
//
// # Who waits
//
// A claim waits for no other: what somebody else is at it passes over (SKIP LOCKED). Of the
// gateways that have room its scopes are found by seeks in a partial index, one for each,
// and so it takes as long with a million intents that wait as with a thousand. Apply locks the
// intents that it is about, in the order of their names' hashes, and waits for whoever has
// them, as it waits for transactions that have enqueued the same and not ended. How attempts
// ended is written without a look at what was claimed: the generation and the worker say that
// it is still so. What fails by a deadlock or a
// serialization failure is done again, for a second or so.
//
// A verb takes a connection of the pool for one to three round trips. Engine.Run needs three
// at once at the most. Where the work of the same process uses the pool up, outcomes are
// stored later, but the process does not count as dead: a heartbeat for which there is no
// connection within a ninth of the Lease makes one of its own.
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
// durable_intent has a row for each intent, and in that its last attempt (a_…), which is
// committed with the claim; durable_attempt has the attempts before that, durable_letter one
// row for each dead letter, durable_worker one for each worker that is alive; all can be read
// with SQL. An intent is found by its id, the first half of a hash:
//
//	SELECT * FROM durable_intent WHERE id = encode(substr(sha256(int4send(octet_length($1)) || convert_to($1, 'UTF8') ||
//		int4send(octet_length($2)) || convert_to($2, 'UTF8') || convert_to($3, 'UTF8')), 1, 16), 'hex')::uuid
//
// A service needs no rights but these, if somebody else makes the tables (Migrate, or the
// text that Schema gives) and it says
// Options.NoMigration:
//
//	GRANT USAGE ON SCHEMA … TO service;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON durable_intent, durable_attempt, durable_letter, durable_worker TO service;
//	GRANT SELECT ON durable_schema TO service;
//
// The schema has a version, and says which programs it can work with. A version that only
// adds lets older programs go on, start and come back after a rollback; one that does not
// is an ErrSchema to them.
//
// It is written for PostgreSQL 13 and later, and tested with 15.
package pgstore
