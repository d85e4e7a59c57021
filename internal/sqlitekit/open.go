package sqlitekit

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"modernc.org/sqlite" // also the driver "sqlite"
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
	d := &DB{settings: settings, Owned: true, BusyTimeout: defaultBusyTimeout.Milliseconds()}
	d.Work, err = sql.Open("sqlite", DataSource(path, "rw",
		"busy_timeout("+strconv.FormatInt(d.BusyTimeout, 10)+")", "synchronous(FULL)", "foreign_keys(ON)"))
	if err != nil {
		return nil, err
	}
	d.Work.SetMaxIdleConns(readers())
	return d.opened(ctx, path, "rwc")
}

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

// inspect reports whether a store can use the application's database. busyTimeout is in milliseconds.
func inspect(ctx context.Context, db *sql.DB) (path string, busyTimeout int64, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = conn.Close() }() // returns it to the pool
	if err := OnConn(conn, func(c Conn) error {
		readOnly, err := c.IsReadOnly("main")
		if err == nil && readOnly {
			err = errors.New("the database is read-only")
		}
		return err
	}); err != nil {
		return "", 0, err
	}
	var journal string
	var queryOnly bool
	err = errors.Join(
		read(ctx, conn, `SELECT file FROM pragma_database_list WHERE name = 'main'`, &path),
		read(ctx, conn, "PRAGMA busy_timeout", &busyTimeout),
		read(ctx, conn, "PRAGMA journal_mode", &journal),
		read(ctx, conn, "PRAGMA query_only", &queryOnly))
	switch {
	case err != nil:
		return "", 0, err
	case path == "":
		return "", 0, errors.New("the database is in memory, want a file")
	case journal != "wal":
		return "", 0, fmt.Errorf("the journal mode is %s, must be WAL (open the database with _pragma=journal_mode(WAL))", journal)
	case queryOnly:
		return "", 0, errors.New("the database is opened with query_only, must be writable")
	}
	return path, busyTimeout, CheckSynchronous(ctx, conn)
}

func read(ctx context.Context, conn *sql.Conn, query string, to any) error {
	return conn.QueryRowContext(ctx, query).Scan(to)
}

// Conn is a connection of the driver.
type Conn interface {
	sqlite.FileControl
	sqlite.HookRegisterer

	// IsReadOnly reports whether a database of the connection cannot be written.
	IsReadOnly(schema string) (bool, error)
}

// OnConn calls do with the driver's own connection, without the wrappers of instrumentation. It returns an error for
// another driver: two SQLite libraries in one process drop each other's locks on a file, which damages the database.
func OnConn(conn *sql.Conn, do func(Conn) error) error {
	return conn.Raw(func(c any) error {
		for {
			if wrapper, ok := c.(interface{ Raw() driver.Conn }); ok {
				c = wrapper.Raw()
				continue
			}
			own, ok := c.(Conn)
			if !ok {
				return fmt.Errorf("the driver's connection is a %T, want that of modernc.org/sqlite", c)
			}
			return do(own)
		}
	})
}

// CheckSynchronous returns an error if a commit may return before it is on disk.
func CheckSynchronous(ctx context.Context, conn *sql.Conn) error {
	const full = 2
	var synchronous int
	if err := read(ctx, conn, "PRAGMA synchronous", &synchronous); err != nil {
		return err
	}
	if synchronous < full {
		return fmt.Errorf("synchronous is %d, must be FULL (2) or EXTRA (3) "+
			"(open the database with _pragma=synchronous(FULL))", synchronous)
	}
	return nil
}
