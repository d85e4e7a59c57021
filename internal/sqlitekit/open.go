package sqlitekit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// Settings are the part of a store that its package and its user determine.
type Settings struct {
	Schema Schema

	// BusyTimeout is the maximum time that a writer waits for SQLite's write lock before it fails
	// with ErrLocked. Zero means 10 s. A negative value means no wait.
	BusyTimeout time.Duration
}

// Open opens the database file at path. It creates a missing file with mode 0600,
// but not a missing directory. An existing file keeps its mode.
//
// The connections of Work flush each commit (synchronous=FULL), enforce foreign
// keys, wait 10 s for locks, and begin immediate transactions.
func Open(ctx context.Context, path string, settings Settings) (*DB, error) {
	path, err := resolve(path)
	if err != nil {
		return nil, err
	}
	d := &DB{settings: settings, Owned: true, BusyTimeout: workBusyTimeout.Milliseconds()}
	d.Work, err = sql.Open("sqlite", DataSource(path, "rw",
		"busy_timeout("+strconv.FormatInt(d.BusyTimeout, 10)+")", "synchronous(FULL)", "foreign_keys(ON)"))
	if err != nil {
		return nil, err
	}
	d.Work.SetMaxIdleConns(readers())
	return d.opened(ctx, path, "rwc")
}

const workBusyTimeout = 10 * time.Second

// New uses a database that the application has opened with modernc.org/sqlite. It must be a file in WAL mode, and its
// connections must be writable and have synchronous=FULL or EXTRA. Otherwise New returns an error.
func New(ctx context.Context, work *sql.DB, settings Settings) (*DB, error) {
	path, busyTimeout, err := inspect(ctx, work)
	if err != nil {
		return nil, fmt.Errorf("sqlitestore: %w", err)
	}
	d := &DB{settings: settings, Work: work, BusyTimeout: busyTimeout}
	return d.opened(ctx, path, "rw")
}

// opened prepares the database. After an error it closes the pools.
func (d *DB) opened(ctx context.Context, path, mode string) (*DB, error) {
	err := d.prepareDatabase(ctx, path, mode)
	if err == nil {
		d.File.Path = path
		if d.File.info, err = os.Stat(path); err != nil {
			err = fmt.Errorf("sqlitestore: %w", err)
		}
	}
	if err == nil {
		err = d.openPools(path)
	}
	if err == nil {
		err = d.Check(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, d.closePools())
	}
	return d, nil
}

// prepareDatabase creates the file, if mode permits it, its write-ahead log and the tables.
func (d *DB) prepareDatabase(ctx context.Context, path, mode string) error {
	private, done, err := privateMode(path)
	if err != nil {
		return err
	}
	defer done()
	db, err := openPool(DataSource(path, mode, "synchronous(FULL)", "busy_timeout(0)")+private, 1)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if err := d.Retry(ctx, d.LockTimeout(), func() error { return ensureWAL(ctx, db) }); err != nil {
		return fmt.Errorf("sqlitestore: %s: %w", path, err)
	}
	return d.migrate(ctx, db)
}

// ensureWAL converts a database with another journal. SQLite needs the database
// for itself to do that, so that a second process finds a lock.
func ensureWAL(ctx context.Context, db *sql.DB) error {
	var mode string
	if err := db.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil || mode == "wal" {
		return err
	}
	if err := db.QueryRowContext(ctx, "PRAGMA journal_mode(WAL)").Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("the journal mode is %s, and SQLite cannot change it to WAL", mode)
	}
	return nil
}

// openPools opens pools of connections that never wait for locks: see DB.Retry.
func (d *DB) openPools(path string) error {
	const noWait = "busy_timeout(0)"
	d.readers = make(chan struct{}, readers())
	var errs [3]error
	d.Read, errs[0] = openPool(DataSource(path, "rw", "query_only(ON)", noWait), readers())
	d.Write, errs[1] = openPool(DataSource(path, "rw", "synchronous(FULL)", noWait), 1)
	d.Sweeper, errs[2] = openPool(DataSource(path, "rw", "synchronous(NORMAL)", "wal_autocheckpoint(0)", noWait), 1)
	return errors.Join(errs[:]...)
}

func openPool(source string, size int) (*sql.DB, error) {
	db, err := sql.Open("sqlite", source)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	return db, nil
}

// readers is the number of connections that read. Reading is work for the
// processor, so that more connections are not faster.
func readers() int { return max(4, runtime.GOMAXPROCS(0)) }
