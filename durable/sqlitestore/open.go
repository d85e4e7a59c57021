package sqlitestore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/sqlitekit"
)

// What the verbs say beside the errors of package durable. They are found with
// errors.Is.
var (
	// ErrLocked means that SQLite's write lock was not free within Options.BusyTimeout:
	// another process, a transaction of the work, or a long line of writers had it.
	// Nothing was changed.
	ErrLocked = sqlitekit.ErrLocked

	// ErrMoved means that the database's file is not where it was: removed, renamed, or
	// another in its place. What would be written now would be forgotten at the next
	// start. Nothing was changed.
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

// Schema is the SQL that Open and New execute where the tables have version from,
// and 0 where there are none, for those whose schema is in the hands of another
// tool, such as goose or atlas. Where it has been applied there is nothing left for
// Open to make. It is empty where there is nothing to do; where from is no version,
// the error is an ErrSchema.
//
// What a newer version of this package adds can be lived with by older ones, so
// that both may run at the same time, and the older may come back; ErrSchema is
// what they say where that is not so.
func Schema(from int) (string, error) { return schema().From(from) }

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
// A new file has mode 0600, and so have its -wal and -shm. An existing file keeps its
// mode.
//
// The error is an ErrSchema where a newer version has been, one of io/fs, or
// SQLite's.
func Open(ctx context.Context, path string) (*Store, error) { return Options{}.Open(ctx, path) }

// New makes a store in a database that the work has opened with the driver of
// modernc.org/sqlite. The store's own verbs have connections of their own to the same
// file: db may be a pool of one connection.
//
// The database must be a file, and in WAL mode ("_pragma=journal_mode(WAL)"). Its
// connections must be able to write and have synchronous=FULL, SQLite's default, or
// EXTRA. New refuses what does not do. "_txlock=immediate" and a busy timeout are good
// for the transactions of Within.
func New(ctx context.Context, db *sql.DB) (*Store, error) { return Options{}.New(ctx, db) }

// Open is like the function Open, with these options.
func (o Options) Open(ctx context.Context, path string) (*Store, error) {
	kit, err := sqlitekit.Open(ctx, path, o.settings())
	if err != nil {
		return nil, err
	}
	return prepared(ctx, kit)
}

// New is like the function New, with these options.
func (o Options) New(ctx context.Context, db *sql.DB) (*Store, error) {
	kit, err := sqlitekit.New(ctx, db, o.settings())
	if err != nil {
		return nil, err
	}
	return prepared(ctx, kit)
}

func (o Options) settings() sqlitekit.Settings {
	return sqlitekit.Settings{Schema: schema(), BusyTimeout: o.BusyTimeout}
}

// prepared is the store, or closes what there is of it.
func prepared(ctx context.Context, kit *sqlitekit.DB) (*Store, error) {
	s := &Store{kit: kit}
	for _, each := range []struct {
		pool *sql.DB
		to   *preparedStatements
	}{{kit.Write, &s.write}, {kit.Read, &s.read}} {
		err := kit.Retry(ctx, kit.LockTimeout(), func() error { return each.to.prepare(ctx, each.pool) })
		if err != nil {
			return nil, errors.Join(err, kit.Close())
		}
	}
	return s, nil
}
