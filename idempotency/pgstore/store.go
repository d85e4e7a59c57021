package pgstore

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// Store keeps records in a table of PostgreSQL. It is an
// [idempotency.Transactor], made by [New] or [NewSQL], and safe for concurrent use.
// It holds nothing but the pool that it was given: there is nothing to close.
type Store struct {
	verbs

	callers   *statements // for a transaction of the caller's
	isolation sql.IsolationLevel
	locals    *locals

	// One of them is nil.
	pool *pgxpool.Pool
	db   *sql.DB
}

var _ driver.Transactor = (*Store)(nil)

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
	// it. Under stricter levels joined work may find out at its end only that another
	// came before (ErrLeaseLost), or that it must be done again
	// (ErrTransactionFailed, with PostgreSQL's code 40001); nothing was committed then.
	Isolation sql.IsolationLevel

	// NoMigration leaves the tables as they are, for applications that are not
	// allowed to change them. They are checked all the same, and an older schema is
	// an error: see [Migrate] and [Schema].
	NoMigration bool
}

// New makes a store of a pool of pgx, and its tables if they are not there. The work
// gets a pgx.Tx.
//
// The pool's connections may come from PgBouncer: see the package comment.
func New(ctx context.Context, pool *pgxpool.Pool, options *Options) (*Store, error) {
	return open(ctx, &Store{pool: pool}, onPgx(pool), pgxLane(pool), options)
}

// NewSQL is New for database/sql, with the driver of pgx/v5/stdlib. The work gets a
// *sql.Tx. It takes more round trips than New, for database/sql cannot send two
// statements at once.
func NewSQL(ctx context.Context, db *sql.DB, options *Options) (*Store, error) {
	lane, err := sqlLane(ctx, db)
	if err != nil {
		return nil, err
	}
	return open(ctx, &Store{db: db}, onSQL(db), lane, options)
}

func open(ctx context.Context, s *Store, pool connection, lane *lane, options *Options) (*Store, error) {
	return openVersion(ctx, s, pool, lane, options, released())
}

// openVersion is open for a package with these steps.
func openVersion(ctx context.Context, s *Store, pool connection, lane *lane, options *Options, steps []pgkit.Step) (*Store, error) {
	if options == nil {
		options = &Options{}
	}
	if err := options.validate(); err != nil {
		return nil, err
	}
	t := options.tables()
	s.verbs = verbs{querier: pool, is: newStatements(t, safe), transact: pool.readCommitted, repeats: new(repeats), lane: lane}
	s.callers = newStatements(t, "NULL")
	s.isolation = options.Isolation
	schema, lock, database := t.made(steps), s.is.lock, pgkit.Pool(s.pool)
	if s.db != nil {
		lock, database = s.is.lockNumbered, pgkit.DB(s.db)
	}
	s.check = func(ctx context.Context) error { return schema.Check(ctx, database) }
	prepare := schema.Migrate
	if options.NoMigration {
		prepare = schema.Check
	}
	if err := prepare(ctx, database); err != nil {
		return nil, err
	}
	var err error
	s.locals, err = newLocals(ctx, pool, lane.socket, lock)
	if err != nil {
		return nil, err
	}
	return s, nil
}

const (
	defaultTable = "idempotency_records"
	longestTable = 50
	longestName  = 63 // PostgreSQL cuts off the rest
)

func (o *Options) tables() *tables {
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
			return fmt.Errorf("%w: the name %q of a %s", driver.ErrInvalid, name.value, name.what)
		}
	}
	_, err := pgxIsolation(o.Isolation)
	return err
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
	return "", fmt.Errorf("%w: isolation %v", driver.ErrInvalid, level)
}

// Enclosed implements [idempotency.Transactor]: it commits itself. [Store.Within] gives one
// that does not.
func (s *Store) InCallerTx() bool { return false }
