package pgstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// pending is the record that transactional work writes at its end.
type pending struct {
	id     []any               // idArgs of the claim
	record idempotency.Record  // of the reservation
	judged *idempotency.Record // the record that it replaces; nil: none
}

// judge answers a claim for transactional work. Its step happens at the end of the work,
// except for StepMarkUnknown.
func (f *found) judge(claim *idempotency.Claim, locked bool) (idempotency.Step, idempotency.Reservation) {
	step, answer := idempotency.Decide(f.record, claim, f.now)
	answer.Record = idempotency.Record{ID: claim.ID, Status: idempotency.StatusInProgress}
	if f.record != nil {
		answer.Record = *f.record
	}
	switch {
	case step == idempotency.StepLeave && answer.Decision != idempotency.DecisionAcquired:
	case step == idempotency.StepLeave, !locked: // a leased execution of the same owner, or a transaction, has the operation
		return idempotency.StepLeave, idempotency.Reservation{Decision: idempotency.DecisionInProgress, Record: answer.Record}
	case step != idempotency.StepMarkUnknown:
		answer.Record = claim.Begun(f.record, f.now)
		answer.Record.LeaseExpires = time.Time{} // a transaction needs no lease
	}
	return step, answer
}

// end returns the statements that write the record with its outcome.
func (p *pending) end(is *statements, insert string, o *idempotency.Outcome) ([]*pgkit.Statement, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	result, err := resultArgs(o)
	if err != nil {
		return nil, err
	}
	r := &p.record
	var lease, expires *time.Time
	if o.Status == idempotency.Unknown {
		lease = new(time.Unix(0, 0)) // as in the statements
	}
	if o.TTL == 0 {
		expires = &r.Expires
	}
	last := &pgkit.Statement{Text: insert, Args: append(append(make([]any, 0, 16), p.id...), string(r.Fingerprint), int16(o.Status), r.Owner, r.Generation, lease,
		int16(r.Takeover), r.Started, expires, microseconds(o.TTL), result[0], result[1], result[2], result[3])}
	if p.judged == nil {
		return []*pgkit.Statement{last}, nil
	}
	return []*pgkit.Statement{{Text: is.supersede, Args: judgedArgs(p.judged)}, last}, nil
}

// Why transactional work cannot be committed.
var (
	// errEnded means that the work has sent COMMIT or ROLLBACK as a statement.
	errEnded = fmt.Errorf("%w: pgstore: the work has ended the transaction, without its record (the store ends it with the outcome)",
		idempotency.ErrUnknown)

	// errDone means that the work has called Commit or Rollback of its *sql.Tx, which
	// only ends the work's access to the transaction.
	errDone = fmt.Errorf("%w: pgstore: the work has ended its *sql.Tx, perhaps by a deferred Rollback (the store ends the transaction "+
		"with the outcome): %w", idempotency.ErrUncommittable, sql.ErrTxDone)

	// errRows replaces pgx's "conn busy".
	errRows = fmt.Errorf("%w: pgstore: the work has left rows open on the transaction's connection (Rows.Close, Row.Scan)",
		idempotency.ErrUncommittable)

	// errFailed replaces PostgreSQL's "commands are ignored". The work reports a success nevertheless, and would do so again.
	errFailed = fmt.Errorf("%w: pgstore: a statement has failed (one that may fail needs a savepoint, the transaction's Begin)",
		idempotency.ErrUncommittable)

	// errReadOnly means that the server accepts no writes: a replica, or a primary that
	// was made read-only.
	errReadOnly = errors.New("pgstore: the server is read-only (default_transaction_read_only, or a replica)")
)

// writeError translates the error of the statements that write the record.
func writeError(err error) error {
	const uniqueViolation, notNullViolation, inFailedTransaction = "23505", "23502", "25P02"
	switch e, ok := errors.AsType[*pgconn.PgError](err); {
	case ok && e.Code == notNullViolation && e.ColumnName == "status":
		return errEnded // see insertHere
	case pgkit.HasCode(err, uniqueViolation):
		return idempotency.ErrLeaseLost
	case pgkit.HasCode(err, inFailedTransaction):
		return errFailed
	default:
		return commitError(pgkit.SchemaError(err))
	}
}

