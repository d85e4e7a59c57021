package pgstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// Store keeps records in a table of PostgreSQL. It is a [idempotency.Transactor], made by
// [New] or [NewSQL], and safe for concurrent use. It uses the caller's pool and needs no
// Close.
type Store struct {
	operations

	callers   *statements // for a transaction of the caller
	isolation pgx.TxIsoLevel
	settings  *transactionSettings
	ended     pgx.Tx // a transaction that has ended
}

var _ idempotency.Transactor = (*Store)(nil)

// Options configure a Store. The zero value and nil are the defaults.
type Options struct {
	// Schema is the name of PostgreSQL's schema for the tables, which is created if it does not
	// exist. "" means where the search_path finds the tables when the store is made, or would create them.
	// A later SET search_path does not matter.
	Schema string

	// Table is the name of the table of records, of at most 50 bytes. The other names begin with
	// it. "" means idempotency_records.
	Table string

	// Isolation is the isolation level of transactional work. Zero means the database's default,
	// usually read committed. Stricter levels may fail at the end of the work with
	// idempotency.ErrLeaseLost, or with idempotency.ErrTransactionFailed and PostgreSQL's code 40001;
	// nothing was committed then.
	Isolation sql.IsolationLevel

	// NoMigration leaves the tables unchanged, for applications without the right to
	// change them. Missing or older tables are an ErrSchema. See [Migrate] and [Schema].
	NoMigration bool
}

// New makes a store from a pool of pgx, and its tables if they do not exist. The work
// gets a pgx.Tx. The connections may come from PgBouncer; see the package comment. The
// error is an ErrSchema, a idempotency.ErrInvalid, or PostgreSQL's.
func New(ctx context.Context, pool *pgxpool.Pool, options *Options) (*Store, error) {
	return open(ctx, pgxConnections(pool), options)
}

// NewSQL is New for a database of database/sql. The work gets a *sql.Tx. The driver must
// be pgx/v5/stdlib, or wrap it and have the method Raw() driver.Conn, as otelsql has;
// otherwise the error is a idempotency.ErrInvalid.
func NewSQL(ctx context.Context, db *sql.DB, options *Options) (*Store, error) {
	return open(ctx, sqlConnections(db), options)
}

func open(ctx context.Context, conns *connections, options *Options) (*Store, error) {
	if options == nil {
		options = &Options{}
	}
	if err := options.validate(); err != nil {
		return nil, err
	}
	conn, err := conns.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.release()
	through := pgkit.PGX(conn)
	schema, t, err := locate(ctx, through, options)
	if err != nil {
		return nil, err
	}
	if !options.NoMigration {
		if err := schema.Migrate(ctx, conn); err != nil {
			return nil, err
		}
	}
	s := &Store{
		operations: operations{is: newStatements(t, false), schema: schema, predictor: new(replayPredictor), conns: conns},
		callers:    newStatements(t, true),
		ended:      endedTx(),
	}
	s.isolation, _ = pgxIsolation(options.Isolation) // is valid
	if err := s.check(ctx, through); err != nil {
		return nil, err
	}
	network, _ := pgconn.NetworkAddress(conn.Config().Host, conn.Config().Port) // unix: on this host, so no host can be lost
	s.settings, err = newTransactionSettings(ctx, through, network == "unix", s.is.lock)
	return s, err
}

const (
	defaultTable = "idempotency_records"
	maxTable     = 50
	maxName      = 63 // PostgreSQL truncates longer names
)

func (o *Options) tables() *tables { return newTables(o.Schema, cmp.Or(o.Table, defaultTable)) }

func (o *Options) validate() error {
	if len(o.Schema) > maxName || !storable(o.Schema) {
		return fmt.Errorf("%w: pgstore: Options.Schema: %q (want UTF-8 without NUL, at most %d bytes)", idempotency.ErrInvalid, o.Schema, maxName)
	}
	if len(o.Table) > maxTable || !storable(o.Table) {
		return fmt.Errorf("%w: pgstore: Options.Table: %q (want UTF-8 without NUL, at most %d bytes)", idempotency.ErrInvalid, o.Table, maxTable)
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
	default:
		return "", fmt.Errorf("%w: pgstore: Options.Isolation: %v (want LevelReadCommitted or stricter)", idempotency.ErrInvalid, level)
	}
}

// InCallerTx implements [idempotency.Transactor]. It returns false; see [Store.WithTx].
func (s *Store) InCallerTx() bool { return false }
