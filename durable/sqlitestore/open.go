package sqlitestore

import (
	"context"
	"database/sql"
	"embed"
	"errors"

	"github.com/resilienthttp/resilienthttp/durable/internal/sqlquery"
	"github.com/resilienthttp/resilienthttp/internal/sqlitekit"
)

// Errors of the store, in addition to those of package durable. Find them with errors.Is.
var (
	// ErrLocked means that SQLite's write lock was not free within 10 s. Nothing was changed.
	ErrLocked = sqlitekit.ErrLocked

	// ErrMoved means that the database's file was removed, renamed or replaced. Nothing was
	// changed.
	ErrMoved = sqlitekit.ErrMoved

	// ErrSchema means that the database does not have the tables that this version of
	// the package reads and writes. Nothing was changed.
	ErrSchema = sqlitekit.ErrSchema

	// ErrClosed means that the store is closed.
	ErrClosed = sqlitekit.ErrClosed
)

// migrations are applied in the order of their names, each once: see sqlitekit.Schema.
//
//go:embed migrations/*.sql
var migrations embed.FS

func schema() sqlitekit.Schema {
	return sqlitekit.ReadSchema("durable_schema", migrations, "migrations/*.sql")
}

// Schema returns the SQL that Open and New execute if the tables have version from (0: there
// are none). Use it if another tool manages the schema, such as goose or atlas. It is empty if
// there is nothing to do. ErrSchema: from is no version.
func Schema(from int) (string, error) { return schema().From(from) }

// Open opens the database in the file at path, and creates a missing file, but no
// directory. No character of path is special. "" and ":memory:" are rejected.
//
// The connections of DB flush each commit (synchronous=FULL), enforce foreign keys, wait 10 s
// for locks, and begin immediate transactions. A new file has mode 0600, and so have its -wal
// and -shm.
//
// Errors are ErrSchema, those of io/fs, and SQLite's.
func Open(ctx context.Context, path string) (*Store, error) {
	kit, err := sqlitekit.Open(ctx, path, sqlitekit.Settings{Schema: schema()})
	if err != nil {
		return nil, err
	}
	return newStore(ctx, kit)
}

// New returns a store in a database that the caller has opened with the driver of
// modernc.org/sqlite. The store has its own connections to the file.
//
// The database must be a file in WAL mode ("_pragma=journal_mode(WAL)"), with writable
// connections and synchronous=FULL (the default) or EXTRA. Use "_txlock=immediate" and a busy
// timeout for the transactions of WithTx.
func New(ctx context.Context, db *sql.DB) (*Store, error) {
	kit, err := sqlitekit.New(ctx, db, sqlitekit.Settings{Schema: schema()})
	if err != nil {
		return nil, err
	}
	return newStore(ctx, kit)
}

// newStore returns the store, or closes the database after an error.
func newStore(ctx context.Context, kit *sqlitekit.DB) (*Store, error) {
	d := &database{kit: kit, write: make(statements), read: make(statements)}
	for pool, to := range map[*sql.DB]statements{kit.Write: d.write, kit.Read: d.read} {
		if err := kit.Retry(ctx, kit.LockTimeout(), func() error { return to.prepare(ctx, pool) }); err != nil {
			return nil, errors.Join(err, kit.Close())
		}
	}
	return &Store{verbs: sqlquery.On(d), db: d}, nil
}
