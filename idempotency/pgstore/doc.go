// Package pgstore keeps the records of package idempotency in PostgreSQL, beside the
// data of the operations themselves, so that an operation and its record are
// committed together.
//
//	pool, err := pgxpool.New(ctx, dsn)
//	…
//	store, err := pgstore.New(ctx, pool, nil) // makes its tables
//	…
//	handler := idempotency.NewHandler(store, tenantOf, next) // see there
//
// In the handler, idempotency.Tx gives the transaction that the record ends with:
//
//	tx, err := idempotency.Tx[pgx.Tx](ctx) // [*sql.Tx] of a store made by NewSQL
//	…
//	_, err = tx.Exec(ctx, "INSERT INTO charges …")
//
// The transaction ends when the handler has answered. The work must not end it, and
// cannot where it is a pgx.Tx; savepoints (its Begin) are the work's to use.
//
// A consumer of messages that has a transaction already takes the record into it:
// see [Store.Within].
//
// # Joined work is one transaction
//
// Begin opens it, locks the operation's name and looks for its record, in one round
// trip; the work is done; and the record and the COMMIT go in one round trip more. The
// lock is an advisory one of the transaction (pg_try_advisory_xact_lock), so that it
// disappears with its owner, and whoever meets it is told Busy at once. Should something
// get past it, the table's unique key has the last word, and who comes second commits
// nothing. Detached executions respect the same lock, so that a deploy may change from
// one to the other.
//
// Where the claims before were for finished operations the record is looked for first,
// alone: a repeat is one SELECT then, and a new operation a round trip more.
//
// The server ends a transaction that outlives Begin's limit; before PostgreSQL 17 only
// one that does nothing for so long. It notices within Claim.Lease (at least two seconds)
// that the host of its owner is lost, by TCP's keepalives and tcp_user_timeout, which are
// set for the transaction; a session whose own are tighter keeps them. What remains: the
// lock is held until the limit where a process is stopped, but its host is alive, and
// where a proxy such as PgBouncer is between, whose own keepalives find out then
// (tcp_keepalive, tcp_keepidle, tcp_keepintvl, tcp_user_timeout).
//
// # What is durable
//
// All that a verb has returned nil for: synchronous_commit is on for what the store
// commits, where the database or the session has set it to less (off, local,
// remote_write); where to more (remote_apply) that stays. A record that a crash undoes
// while its effect stands is an effect twice. Two exceptions: a sweep, and a transaction
// of the caller's ([Store.Within]), which commits as its owner wants.
//
// # Clocks
//
// All times are PostgreSQL's. That of the application is never sent.
//
// # Connections
//
// A call takes a connection of the pool for as long as a statement or two take. A
// duplicate of a request that is being executed waits for nobody and keeps nothing.
// Joined work has a connection from Begin to its end, so that a pool bounds how much of
// it is done at once; the rest waits, as long as its context allows. Leases do not wait
// for the work: Renew, Complete, Release and Abandon, if they have not got a connection
// of the pool within 100 ms (Renew: a twentieth of the lease, if that is less), open one
// more like it, share it one after the other, and close it. So a pool of one is enough
// for joined and detached work, as long as the work itself does not ask the pool for
// another connection while it has its transaction. (NewSQL cannot open one where
// pgx's driver is wrapped in another.)
//
// Where a row is locked for longer than a moment, by a transaction of [Store.Within] or
// by hand, Reserve answers Busy after a second or so, and the other verbs fail then with
// an error that is not idempotency.ErrLeaseLost: nothing is decided before that
// transaction ends.
//
// # PgBouncer
//
// Nothing depends on a connection's session: settings and locks are those of a
// transaction. So PgBouncer may pool transactions. Its version 1.21 and later keep track
// of prepared statements, if max_prepared_statements is set; with an earlier one, or
// another proxy, make pgx do without them: default_query_exec_mode=exec in the DSN, or
// simple_protocol. Tests run in all of pgx's modes.
//
// # The table
//
// idempotency_records, by default, has a row for each operation until it is swept (see
// idempotency.Sweeper), and can be read with SQL: the header is JSON, in which each
// byte of a value is one code point. Joined work writes its row once; a detached
// execution writes it twice. Besides the primary key there are two partial indexes,
// and each row is in one of them: by name what is in progress or unknown, and by
// expiry the rest.
//
// A service needs no rights but these, if somebody else makes the tables (Migrate, or
// the text that [Schema] gives, as a migration of goose or the schema of atlas) and it
// says Options.NoMigration:
//
//	GRANT USAGE ON SCHEMA … TO service;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON idempotency_records TO service;
//	GRANT SELECT ON idempotency_records_version TO service;
//
// The schema has a version, and says which programs it can work with. A version that
// only adds lets older programs go on, start and come back after a rollback; one that
// does not is an [ErrSchema] to them.
//
// Rows are kept for their TTL and then deleted by the Sweeper, some 40,000 a second.
// One with a body of 120 bytes takes 410 bytes, and 135 in indexes: 2.7 GB for five
// million. Do not partition the table by time: a unique key must have the partition's
// column in it, so that one name could be used once in each. On a table of many
// millions of rows a smaller autovacuum_vacuum_scale_factor keeps vacuums short.
//
// It is written for PostgreSQL 13 and later, and tested with 15.
package pgstore
