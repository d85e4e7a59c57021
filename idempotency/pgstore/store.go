package pgstore

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// Store keeps records in a table of PostgreSQL. It is an
// [idempotency.Transactor], made by [New] or [NewSQL], and safe for concurrent use.
// It holds nothing but the pool that it was given: there is nothing to close.
type Store struct {
	verbs

	tables    tables
	isolation sql.IsolationLevel

	// One of them is nil.
	pool *pgxpool.Pool
	db   *sql.DB
}

var _ idempotency.Transactor = (*Store)(nil)

// Options are what can be chosen. The zero value, and nil, are the defaults.
type Options struct {
	// Schema is where the tables are. "": the first of the connection's search_path.
	// It is created if it does not exist.
	Schema string

	// Table is the name of the records' table. The other names begin with it. "":
	// idempotency_records. The longest is 50 bytes.
	Table string

	// Isolation is that of the transactions that Begin opens, and so of the work's.
	// 0: the database's default, which is read committed unless somebody has changed
	// it. Under stricter levels a Commit may fail with a serialization failure (code
	// 40001), after which nothing was committed and the work may be done again.
	Isolation sql.IsolationLevel

	// NoMigration leaves the tables as they are, for applications that are not
	// allowed to change them. They are checked all the same, and an older schema is
	// an error: see Migrate.
	NoMigration bool
}

// New makes a store of a pool of pgx, and its tables if they are not there. The work
// gets a pgx.Tx.
//
// The pool's connections may come from PgBouncer: see the package comment.
func New(ctx context.Context, pool *pgxpool.Pool, options *Options) (*Store, error) {
	return open(ctx, &Store{pool: pool, verbs: verbs{querier: pgxQuerier{pool}}}, options)
}

// NewSQL is New for database/sql, with the driver of pgx/v5/stdlib. The work gets a
// *sql.Tx. It takes more round trips than New, for database/sql cannot send two
// statements at once.
func NewSQL(ctx context.Context, db *sql.DB, options *Options) (*Store, error) {
	return open(ctx, &Store{db: db, verbs: verbs{querier: sqlQuerier{db}}}, options)
}

func open(ctx context.Context, s *Store, options *Options) (*Store, error) {
	if options == nil {
		options = &Options{}
	}
	if err := options.validate(); err != nil {
		return nil, err
	}
	s.tables = options.tables()
	s.isolation = options.Isolation
	is := newStatements(s.tables)
	s.is = &is
	s.transact = s.readCommitted
	prepare := s.migrate
	if options.NoMigration {
		prepare = s.check
	}
	if err := prepare(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

const (
	defaultTable = "idempotency_records"
	longestTable = 50
	longestName  = 63 // PostgreSQL cuts off the rest
)

func (o *Options) tables() tables {
	if o.Table == "" {
		return newTables(o.Schema, defaultTable)
	}
	return newTables(o.Schema, o.Table)
}

func (o *Options) validate() error {
	for _, name := range [...]struct {
		what, value string
		longest     int
	}{
		{"schema", o.Schema, longestName}, {"table", o.Table, longestTable},
	} {
		if len(name.value) > name.longest || !utf8.ValidString(name.value) || strings.ContainsRune(name.value, 0) {
			return fmt.Errorf("%w: the name %q of a %s", idempotency.ErrInvalid, name.value, name.what)
		}
	}
	if _, err := pgxIsolation(o.Isolation); err != nil {
		return err
	}
	return nil
}

func pgxIsolation(level sql.IsolationLevel) (pgx.TxIsoLevel, error) {
	switch level {
	case sql.LevelDefault:
		return "", nil
	case sql.LevelReadCommitted:
		return pgx.ReadCommitted, nil
	case sql.LevelRepeatableRead, sql.LevelSnapshot:
		return pgx.RepeatableRead, nil
	case sql.LevelSerializable:
		return pgx.Serializable, nil
	case sql.LevelReadUncommitted, sql.LevelWriteCommitted, sql.LevelLinearizable:
	}
	return "", fmt.Errorf("%w: isolation %v", idempotency.ErrInvalid, level)
}

// Within is a store whose verbs are part of a transaction of the caller's. [Store.Within]
// and [Store.WithinSQL] make it. Like the transaction, it is not safe for concurrent
// use.
type Within struct {
	verbs
}

var _ idempotency.Store = (*Within)(nil)

// Within gives the verbs inside a transaction, for a consumer that keeps its inbox
// and its effects in one database: they are committed together, by the caller.
//
//	tx, err := pool.Begin(ctx)
//	…
//	inbox := store.Within(tx)
//	reservation, err := inbox.Reserve(ctx, claim) // Acquired, and Held: no renewals
//	… the effect, through tx …
//	err = inbox.Complete(ctx, reservation.Record.Lease(), outcome)
//	err = tx.Commit(ctx)
//
// A claim that is Acquired is held by the transaction itself. As long as that is
// open, others get Busy from the store, and wait if they claim Within a transaction
// too: there the end of ours tells what they get, and an error, such as that of a
// lock_timeout which the caller has set, ends their transaction as every error does.
// Nothing is tried again for the same reason: after an error, roll back and begin
// anew.
func (s *Store) Within(tx pgx.Tx) *Within {
	return &Within{verbs{querier: pgxQuerier{tx}, is: s.is}}
}

// WithinSQL is Within for database/sql.
func (s *Store) WithinSQL(tx *sql.Tx) *Within {
	return &Within{verbs{querier: sqlQuerier{tx}, is: s.is}}
}

// Begin implements [idempotency.Transactor]. The transaction takes a connection of
// the pool until it ends. Its Value is a pgx.Tx or a *sql.Tx, for the work to write
// through; ending it is the Transaction's business.
//
// limit is what the server is told: an older one than PostgreSQL 17 ends the
// transaction if it does nothing for so long, a newer one after limit in any case.
func (s *Store) Begin(ctx context.Context, lease idempotency.Lease, limit time.Duration) (idempotency.Transaction, error) {
	if err := lease.Validate(); err != nil {
		return nil, err
	}
	if !storable(lease.Owner) {
		return nil, idempotency.ErrLeaseLost
	}
	args := leaseArgs(&lease, milliseconds(limit))
	var t idempotency.Transaction
	err := s.repeat(ctx, func(error) (err error) {
		if s.pool != nil {
			t, err = s.beginPgx(ctx, &lease, args)
		} else {
			t, err = s.beginSQL(ctx, &lease, args)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// milliseconds is what PostgreSQL counts time limits in, rounded up, and no more
// than it can count.
func milliseconds(d time.Duration) int64 {
	const most = 1<<31 - 1
	if d <= 0 {
		return 0
	}
	return min(int64((d-1)/time.Millisecond)+1, most)
}

// locked turns what a lock statement gave into Begin's error.
func (s *Store) locked(ctx context.Context, lease *idempotency.Lease, err error) error {
	if err == nil || !noRows(err) {
		return err
	}
	return s.missed(ctx, lease, func(status idempotency.Status) bool { return status == idempotency.InProgress })
}
