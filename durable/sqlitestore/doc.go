// Package sqlitestore keeps the intents of package durable in a SQLite database. It needs only
// a file path.
//
//	store, err := sqlitestore.Open(ctx, "payments.db")
//
// The tables of the work may be in the same file. Then its writes and its intents are one
// transaction: see Store.DB, New and Store.WithTx. SQLite is modernc.org/sqlite, which is
// written in Go.
//
// # Durability
//
// The database is in WAL mode. Each verb is one commit, which is flushed to disk
// (synchronous=FULL) before the verb returns, except the deletions of Sweep. All times are
// SQLite's, in milliseconds.
//
// # The write lock
//
// SQLite has one write lock for the file. Reads do not wait for it. In one process, writers
// queue. Those that end attempts are first. The first writer writes for all that wait, in one
// transaction. Other processes try every few milliseconds. After 10 s a
// verb fails with ErrLocked, and can be repeated.
//
// Transactions in the same file should be short. If a lease cannot be renewed in time, the
// results of its sends are unknown. For workers on several machines use durable/pgstore.
//
// # The file
//
// Beside the file, its log needs 4 MB. On a full volume, writes fail and nothing is lost. As soon as
// there is space again, they succeed. A sweep needs space in the log, too.
//
// The file must be on a local disk: the locks of SQLite do not work over a network. Do not
// remove or replace it while it is open: the store then writes nothing more (ErrMoved). Copy it
// with VACUUM INTO or SQLite's backup. A process that opens and closes the file by itself
// releases the locks of SQLite on it.
package sqlitestore