// commitError marks an error after which the server has rolled back. After a FATAL error,
// which ends the connection, the result of COMMIT is not known.
func commitError(err error) error {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.SeverityUnlocalized == "ERROR" {
		return fmt.Errorf("%w: %w", idempotency.ErrTransactionFailed, err)
	}
	return err
}

// workError is commitError for COMMIT, which checks what the work has deferred: constraints, and triggers that raise an
// exception. These classes of errors are about the work's rows and statements, so a repetition fails in the same way. The
// others may pass, such as conflicts (40), resources (53) and an operator's intervention (57).
func workError(err error) error {
	const data, integrity, access, view, raised = "22", "23", "42", "44", "P0"
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && slices.Contains([]string{data, integrity, access, view, raised}, e.Code[:2]) {
		return fmt.Errorf("%w: %w", idempotency.ErrUncommittable, err)
	}
	return commitError(err)
}

// Begin implements [idempotency.Transactor]. The transaction holds one connection of the pool
// until it ends. Begin waits for it for at most a second, or a tenth of the time until
// the deadline if that is less, and for a lock on the table for about a second; then the
// error is a idempotency.ErrStoreBusy. The lock_timeout of the session is the work's. Its Value
// is a pgx.Tx or a *sql.Tx.
//
// The server ends the transaction after limit; before PostgreSQL 17, if it is idle for
// that long. It ends it after a silence of Claim.Lease (at least two seconds) of this
// host, if the connection uses TCP without a proxy.
func (s *Store) Begin(ctx context.Context, claim idempotency.Claim, limit time.Duration,
) (idempotency.Reservation, idempotency.Transaction, error) {
	if err := claim.Validate(); err != nil {
		return idempotency.Reservation{}, nil, err
	}
	var answer idempotency.Reservation
	var tx *transaction
	began := time.Now()
	err := pgkit.Repeat(ctx, s.isRetryable, func(error) (err error) {
		answer, tx, err = s.begin(ctx, &claim, limit)
		return lockError(began, err)
	})
	switch {
	case errors.Is(err, errMoved): // the answer is DecisionInProgress
	case err != nil:
		return idempotency.Reservation{}, nil, pgkit.Ended(ctx, pgkit.SchemaError(err))
	case tx != nil:
		return answer, tx, nil
	}
	return answer, nil, nil
}

func (s *Store) begin(ctx context.Context, claim *idempotency.Claim, limit time.Duration) (idempotency.Reservation, *transaction, error) {
	conn, err := s.conns.forClaim(ctx)
	if err != nil {
		return idempotency.Reservation{}, nil, err
	}
	// open's read is prepared here, because it cannot be prepared with a limit there.
	prepare := []*pgkit.Statement{{Text: s.is.read, Args: idArgs(&claim.ID)}}
	if conn.knows(prepare) {
		prepare = nil
	}
	if !s.predictor.newKey() || prepare != nil {
		var f found
		err := limited{conn, pgkit.PGX(conn)}.Send(ctx, append(prepare, s.load(&claim.ID, &f))...)
		step, answer := f.judge(claim, true)
		answered := f.record != nil && step == idempotency.StepLeave
		if answered {
			s.predictor.record(answer.Decision != idempotency.DecisionDone)
		}
		if answered || err != nil {
			conn.closeIfBroken(ctx, err)
			conn.release()
			return answer, nil, err
		}
	}
	t, id := &transaction{Store: s, conn: conn}, idArgs(&claim.ID)
	f, locked, readOnly, err := t.open(ctx, claim, id, limit)
	if err != nil {
		conn.closeIfBroken(ctx, err)
		_ = t.Rollback(ctx) // The error is what matters.
		return idempotency.Reservation{}, nil, err
	}
	step, answer := f.judge(claim, locked)
	s.predictor.record(answer.Decision != idempotency.DecisionDone)
	switch {
	case step != idempotency.StepLeave && readOnly:
		return idempotency.Reservation{}, nil, errors.Join(errReadOnly, t.Rollback(ctx))
	case answer.Decision == idempotency.DecisionAcquired:
		t.pending = &pending{id, answer.Record, f.record}
		return answer, t, nil
	case step == idempotency.StepMarkUnknown:
		if answer, err = t.markUnknown(ctx, answer, f.record); err == nil || errors.Is(err, errMoved) {
			t.giveBack(ctx) // it has committed
			return answer, nil, err
		}
	}
	if e := t.Rollback(ctx); e != nil && ctx.Err() != nil {
		return idempotency.Reservation{}, nil, ctx.Err()
	}
	return answer, nil, err
}

