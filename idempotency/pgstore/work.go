package pgstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// work is the pgx.Tx that the work writes through. It differs from pgx's own in
// that the work cannot end it: that would separate what it wrote from its record.
// When it is over it is closed, because the connection is somebody else's then.
type work struct {
	pgx.Tx

	nested []*savepoint
	closed bool
}

// errNotYours is what the work gets for ending the transaction itself.
var errNotYours = errors.New("pgstore: the transaction ends with the operation's outcome, not by the work")

// Commit implements pgx.Tx.
func (w *work) Commit(context.Context) error { return errNotYours }

// Rollback implements pgx.Tx. After the end it is what a deferred Rollback expects.
func (w *work) Rollback(ctx context.Context) error {
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
	closed := over()
	for _, s := range w.nested {
		s.Tx = closed
	}
	w.Tx, w.nested, w.closed = closed, nil, true
}

// savepoint is a transaction inside of the work's, which the work may well end.
type savepoint struct {
	pgx.Tx

	work *work
}

// Begin implements pgx.Tx.
func (s *savepoint) Begin(ctx context.Context) (pgx.Tx, error) { return s.work.begin(ctx, s.Tx) }

// over is a transaction that has ended: pgx's own, for one that never began.
func over() pgx.Tx {
	var batch pgx.Batch
	batch.BeginTx(pgx.TxOptions{})
	return pgx.FailedBatchResults(&batch, pgx.ErrTxClosed).Tx()
}
