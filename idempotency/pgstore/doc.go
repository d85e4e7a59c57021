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
// # What is durable
//
// All that a verb has returned nil for, by the database's own synchronous_commit, with
// one exception. A claim with Claim.Joined is committed without waiting for the disk.
// The log of a database is written in order, so that if joined work is on disk then its
// claim is too; if the server crashes before, both are forgotten. Sweeping what has
// expired is as durable as the rest.
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
// it is done at once; the rest waits, as long as its context allows. A pool of one
// connection is enough, as long as the work itself does not ask the pool for another
// while it has its transaction.
//
// Where rows are locked for longer than a moment, by a transaction of [Store.Within] or
// by hand, Reserve answers Busy after 100 ms at most, and the other verbs fail, after
// 300 ms at most, with an error that is not idempotency.ErrLeaseLost: nothing is
// decided before that transaction ends.
//
// # PgBouncer
//
// Nothing depends on a connection's session: settings, and locks (row locks and an
// advisory lock for joined work), are those of a transaction. So PgBouncer may pool
// transactions. Its version 1.21 and later keep track of prepared statements, if
// max_prepared_statements is set; with an earlier one, or another proxy, make pgx do
// without them: default_query_exec_mode=exec in the DSN, or simple_protocol. Tests run
// in all of pgx's modes.
//
// # The table
//
// idempotency_records, by default, has a row for each operation until it is swept (see
// idempotency.Sweeper), and can be read with SQL: the header is JSON, in which each
// byte of a value is one code point. Pages are filled to 60 % so that an operation's
// end is written beside its beginning, without a change to an index. On a table of
// many millions of rows a smaller autovacuum_vacuum_scale_factor keeps vacuums short.
//
// It is written for PostgreSQL 13 and later, and tested with 15.
package pgstore
