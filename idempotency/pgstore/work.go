package pgstore

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// errNotYours is the error of the work's attempts to end the transaction.
var errNotYours = errors.New("pgstore: the store ends the transaction with the operation's outcome, not the work")

// work is the work's pgx.Tx. The work cannot end the transaction through it, which would
// separate its writes from the record. It is closed with the transaction, because another
// operation uses the connection after that.
type work struct {
	pgx.Tx

	ended  pgx.Tx // replaces Tx at the end
	nested []*savepoint
	closed bool
}

// Commit implements pgx.Tx.
func (w *work) Commit(context.Context) error { return errNotYours }

// Rollback implements pgx.Tx. After the end it returns what a deferred Rollback expects.
func (w *work) Rollback(context.Context) error {
	if w.closed {
		return pgx.ErrTxClosed
	}
	return errNotYours
}

// Begin implements pgx.Tx.
func (w *work) Begin(ctx context.Context) (pgx.Tx, error) { return w.begin(ctx, w.Tx) }

func (w *work) begin(ctx context.Context, outer pgx.Tx) (pgx.Tx, error) {
	tx, err := outer.Begin(ctx)
	if err != nil {
		return nil, err
	}
	s := &savepoint{Tx: tx, work: w}
	w.nested = append(w.nested, s)
	return s, nil
}

func (w *work) close() {
	for _, s := range w.nested {
		s.Tx = w.ended
	}
	w.Tx, w.nested, w.closed = w.ended, nil, true
}

// endedTx returns a transaction of pgx that has ended.
func endedTx() pgx.Tx {
	var batch pgx.Batch
	batch.BeginTx(pgx.TxOptions{})
	return pgx.FailedBatchResults(&batch, pgx.ErrTxClosed).Tx()
}

// savepoint is a transaction within the work's, which the work may end.
type savepoint struct {
	pgx.Tx

	work *work
}

// Begin implements pgx.Tx.
func (s *savepoint) Begin(ctx context.Context) (pgx.Tx, error) { return s.work.begin(ctx, s.Tx) }

// sqlWork makes the work's *sql.Tx from a database with one connection: that of the
// transaction. Its Begin, Commit and Rollback send nothing to the server.
type sqlWork struct {
	sqlConn

	db *sql.DB
	tx *sql.Tx
}

func newSQLWork(conn sqlConn) *sqlWork {
	w := &sqlWork{sqlConn: conn}
	w.db = sql.OpenDB(w)
	w.tx, _ = w.db.BeginTx(context.Background(), nil) // Neither Connect nor BeginTx can fail.
	return w
}

// close ends the *sql.Tx, and closes its open rows. It reports whether the work has ended
// the *sql.Tx before.
func (w *sqlWork) close() (ended bool) {
	ended = w.db != nil && errors.Is(w.tx.Rollback(), sql.ErrTxDone)
	if w.db != nil {
		_ = w.db.Close() // It has no connection of its own.
		w.db = nil
	}
	return ended
}

// Connect implements [sqldriver.Connector].
func (w *sqlWork) Connect(context.Context) (sqldriver.Conn, error) { return w, nil }

// Driver implements [sqldriver.Connector].
func (w *sqlWork) Driver() sqldriver.Driver { return stdlib.GetDefaultDriver() }

// Close implements [sqldriver.Conn]. The connection belongs to the pool.
func (w *sqlWork) Close() error { return nil }

// BeginTx implements [sqldriver.ConnBeginTx]. The transaction is open.
func (w *sqlWork) BeginTx(context.Context, sqldriver.TxOptions) (sqldriver.Tx, error) {
	return sqlEnd{}, nil
}

// sqlEnd implements [sqldriver.Tx].
type sqlEnd struct{}

// Commit implements [sqldriver.Tx].
func (sqlEnd) Commit() error { return errNotYours }

// Rollback implements [sqldriver.Tx].
func (sqlEnd) Rollback() error { return nil }