// transaction is transactional work on a connection of the pool.
type transaction struct {
	*pending // nil until it is the work's

	*Store

	conn    *connection // nil after the end
	tx      pgx.Tx
	durable bool     // COMMIT waits until the transaction is on disk
	sound   bool     // after the work, the connection still had its prepared statements
	work    *work    // the work's pgx.Tx, made by Value
	sql     *sqlWork // the work's *sql.Tx, made by Value
}

// open begins the transaction, locks the operation and reads its record, in one round
// trip. The lock is a statement of its own: the read must see what the transaction that
// had the lock before has committed.
func (t *transaction) open(ctx context.Context, claim *idempotency.Claim, id []any, limit time.Duration) (f found, locked, readOnly bool, err error) {
	text, args := t.settings.statement(&claim.ID, limit, claim.Lease)
	var batch pgx.Batch
	batch.BeginTx(pgx.TxOptions{IsoLevel: t.isolation})
	batch.Queue(text, args...)
	batch.Queue(t.is.read, id...)
	batch.Queue(restoreWait)
	results := t.conn.SendBatch(ctx, &batch)
	t.tx = results.Tx()
	var access, durability string
	if _, err = results.Exec(); err == nil {
		err = results.QueryRow().Scan(&locked, &f.now, &access, &durability, nil)
	}
	readOnly, t.durable = access == "on", durability == "on" || durability == "remote_apply"
	if err == nil {
		rows, _ := results.Query() // Err says more.
		if rows.Next() {
			err = f.scan(rows)
		}
		rows.Close()
		err = errors.Join(err, rows.Err())
	}
	if err == nil {
		_, err = results.Exec()
	}
	if e := results.Close(); err == nil {
		err = e
	}
	return f, locked, readOnly, err
}

// markUnknown marks the record of an execution that died.
func (t *transaction) markUnknown(ctx context.Context, answer idempotency.Reservation, judged *idempotency.Record) (idempotency.Reservation, error) {
	var after found
	end := append(t.durably(), t.change(idempotency.StepMarkUnknown, nil, judged, &after), &pgkit.Statement{Text: "commit"})
	err := pgkit.PGX(t.conn).Send(ctx, end...)
	switch {
	case err != nil:
		return idempotency.Reservation{}, err
	case after.record == nil:
		return idempotency.Reservation{Decision: idempotency.DecisionInProgress, Record: *judged}, errMoved
	}
	answer.Record = *after.record
	return answer, nil
}

// Value implements [idempotency.Transaction].
func (t *transaction) Value() any {
	switch {
	case t.conn == nil:
		return nil
	case t.conn.sql == nil && t.work == nil:
		t.work = &work{Tx: t.tx, ended: t.ended}
	case t.conn.sql != nil && t.sql == nil:
		t.sql = newSQLWork(t.conn.sql)
	}
	if t.sql != nil {
		return t.sql.tx
	}
	return pgx.Tx(t.work)
}

// Commit implements [idempotency.Transaction]. The record and COMMIT share a round trip.
// COMMIT is not executed if the record was not written.
func (t *transaction) Commit(ctx context.Context, outcome idempotency.Outcome) error {
	return t.finish(ctx, func() error {
		if t.closeWork() {
			return errDone
		}
		end, err := t.end(t.is, t.is.insertHere, &outcome)
		if err != nil {
			return err
		}
		if t.status() == 'E' {
			return errFailed
		}
		return t.commit(ctx, end)
	})
}

// durably makes COMMIT wait until the transaction is on disk.
func (t *transaction) durably() []*pgkit.Statement {
	if t.durable {
		return nil
	}
	return []*pgkit.Statement{{Text: "SET LOCAL synchronous_commit = on"}}
}

func (t *transaction) commit(ctx context.Context, end []*pgkit.Statement) error {
	var batch pgx.Batch
	end = append(t.durably(), end...)
	for _, each := range end {
		batch.Queue(each.Text, each.Args...)
	}
	batch.Queue("commit")
	results := t.conn.SendBatch(ctx, &batch)
	for range end {
		if _, err := results.Exec(); err != nil {
			_ = results.Close() // The first error is what matters.
			return writeError(err)
		}
	}
	tag, err := results.Exec()
	if e := results.Close(); err == nil {
		err = e
	}
	if err == nil {
		t.executed(end)
	}
	if err == nil && tag.String() != "COMMIT" {
		return errFailed // COMMIT of a failed transaction is a rollback, and no error
	}
	return workError(err)
}

