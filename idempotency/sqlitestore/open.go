package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/sqlitekit"
)

// What the verbs say beside the errors of package idempotency. They are found with
// errors.Is.
var (
	// ErrLocked means that SQLite's write lock was not free within Options.BusyTimeout:
	// another process, a transaction of the work, or a long line of writers had it.
	// Nothing was changed. Of a claim it is an idempotency.ErrStoreBusy too.
	ErrLocked = sqlitekit.ErrLocked

	// ErrMoved means that the database's file is not where it was: removed, renamed, or
	// another in its place. What would be written now would be forgotten at the next
	// start. Nothing was changed.
	ErrMoved = sqlitekit.ErrMoved

	// ErrSchema means that the database's tables were made by a newer version of this
	// package, and this one cannot work with them. Nothing was changed.
	ErrSchema = sqlitekit.ErrSchema

	// ErrClosed means that the store is closed.
	ErrClosed = sqlitekit.ErrClosed
)

// Options are what a store may be told. The zero value works. They are used as
//
//	store, err := sqlitestore.Options{BusyTimeout: time.Second}.Open(ctx, "app.db")
type Options struct {
	// BusyTimeout is how long a verb that writes waits for SQLite's write lock, before
	// it fails with ErrLocked: for its turn among this store's writers, and when that
	// has come for those of other processes, as long again. Its context may end the
	// wait earlier; a Handler's ends that of detached work after 5 s, and asks once
	// more. 0 means 10 s; negative: it does not wait.
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
	return o.open(ctx, path, schema())
}

// open is Open as a package does it that has this schema.
func (o Options) open(ctx context.Context, path string, schema sqlitekit.Schema) (*Store, error) {
	kit, err := sqlitekit.Open(ctx, path, o.settings(schema))
	if err != nil {
		return nil, err
	}
	return opened(ctx, kit)
}

// New is like the function New, with these options.
func (o Options) New(ctx context.Context, db *sql.DB) (*Store, error) {
	kit, err := sqlitekit.New(ctx, db, o.settings(schema()))
	if err != nil {
		return nil, err
	}
	return opened(ctx, kit)
}

func (o Options) settings(schema sqlitekit.Schema) sqlitekit.Settings {
	return sqlitekit.Settings{Schema: schema, BusyTimeout: o.BusyTimeout}
}

// opened is the store, or closes what there is of it.
func opened(ctx context.Context, kit *sqlitekit.DB) (*Store, error) {
	s := &Store{kit: kit}
	err := kit.Retry(ctx, kit.Patience(), func() (err error) {
		s.read, err = prepare(ctx, kit.Read)
		return err
	})
	if err == nil {
		err = kit.Retry(ctx, kit.Patience(), func() (err error) {
			s.write, err = prepare(ctx, kit.Write)
			return err
		})
	}
	if err != nil {
		err = fmt.Errorf("sqlitestore: %s: %w", kit.File.Path, err)
	} else {
		err = s.prepareWork(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// prepareWork prepares what runs in the transactions of joined work.
func (s *Store) prepareWork(ctx context.Context) error {
	for i, text := range [...]string{unwrittenSQL, stillSQL, finishSQL} {
		var err error
		if s.joined[i], err = s.kit.Work.PrepareContext(ctx, text); err != nil { //nolint:sqlclosecheck // Close does it
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
