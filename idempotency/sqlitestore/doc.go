// Package sqlitestore keeps the records of package idempotency in a SQLite
// database. It is the embedded store and needs no more than a file path:
//
//	store, err := sqlitestore.Open(ctx, "payments.db")
//
// The service's own tables may be in the same file. Then the writes of the work and
// its record are one transaction: see Store.DB, New and Store.Begin. The driver is
// modernc.org/sqlite, which is written in Go.
//
// # Durability
//
// The database is in WAL mode. Each commit is flushed to disk (synchronous=FULL)
// before an operation returns, except the deletions of Sweep. All times are
// SQLite's, in milliseconds. Durations are rounded up.
//
// # Locks
//
// SQLite has one write lock for the whole file. Reading does not need it: a key that
// is completed or in progress is answered without a write. That works too
// while the disk is full, while the file cannot be written, and while another process
// has the lock. A claim for a new key then fails, and the work does not begin.
//
// The writers of one store wait in a queue, holders of leases first, until their
// context ends. They find locks of other processes by trying. A writer that waits
// longer than Options.BusyTimeout fails with ErrLocked.
//
// Transactional work has the lock from Begin to its end. A duplicate in this process
// gets DecisionInProgress at once. A duplicate in another process waits for the lock and
// then finds the record. Work that writes to the file outside its transaction waits
// for itself, until ErrLocked or SQLITE_BUSY.
//
// So transactional work must be short: it delays all other writes of the file,
// renewals of leases included. If several processes share a file, a lease must be
// several times longer than the longest transaction.
//
// # The file
//
// Beside the file, its log needs 4 MB. On a full volume, writes fail and nothing is lost. As soon as
// there is space again, they succeed. A sweep needs space in the log, too.
//
// The file must be on a local disk. It must not be removed or replaced while it is
// open; otherwise the store writes nothing more (ErrMoved). Copy it with VACUUM INTO
// or SQLite's backup. See docs/server-idempotency.md.
package sqlitestore
