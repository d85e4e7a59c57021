package sqlitestore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/sqlitekit"
)

// Errors of a Store, beside those of package idempotency.
var (
	// ErrLocked means that SQLite's write lock was not free within Options.BusyTimeout.
	// Another process, a transaction of the application or a long queue of writers had
	// it. Nothing was changed. An ErrLocked of a claim is a idempotency.ErrStoreBusy too.
	ErrLocked = sqlitekit.ErrLocked

	// ErrMoved means that the database file was removed, renamed or replaced while it
	// was open. A write would be lost at the next start. Nothing was changed.
	ErrMoved = sqlitekit.ErrMoved

	// ErrSchema means that the database does not have the tables that this version of
	// the package reads and writes. Nothing was changed.
	ErrSchema = sqlitekit.ErrSchema

	// ErrClosed means that the store is closed.
	ErrClosed = sqlitekit.ErrClosed
)

// Options are the settings of a store. The zero value works.
//
//	store, err := sqlitestore.Options{BusyTimeout: time.Second}.Open(ctx, "app.db")
type Options struct {
	// BusyTimeout is the maximum time that a write waits in the store's queue, and then again for
	// the locks of other processes, before it fails with ErrLocked. The context may end the wait
	// earlier. Zero means 10 s. A negative value means no wait.
	BusyTimeout time.Duration
}

// Open opens the database file at path. It creates a missing file, but not a missing
// directory. The path is not a URI: no character is special.
//
// A new file has mode 0600, and so have its -wal and -shm. An existing file keeps its
// mode. A file that cannot be written is opened if its tables are up to date.
//
// The connections of DB flush each commit (synchronous=FULL), enforce foreign keys,
// wait 10 s for locks, and begin immediate transactions.
func Open(ctx context.Context, path string) (*Store, error) { return Options{}.Open(ctx, path) }

// New returns a store in a database that the application has opened with
// modernc.org/sqlite. The transactions of Begin come from db. The store's other
// operations have their own connections, so that db may have only one.
//
// The database must be a file in WAL mode ("_pragma=journal_mode(WAL)"). Its
// connections must be writable and have synchronous=FULL, SQLite's default, or
// EXTRA. Otherwise New returns an error. "_txlock=immediate" and a busy timeout are
// good for the application's other transactions; Begin needs neither.
func New(ctx context.Context, db *sql.DB) (*Store, error) {
	return opened(ctx)(sqlitekit.New(ctx, db, Options{}.settings()))
}

// Open is like the function Open, with these options.
func (o Options) Open(ctx context.Context, path string) (*Store, error) {
	return opened(ctx)(sqlitekit.Open(ctx, path, o.settings()))
}

func (o Options) settings() sqlitekit.Settings {
	return sqlitekit.Settings{Schema: schema(), BusyTimeout: o.BusyTimeout}
}

// opened prepares the statements. After an error it closes the database.
func opened(ctx context.Context) func(*sqlitekit.DB, error) (*Store, error) {
	return func(kit *sqlitekit.DB, err error) (*Store, error) {
		if err != nil {
			return nil, err
		}
		s := &Store{kit: kit, forReading: make(statements), forWriting: make(statements), forWork: make(statements)}
		s.operations = operations{read: s.reading, write: s.writing}
		for pool, to := range map[*sql.DB]statements{kit.Read: s.forReading, kit.Write: s.forWriting, kit.Work: s.forWork} {
			err := kit.Retry(ctx, kit.LockTimeout(), func() error { return to.prepare(ctx, pool) })
			if err != nil {
				return nil, errors.Join(fmt.Errorf("sqlitestore: %s: %w", kit.File.Path, err), s.Close())
			}
		}
		return s, nil
	}
}

// migrations are applied in the order of their names: see sqlitekit.Schema.
//
//go:embed migrations/*.sql
var migrations embed.FS

// Schema returns the SQL that Open and New execute for tables of version from, 0 if
// there are none. It is for migrations by another tool, such as goose or atlas. The
// result is empty if nothing is to be done. ErrSchema means that from is no version.
//
// Older versions of this package can work with newer tables unless they get
// ErrSchema. So two versions may run at the same time, and a deploy may be undone.
func Schema(from int) (string, error) { return schema().From(from) }

func schema() sqlitekit.Schema {
	return sqlitekit.ReadSchema("idempotency_schema", migrations, "migrations/*.sql", finish, load)
}
