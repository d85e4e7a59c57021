// Package sqlitestore keeps the records of package idempotency in a SQLite
// database: the embedded store, for which a file path is all it needs.
//
//	store, err := sqlitestore.Open(ctx, "payments.db")
//
// The work's own tables may live in the same file, and then its writes and its
// record are one transaction: see Store.DB, New and Store.Begin. SQLite is
// modernc.org/sqlite, which is written in Go.
//
// # What lasts
//
// The database is in WAL mode, and each commit is flushed to disk
// (synchronous=FULL) before the verb returns, save what Sweep deletes. All times
// are SQLite's, in milliseconds, rounded up where they are durations.
//
// # Who waits
//
// SQLite has one write lock for the whole file. Reading waits for nobody: a
// duplicate of what is finished, or held by a lease, is answered without a write.
// Those who write stand in line in this process and leave it when their context
// ends; for other processes they look again every few milliseconds. Who waits
// longer than Options.BusyTimeout gets ErrLocked.
//
// Joined work has the lock from Begin to its end. A duplicate of it in this process
// is told Busy at once, and does not stand in line. In another process it cannot be
// told from any other writer: it waits for the lock, and then finds the record.
//
// What joined work writes to the file other than through its transaction, by DB or by
// a Do that is not Within it, waits for the work itself, and in vain: ErrLocked,
// SQLITE_BUSY or the end of a context are what it gets.
//
// So joined work should be short: all other writes of the file wait meanwhile, those
// of other operations too. Where many clients write at the same time, PostgreSQL is
// the better store.
//
// That includes the renewals of leases. In this process they go before all claims, so
// that a lease which is over when they come to their turn has not been taken by
// somebody who stood in line before them. Somebody of another process may be quicker:
// where several processes share a file, let leases be longer than the longest
// transactions, several times over.
//
// # The file
//
// The file must be on a local disk: SQLite's locks and its shared memory do not
// work over a network. It is never to be removed or replaced while it is open; a
// store that finds so writes nothing more (ErrMoved). Copy it with VACUUM INTO or
// SQLite's backup, not as a file: a process that opens and closes the file by
// itself loses the locks that SQLite has on it.
//
// A full disk, or one that fails, undoes what was to be written, and the error is
// SQLite's. When there is room again all goes on.
package sqlitestore
