// Package sqlitestore keeps the intents of package durable in a SQLite database: the
// embedded store, for which a file path is all it needs.
//
//	store, err := sqlitestore.Open(ctx, "payments.db")
//
// The work's own tables may live in the same file, and then its writes and the intents
// that come of them are one transaction: see Store.DB, New and Store.Within. SQLite is
// modernc.org/sqlite, which is written in Go.
//
// # What lasts
//
// The database is in WAL mode, and each verb is one commit, which is flushed to disk
// (synchronous=FULL) before the verb returns, save what Sweep deletes. All times are
// SQLite's, which knows milliseconds; they are kept in microseconds.
//
// # Who waits
//
// SQLite has one write lock for the whole file. Reading waits for nobody. Those who
// write stand in line in this process, those who end attempts before those who begin
// some, and leave it when their context ends; for other processes they look again every
// few milliseconds. Who comes first writes for all who stand in line by then, in one
// transaction: the more there are, the less each waits for the disk. Who waits longer than Options.BusyTimeout gets ErrLocked, and may do
// the same again.
//
// So transactions in the same file should be short: a lease that cannot be extended in
// time ends, and then what was being sent is unknown. Workers on several machines need
// PostgreSQL: see durable/pgstore.
//
// # The file
//
// The file must be on a local disk: SQLite's locks and its shared memory do not
// work over a network. It is never to be removed or replaced while it is open; a
// store that finds so writes nothing more (ErrMoved). Copy it with VACUUM INTO or
// SQLite's backup, not as a file: a process that opens and closes the file by
// itself loses the locks that SQLite has on it.
package sqlitestore
