package pgstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
)

// transaction is joined work on a connection of pgx.
type transaction struct {
	joined

	is   *statements
	conn *pgxpool.Conn // nil when it has been given back
	work *work
}

// openPgx opens a transaction, locks the name and looks, in one round trip.
func (s *Store) openPgx(ctx context.Context, id *driver.ID, lock statement) (opened, *look, error) {
	level, err := pgxIsolation(s.isolation)
	if err != nil {
		return nil, nil, err
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, nil, err
	}
	var batch pgx.Batch
	batch.BeginTx(pgx.TxOptions{IsoLevel: level})
	batch.Queue(lock.text, lock.args...)
	batch.Queue(s.is.load, idArgs(id)...)
	results := conn.Conn().SendBatch(ctx, &batch)
	found, err := readLook(results)
	if e := results.Close(); err == nil {
		err = e
	}
	t := &transaction{is: s.is, conn: conn, work: &work{Tx: results.Tx()}}
	if err != nil {
		_ = t.Rollback(ctx) // The error is what matters.
		return nil, nil, err
	}
	return t, found, nil
}

func readLook(results pgx.BatchResults) (*look, error) {
	if _, err := results.Exec(); err != nil {
		return nil, err
	}
	var found look
	if err := results.QueryRow().Scan(&found.locked, &found.now, &found.began, nil); err != nil {
		return nil, err
	}
	record, err := scanRecord(results.QueryRow(), nil)
	switch {
	case err == nil:
		found.record = &record
	case !noRows(err):
		return nil, err
	}
	return &found, nil
}

func (t *transaction) join(_ context.Context, j joined) error {
	t.joined = j
	return nil
}

// Value implements idempotency.Transaction.
func (t *transaction) Value() any { return pgx.Tx(t.work) }

// Commit implements idempotency.Transaction. The record and the COMMIT go in one
// round trip; if the first fails the second is not executed.
func (t *transaction) Commit(ctx context.Context, outcome driver.Outcome) error {
	end, err := t.endHere(t.is, &outcome)
	return t.finish(ctx, end, err, t.commit)
}

// Refuse implements idempotency.Transaction. The ROLLBACK, which sets the lock free,
// and the record go in one round trip; if somebody comes between them, the record is
// not written.
func (t *transaction) RollbackAndRecord(ctx context.Context, outcome driver.Outcome) error {
	end, err := t.end(t.is, t.is.insertAlone, &outcome)
	return t.finish(ctx, end, err, t.refuse)
}

func (t *transaction) finish(ctx context.Context, end []statement, err error,
	send func(context.Context, []statement) error,
) error {
	if t.conn == nil {
		return pgx.ErrTxClosed
	}
	if err == nil {
		err = t.misused()
	}
	if err == nil {
		err = send(ctx, end)
	}
	if err != nil {
		_ = t.Rollback(ctx) // Whatever is left of it. Of what was done, err says as much as is known.
		return err
	}
	t.giveBack()
	return nil
}

// misused is what the work has done to the connection that keeps the transaction from
// its end.
func (t *transaction) misused() error {
	switch conn := t.conn.Conn(); {
	case conn.IsClosed():
		return nil // which tells the next who uses it
	case conn.PgConn().IsBusy():
		return errRows
	case t.status() == 'I':
		return errEnded
	default:
		return nil
	}
}

// moved reports whether the work, to which the transaction was given, has ended it and
// begun another. Of one that has failed PostgreSQL does not tell.
func (t *transaction) moved(ctx context.Context) bool {
	if t.claim == nil || t.status() != 'T' {
		return false
	}
	here := true
	err := t.conn.Conn().QueryRow(ctx, t.is.here, t.began).Scan(&here)
	return err == nil && !here
}

func (t *transaction) commit(ctx context.Context, end []statement) error {
	if t.status() == 'E' {
		return errFailed
	}
	var batch pgx.Batch
	queue(&batch, end)
	batch.Queue("commit")
	results := t.conn.Conn().SendBatch(ctx, &batch)
	n, err := execAll(results, len(end))
	if err = written(err); err == nil {
		err = committed(results)
	}
	if err == nil && n == 0 {
		err = errEnded
	}
	if e := results.Close(); err == nil {
		err = undone(e)
	}
	return err
}

// refuse: what is sent after ROLLBACK is a transaction of its own.
func (t *transaction) refuse(ctx context.Context, end []statement) error {
	conn := t.conn.Conn()
	if t.status() == 'E' {
		// Statements that are not prepared yet cannot be in a transaction that has failed.
		if _, err := conn.Exec(ctx, "rollback"); err != nil {
			return err
		}
	}
	var batch pgx.Batch
	if t.status() != 'I' {
		batch.Queue("rollback")
	}
	queue(&batch, end)
	results := conn.SendBatch(ctx, &batch)
	n, err := execAll(results, batch.Len())
	if e := results.Close(); err == nil {
		err = e
	}
	if err == nil && n == 0 {
		return driver.ErrLeaseLost
	}
	return undone(err)
}

func queue(batch *pgx.Batch, all []statement) {
	for _, s := range all {
		batch.Queue(s.text, s.args...)
	}
}

// execAll reads n results, and returns how many rows the last one has changed.
func execAll(results pgx.BatchResults, n int) (int64, error) {
	for {
		tag, err := results.Exec()
		if n--; err != nil || n == 0 {
			return tag.RowsAffected(), err
		}
	}
}

// status is what the connection knows of the transaction: that it goes on (T), has
// failed (E) or is over (I).
func (t *transaction) status() byte { return t.conn.Conn().PgConn().TxStatus() }

// committed reads the answer to COMMIT, which is ROLLBACK, and no error, where the
// transaction had failed before.
func committed(results pgx.BatchResults) error {
	tag, err := results.Exec()
	if err == nil && tag.String() != "COMMIT" {
		return errFailed
	}
	return undone(err)
}

// Rollback implements idempotency.Transaction. It is done even if the context has
// ended, as it has where a client went away: the connection is worth more than the
// moment that this takes.
func (t *transaction) Rollback(ctx context.Context) error {
	if t.conn == nil {
		return nil
	}
	ctx, cancel := lastWords(ctx)
	defer cancel()
	ended := errors.Is(t.misused(), errEnded) || t.moved(ctx)
	err := t.work.Tx.Rollback(ctx)
	if errors.Is(err, pgx.ErrTxClosed) {
		err = nil // It never began.
	}
	t.giveBack()
	if ended {
		return errEnded
	}
	return err
}

// giveBack gives the connection back, which the pool keeps if it is of any use, and
// takes it from the work.
func (t *transaction) giveBack() {
	t.work.close()
	t.conn.Release()
	t.conn = nil
}
