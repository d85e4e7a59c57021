package sqlitekit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// Settings are what a store's package says of itself, and is told by its user.
type Settings struct {
	Schema Schema

	// BusyTimeout is how long a writer waits for SQLite's write lock, before it fails
	// with ErrLocked; its context may end the wait earlier. 0: 10 s; negative: it does
	// not wait.
	BusyTimeout time.Duration
}

// Open opens the database in the file at path, and makes it if it is not there. The
// directory must be. path is a path, in which no character is special; "" and
// ":memory:", which SQLite would not keep in a file, are refused.
//
// The connections of Work flush each commit (synchronous=FULL), enforce foreign keys,
// wait 10 s for locks, and begin transactions as immediate ones.
func Open(ctx context.Context, path string, settings Settings) (*DB, error) {
	path, err := resolve(path)
	if err != nil {
		return nil, err
	}
	d := &DB{settings: settings, Owned: true, BusyTimeout: workBusyTimeout.Milliseconds()}
	d.Work, err = sql.Open("sqlite", DataSource(path, "rw",
		"busy_timeout("+strconv.FormatInt(d.BusyTimeout, 10)+")", "synchronous(FULL)", "foreign_keys(ON)", checkpoints))
	if err != nil {
		return nil, err
	}
	// One writes; the others read beside.
	d.Work.SetMaxIdleConns(readers())
	return d.opened(ctx, path, "rwc")
}

// workBusyTimeout is that of DB.Work's connections, for the work's own transactions.
const workBusyTimeout = 10 * time.Second

// checkpoints makes the log 16 MB long before a commit has to bring it into the
// file, and not 4 MB, SQLite's default. That commit takes milliseconds: now it is
// one of a thousand, and before one of two hundred, which the 99th percentile all
// but shows.
const checkpoints = "wal_autocheckpoint(4000)"

// New takes a database that the work has opened with the driver of modernc.org/sqlite.
// It must be a file, in WAL mode, and its connections must be able to write and have
// synchronous=FULL or EXTRA. New refuses what does not do.
func New(ctx context.Context, work *sql.DB, settings Settings) (*DB, error) {
	found, err := inspect(ctx, work)
	if err != nil {
		return nil, err
	}
	d := &DB{settings: settings, Work: work, BusyTimeout: found.busyTimeout}
	return d.opened(ctx, found.path, "rw")
}

// opened makes the database ready, or closes what there is of it.
func (d *DB) opened(ctx context.Context, path, mode string) (*DB, error) {
	if err := d.setUp(ctx, path, mode); err != nil {
		return nil, errors.Join(err, d.closePools())
	}
	return d, nil
}

func (d *DB) setUp(ctx context.Context, path, mode string) error {
	if err := d.prepareDatabase(ctx, path, mode); err != nil {
		return err
	}
	var err error
	if d.File, err = newFile(path); err != nil {
		return err
	}
	return d.openPools(path)
}

// prepareDatabase makes the file, if it may, its WAL and the tables.
func (d *DB) prepareDatabase(ctx context.Context, path, mode string) error {
	db, err := openPool(path, mode, 1, "synchronous(FULL)")
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if err := d.Retry(ctx, d.Patience(), func() error { return ensureWAL(ctx, db) }); err != nil {
		return fmt.Errorf("sqlitestore: %s: %w", path, err)
	}
	return d.migrate(ctx, db)
}

// ensureWAL converts a database that has another journal. For that SQLite wants
// it for itself for a moment, so that who comes second finds a lock.
func ensureWAL(ctx context.Context, db *sql.DB) error {
	var mode string
	if err := db.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil || mode == "wal" {
		return err
	}
	if err := db.QueryRowContext(ctx, "PRAGMA journal_mode(WAL)").Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("the journal mode is %s, and WAL cannot be had", mode)
	}
	return nil
}

func (d *DB) openPools(path string) (err error) {
	d.readers = make(chan struct{}, readers())
	for _, each := range []struct {
		pool    **sql.DB
		size    int
		pragmas []string
	}{
		{&d.Read, readers(), []string{"query_only(ON)"}},
		{&d.Write, 1, []string{"synchronous(FULL)", checkpoints}},
		{&d.Sweeper, 1, []string{"synchronous(NORMAL)", "wal_autocheckpoint(0)"}},
	} {
		if *each.pool, err = openPool(path, "rw", each.size, each.pragmas...); err != nil {
			return err
		}
	}
	return nil
}

// openPool opens connections that never wait by themselves: see DB.Retry.
func openPool(path, mode string, size int, pragmas ...string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", DataSource(path, mode, append(pragmas, "busy_timeout(0)")...))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	return db, nil
}

// readers is how many connections read at a time: reading is work for the
// processor, so that more would not be faster.
func readers() int { return max(4, runtime.GOMAXPROCS(0)) }
