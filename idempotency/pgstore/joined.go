package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
	"github.com/resilienthttp/resilienthttp/internal/pgkit"
)

// joined is what joined work will write down, once it is done.
type joined struct {
	claim  *driver.Claim
	record driver.Record  // Reservation.Record
	judged *driver.Record // is superseded; nil: there was none
	began  time.Time      // the transaction's
}

// look is what Begin finds.
type look struct {
	locked bool
	now    time.Time
	began  time.Time      // the transaction's
	record *driver.Record // nil: none
}

// judge answers a claim for joined work. What is decided is done at the end of the
// work, except for Abandon.
func (l *look) judge(claim *driver.Claim) (driver.Step, driver.Reservation) {
	step, answer := driver.Decide(l.record, claim, l.now)
	answer.Record = driver.Record{ID: claim.ID, Status: driver.InProgress}
	if l.record != nil {
		answer.Record = *l.record
	}
	switch {
	case step == driver.Leave && answer.Decision != driver.Acquired:
	case step == driver.Leave, !l.locked: // a detached execution of the same owner is at it, or joined work
		return driver.Leave, driver.Reservation{Decision: driver.DecisionInProgress, Record: answer.Record}
	case step != driver.StepMarkUnknown:
		answer.Record = driver.Record{
			ID: claim.ID, Fingerprint: claim.Fingerprint, Status: driver.InProgress, Takeover: claim.Takeover,
			Owner: claim.Owner, Generation: answer.Record.Generation + 1,
			Started: l.now, Updated: l.now, Expires: l.now.Add(claim.TTL),
		}
	}
	return step, answer
}

// end is the statements that write the record with its outcome, with their arguments.
func (j *joined) end(is *statements, insert string, o *driver.Outcome) ([]statement, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	result, err := resultArgs(o)
	if err != nil {
		return nil, err
	}
	var all []statement
	if j.judged != nil {
		all = append(all, statement{is.supersede, judgedArgs(j.judged)})
	}
	ttl := o.TTL
	if ttl == 0 {
		ttl = j.claim.TTL
	}
	r := &j.record
	args := idArgs(&r.ID, string(r.Fingerprint), int16(o.Status), r.Owner, r.Generation, int16(r.Takeover), r.Started,
		o.TTL > 0, microseconds(ttl))
	return append(all, statement{insert, append(args, result[:]...)}), nil
}

// endHere is end for a transaction that Begin has opened, and the work may have ended.
func (j *joined) endHere(is *statements, o *driver.Outcome) ([]statement, error) {
	all, err := j.end(is, is.insertHere, o)
	if err == nil {
		last := &all[len(all)-1]
		last.args = append(last.args, j.began)
	}
	return all, err
}

// statement is one with its arguments.
type statement struct {
	text string
	args []any
}

// Why joined work cannot be committed.
var (
	// errEnded: the work has sent COMMIT or ROLLBACK as a statement.
	errEnded = fmt.Errorf("%w: pgstore: the work has ended the transaction by itself, without its record: "+
		"it ends with the operation's outcome", driver.ErrUnknown)

	// errRows: pgx says "conn busy".
	errRows = fmt.Errorf("%w: pgstore: the work has left rows open on the transaction's connection (Rows.Close, Row.Scan)",
		driver.ErrTransactionFailed)

	// errFailed: PostgreSQL's own words are that "commands are ignored".
	errFailed = fmt.Errorf("%w: pgstore: what may fail, and is not to end in a refusal, belongs into a savepoint "+
		"(the transaction's Begin)", driver.ErrTransactionFailed)
)

// written turns the way in which the record could not be written into what it means.
func written(err error) error {
	switch {
	case pgkit.HasCode(err, uniqueViolation):
		return driver.ErrLeaseLost
	case pgkit.HasCode(err, inFailedTransaction):
		return errFailed
	default:
		return undone(err)
	}
}

// undone: what the server answers to COMMIT with an error, it has rolled back. It
// says FATAL where it ends the connection, and then that is not known.
func undone(err error) error {
	if severity(err) == "ERROR" {
		return fmt.Errorf("%w: %w", driver.ErrTransactionFailed, err)
	}
	return err
}

// lastWords is the context for ending a transaction: one that has ended gets a
// moment more.
func lastWords(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), time.Second)
}

// opened is a transaction that Begin has opened.
type opened interface {
	driver.Transaction

	// join makes it the work's.
	join(ctx context.Context, j joined) error
}

// Begin implements [idempotency.Transactor]. The transaction takes a connection of
// the pool until it ends. Its Value is a pgx.Tx or a *sql.Tx, for the work to write
// through; ending it is the Transaction's business.
//
// limit is what the server is told: an older one than PostgreSQL 17 ends the
// transaction if it does nothing for so long, a newer one after limit in any case. And
// it ends it when the host of this process has been silent for Claim.Lease (at least
// two seconds), if that is connected through TCP, and directly.
func (s *Store) Begin(ctx context.Context, claim driver.Claim, limit time.Duration,
) (driver.Reservation, driver.Transaction, error) {
	if err := claim.Validate(); err != nil {
		return driver.Reservation{}, nil, err
	}
	var answer driver.Reservation
	var tx driver.Transaction
	err := s.repeat(ctx, func(error) (err error) {
		answer, tx, err = s.begin(ctx, &claim, limit)
		return err
	})
	switch {
	case errors.Is(err, errMoved): // and answer is Busy
		return answer, nil, nil
	case err != nil:
		return driver.Reservation{}, nil, err
	}
	return answer, tx, nil
}

func (s *Store) begin(ctx context.Context, claim *driver.Claim, limit time.Duration,
) (driver.Reservation, driver.Transaction, error) {
	if s.repeats.likely() {
		answer, err := s.find(ctx, claim)
		if err != nil || answer.Decision != 0 {
			return answer, nil, err
		}
	}
	open := s.openSQL
	if s.pool != nil {
		open = s.openPgx
	}
	tx, found, err := open(ctx, &claim.ID, s.locals.statement(idArgs(&claim.ID), limit, claim.Lease))
	if err != nil {
		return driver.Reservation{}, nil, err
	}
	step, answer := found.judge(claim)
	s.repeats.count(answer.Decision == driver.Done)
	if answer.Decision == driver.Acquired {
		if err := tx.join(ctx, joined{claim, answer.Record, found.record, found.began}); err != nil {
			return driver.Reservation{}, nil, errors.Join(err, tx.Rollback(ctx))
		}
		return answer, tx, nil
	}
	if err := tx.Rollback(ctx); err != nil && ctx.Err() != nil {
		return driver.Reservation{}, nil, ctx.Err()
	}
	if step == driver.StepMarkUnknown {
		r := reserve{verbs: &s.verbs, claim: claim}
		answer.Record, err = r.step(ctx, step, found.record)
		if noRows(err) {
			return driver.Reservation{Decision: driver.DecisionInProgress, Record: *found.record}, nil, errMoved
		}
	}
	return answer, nil, err
}

// find is the answer to a claim for which nothing need be done, or none.
func (s *Store) find(ctx context.Context, claim *driver.Claim) (driver.Reservation, error) {
	var now time.Time
	record, err := scanRecord(s.row(ctx, s.is.load, idArgs(&claim.ID)...), &now)
	if noRows(err) {
		return driver.Reservation{}, nil
	}
	if err != nil {
		return driver.Reservation{}, err
	}
	step, answer := driver.Decide(&record, claim, now)
	if step != driver.Leave || answer.Decision == driver.Acquired {
		return driver.Reservation{}, nil
	}
	answer.Record = record
	return answer, nil
}
