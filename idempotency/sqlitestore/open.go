package sqlitestore

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

// Options are what a store may be told. The zero value works. They are used as
//
//	store, err := sqlitestore.Options{BusyTimeout: time.Second}.Open(ctx, "app.db")
type Options struct {
	// BusyTimeout is how long a verb that writes waits for SQLite's write lock,
	// before it fails with ErrLocked; its context may end the wait earlier. 0
	// means 10 s; negative: it does not wait.
	BusyTimeout time.Duration
}

// Open opens the database in the file at path, and makes it if it is not there.
// The directory must be. path is a path, in which no character is special; ""
// and ":memory:", which SQLite would not keep in a file, are refused.
//
// The connections of DB flush each commit (synchronous=FULL), enforce foreign keys,
// wait 10 s for locks, and begin transactions as immediate ones.
//
// The file's mode is what the umask leaves of 0644. It holds what handlers
// answered: who wants others kept out makes the file, empty, beforehand.
//
// The error is an ErrSchema where a newer version has been, one of io/fs, or
// SQLite's.
func Open(ctx context.Context, path string) (*Store, error) { return Options{}.Open(ctx, path) }

// New makes a store in a database that the work has opened with the driver of
// modernc.org/sqlite, so that the work's transactions, which come from db, are
// those of Begin. The store's own verbs have connections of their own to the same
// file: db may be a pool of one connection.
//
// The database must be a file, and in WAL mode ("_pragma=journal_mode(WAL)"). Its
// connections must be able to write and have synchronous=FULL, SQLite's default,
// or EXTRA; as each connection has its own, Begin looks again.
// "_txlock=immediate" is good for the work's other transactions, and a busy
// timeout too; Begin needs neither. New refuses what does not do.
func New(ctx context.Context, db *sql.DB) (*Store, error) { return Options{}.New(ctx, db) }

// Open is like the function Open, with these options.
func (o Options) Open(ctx context.Context, path string) (*Store, error) {
	return o.open(ctx, path, scripts())
}

// open is Open as a package does it that has these migrations.
func (o Options) open(ctx context.Context, path string, scripts []string) (*Store, error) {
	path, err := resolve(path)
	if err != nil {
		return nil, err
	}
	s := &Store{options: o, scripts: scripts, owned: true, busyTimeout: workBusyTimeout.Milliseconds()}
	s.db, err = sql.Open("sqlite", dataSource(path, "rw",
		"busy_timeout("+strconv.FormatInt(s.busyTimeout, 10)+")", "synchronous(FULL)", "foreign_keys(ON)", checkpoints))
	if err != nil {
		return nil, err
	}
	// One writes; the others read beside.
	s.db.SetMaxIdleConns(readers())
	return s.opened(ctx, path, "rwc")
}

// workBusyTimeout is that of Store.DB's connections, for the work's own
// transactions.
const workBusyTimeout = 10 * time.Second

// checkpoints makes the log 16 MB long before a commit has to bring it into the
// file, and not 4 MB, SQLite's default. That commit takes milliseconds: now it is
// one of a thousand, and before one of two hundred, which the 99th percentile all
// but shows.
const checkpoints = "wal_autocheckpoint(4000)"

// New is like the function New, with these options.
func (o Options) New(ctx context.Context, db *sql.DB) (*Store, error) {
	found, err := inspect(ctx, db)
	if err != nil {
		return nil, err
	}
	s := &Store{options: o, scripts: scripts(), db: db, busyTimeout: found.busyTimeout}
	return s.opened(ctx, found.path, "rw")
}

// opened makes the store ready, or closes what there is of it.
func (s *Store) opened(ctx context.Context, path, mode string) (*Store, error) {
	if err := s.setUp(ctx, path, mode); err != nil {
		return nil, errors.Join(err, s.closePools())
	}
	return s, nil
}

func (s *Store) setUp(ctx context.Context, path, mode string) error {
	if err := s.prepareDatabase(ctx, path, mode); err != nil {
		return err
	}
	var err error
	if s.file, err = newFile(path); err != nil {
		return err
	}
	return errors.Join(s.openPools(ctx, path), s.prepareWork(ctx))
}

// prepareDatabase makes the file, if it may, its WAL and the tables.
func (s *Store) prepareDatabase(ctx context.Context, path, mode string) error {
	db, err := openPool(path, mode, 1, "synchronous(FULL)")
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if err := s.retry(ctx, s.patience(), func() error { return ensureWAL(ctx, db) }); err != nil {
		return fmt.Errorf("sqlitestore: %s: %w", path, err)
	}
	return s.migrate(ctx, db, s.scripts)
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

func (s *Store) openPools(ctx context.Context, path string) error {
	s.readers = make(chan struct{}, readers())
	for _, each := range []struct {
		pool    *pool
		size    int
		pragmas []string
	}{
		{&s.read, readers(), []string{"query_only(ON)"}},
		{&s.write, 1, []string{"synchronous(FULL)", checkpoints}},
		{&s.sweeper, 1, []string{"synchronous(NORMAL)", "wal_autocheckpoint(0)"}},
	} {
		db, err := openPool(path, "rw", each.size, each.pragmas...)
		if err != nil {
			return err
		}
		each.pool.db = db
		err = s.retry(ctx, s.patience(), func() error {
			each.pool.statements, err = prepare(ctx, db)
			return err
		})
		if err != nil {
			return fmt.Errorf("sqlitestore: %s: %w", path, err)
		}
	}
	return nil
}

// openPool opens connections that never wait by themselves: see Store.retry.
func openPool(path, mode string, size int, pragmas ...string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", dataSource(path, mode, append(pragmas, "busy_timeout(0)")...))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	return db, nil
}

// prepareWork prepares what runs in the transactions of joined work.
func (s *Store) prepareWork(ctx context.Context) error {
	for i, text := range [...]string{unwrittenSQL, stillSQL, finishSQL} {
		var err error
		if s.joined[i], err = s.db.PrepareContext(ctx, text); err != nil { //nolint:sqlclosecheck // Close does it
			return fmt.Errorf("sqlitestore: %w", err)
		}
	}
	return nil
}

// The statements of joined work.
const (
	unwritten = iota
	still
	finish
)

// readers is how many connections read at a time: reading is work for the
// processor, so that more would not be faster.
func readers() int { return max(4, runtime.GOMAXPROCS(0)) }