// executed notes that the connection has executed the statements. If they were prepared before the work, it still had its
// prepared statements.
func (t *transaction) executed(end []*pgkit.Statement) {
	t.sound = t.conn.knows(end)
	t.conn.learn(end)
}

// RollbackAndRecord implements [idempotency.Transaction]. ROLLBACK, which frees the lock, and
// the record share a round trip. The record is not written if another execution takes the
// operation in between.
func (t *transaction) RollbackAndRecord(ctx context.Context, outcome idempotency.Outcome) error {
	return t.finish(ctx, func() error {
		t.closeWork()
		end, err := t.end(t.is, t.is.insertAlone, &outcome)
		if err != nil {
			return err
		}
		if t.status() == 'E' {
			// A statement that is not prepared yet cannot share the flight of this ROLLBACK.
			if _, err := t.conn.Exec(ctx, "rollback"); err != nil {
				return err
			}
		} else {
			end = append([]*pgkit.Statement{{Text: "rollback"}}, end...)
		}
		err = pgkit.PGX(t.conn).Send(ctx, end...)
		if err == nil {
			t.executed(end)
		}
		if err == nil && end[len(end)-1].Affected == 0 {
			return idempotency.ErrLeaseLost
		}
		return commitError(pgkit.SchemaError(err))
	})
}

// finish ends the transaction by send, or rolls it back.
func (t *transaction) finish(ctx context.Context, send func() error) error {
	if t.conn == nil {
		return pgx.ErrTxClosed
	}
	err := t.misused()
	if err == nil {
		err = send()
	}
	if err != nil {
		_ = t.Rollback(ctx) // err says what is known about the work's writes.
		return err
	}
	t.giveBack(ctx)
	return nil
}

// misused returns what the work has done to the connection that prevents an orderly end.
func (t *transaction) misused() error {
	switch {
	case t.conn.IsClosed():
		return nil // the next statement says so
	case t.sql == nil && t.conn.PgConn().IsBusy():
		return errRows
	case t.status() == 'I':
		return errEnded
	default:
		return nil
	}
}

// restarted reports whether the work has ended the transaction and begun another. This
// is not known of a transaction that has failed.
func (t *transaction) restarted(ctx context.Context) bool {
	if t.pending == nil || t.status() != 'T' {
		return false
	}
	same := true
	err := t.conn.QueryRow(ctx, t.is.here, t.record.Started).Scan(&same)
	return err == nil && !same
}

// status is the state of the connection: in a transaction (T), in a failed one (E), or in
// none (I).
func (t *transaction) status() byte { return t.conn.PgConn().TxStatus() }

// closeWork ends the work's access to the transaction. It reports whether the work has
// ended its *sql.Tx before.
func (t *transaction) closeWork() (ended bool) {
	if t.work != nil {
		t.work.close()
	}
	return t.sql != nil && t.sql.close()
}

// Rollback implements [idempotency.Transaction]. If the context has ended, as it has if the
// client left, Rollback takes up to one more second, to keep the connection.
func (t *transaction) Rollback(ctx context.Context) error {
	if t.conn == nil {
		return nil
	}
	ctx, cancel := endContext(ctx)
	defer cancel()
	t.closeWork()
	ended := errors.Is(t.misused(), errEnded) && t.pending != nil || t.restarted(ctx)
	err := t.tx.Rollback(ctx)
	if errors.Is(err, pgx.ErrTxClosed) {
		err = nil // it never began
	}
	t.giveBack(ctx)
	if ended {
		return errEnded
	}
	return err
}

// giveBack returns the connection to the pool, which closes it if it is unusable.
func (t *transaction) giveBack(ctx context.Context) {
	t.closeWork()
	if t.pending != nil && !t.sound && t.conn.mode() == pgx.QueryExecModeCacheStatement {
		// The end has used no statement that was prepared before the work, so the work may have removed them all.
		err := pgkit.PGX(t.conn).Send(ctx, &pgkit.Statement{Text: restoreWait})
		t.conn.closeIfBroken(ctx, err)
	}
	t.conn.release()
	t.conn = nil
}
