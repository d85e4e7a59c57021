// Package pgstore stores the records of package idempotency in PostgreSQL, in the database
// of the operations' data, so that an operation and its record are committed together.
//
//	store, err := pgstore.New(ctx, pool, nil) // a *pgxpool.Pool; NewSQL takes a *sql.DB
//	handler := idempotency.NewHandler(store, tenantOf, next)
//	handler.Transactional = true
//
// The handler writes through the transaction of the record, which ends with its response:
//
//	tx, err := idempotency.Tx[pgx.Tx](ctx) // [*sql.Tx] of a store made by NewSQL
//	_, err = tx.Exec(ctx, "INSERT INTO charges …")
//
// The work must not end the transaction. It may use savepoints. A consumer that has a
// transaction already uses [Store.WithTx].
//
// A completed key is answered by one read, also by a server that accepts no writes. A new
// key costs two round trips besides the work's own: BEGIN, an advisory lock and the read;
// then the record and COMMIT. After completed keys a new key costs a read more.
//
// A claim waits for a connection of the pool for at most a second, or a tenth of the time
// until its deadline. Transactional work uses one connection. Writes of leases wait up to
// 100 ms, and then use a connection beside the pool. All commits of the store are on disk
// before they return (synchronous_commit), whatever the database's default.
//
// An asynchronous standby lacks the last commits. So after a failover to it acknowledged keys are
// executed again, unless synchronous_standby_names names it. See docs/server-idempotency.md.
//
// PgBouncer may pool transactions. Before its version 1.21, and behind other proxies, pgx
// must not prepare statements: default_query_exec_mode=exec in the DSN. Its query_wait_timeout
// must be below the callers' attempt timeout. In the modes exec and simple_protocol, values are text in the form of the
// session, so DateStyle must be ISO and bytea_output hex, as they are by default. New and Check say so otherwise.
//
// The record is written in the transaction of the work, so after SET LOCAL ROLE that role needs the rights below. A SET
// search_path does not matter.
//
// A service without the right to make tables sets Options.NoMigration, and needs:
//
//	GRANT USAGE ON SCHEMA … TO service;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON idempotency_records TO service;
//	GRANT SELECT ON idempotency_records_version TO service;
//
// The record without a key is the store's own: it says up to when executions that died have been found. The tables have version 2.
// Programs for version 1 must have ended before they are migrated.
//
// Do not partition the table by time: the key must be unique in the whole table. PostgreSQL
// 13 and later are supported; the tests use 15. See docs/server-idempotency.md.
package pgstore
