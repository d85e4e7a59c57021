package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/resilienthttp/resilienthttp/idempotency/driver"
)

// savepoint is joined work in a transaction of the caller's.
type savepoint struct {
	within *Within
	record driver.Record
	name   string
	over   bool
}

// Begin implements idempotency.Transactor, by a savepoint: what ends without Commit
// is undone up to there, and the caller's transaction goes on. Value is that. There
// is no limit. Where one is begun in another, the inner must end first.
//
// The record is written at once, and completed with the work, so that it tells what
// has happened should the work end the caller's transaction by itself: where that
// was committed it is there, in progress, and becomes Unknown when its lease is over.
func (w *Within) Begin(
	ctx context.Context, claim driver.Claim, _ time.Duration,
) (driver.Reservation, driver.Transaction, error) {
	if err := errors.Join(claim.Validate(), ctx.Err()); err != nil {
		return driver.Reservation{}, nil, err
	}
	t := &savepoint{within: w, name: fmt.Sprintf("idempotency_%d", len(w.open)+1)}
	if err := t.exec(ctx, "SAVEPOINT"); err != nil {
		return driver.Reservation{}, nil, err
	}
	claim.Takeover = driver.MarkUnknown
	l, err := w.reserve(ctx, &claim)
	if err != nil {
		return driver.Reservation{}, nil, errors.Join(err, t.undo(ctx))
	}
	if l.step != driver.Insert && l.step != driver.Take {
		return leased(l.answer), nil, t.exec(ctx, "RELEASE") // what was abandoned stays so
	}
	t.record = l.answer.Record
	w.open = append(w.open, t)
	return l.answer, t, nil
}

// Value implements idempotency.Transaction. It is the caller's *sql.Tx.
func (t *savepoint) Value() any { return t.within.tx }

// Commit implements idempotency.Transaction. It is the caller who commits.
func (t *savepoint) Commit(ctx context.Context, outcome driver.Outcome) error {
	return t.finish(ctx, &outcome, func(ctx context.Context) error {
		return t.within.Complete(ctx, t.record.Lease(), outcome)
	})
}

// Refuse implements idempotency.Transaction.
func (t *savepoint) RollbackAndRecord(ctx context.Context, outcome driver.Outcome) error {
	return t.finish(ctx, &outcome, func(ctx context.Context) error {
		if err := t.exec(ctx, "ROLLBACK TO"); err != nil {
			return err
		}
		return writeLease(ctx, t.within.finish, finishArgs(&t.record, &outcome))
	})
}

// Rollback implements idempotency.Transaction.
func (t *savepoint) Rollback(ctx context.Context) error {
	if t.over {
		return nil
	}
	_ = t.close() // what has begun in it is undone too
	ctx = context.WithoutCancel(ctx)
	if t.undo(ctx) != nil {
		if err := t.ended(ctx); errors.Is(err, driver.ErrUnknown) {
			return err
		}
	}
	return nil
}

// finish ends the savepoint by write, or undoes all since it began.
func (t *savepoint) finish(ctx context.Context, outcome *driver.Outcome, write func(context.Context) error) error {
	if t.over {
		return errors.New("sqlitestore: the transaction is over")
	}
	err := errors.Join(t.close(), outcome.Validate(), ctx.Err())
	ctx = context.WithoutCancel(ctx)
	if err == nil {
		err = write(ctx)
	}
	if err == nil {
		err = t.exec(ctx, "RELEASE")
	}
	if err != nil && t.undo(ctx) != nil {
		return fmt.Errorf("%w: %w", t.ended(ctx), err)
	}
	return err
}

// close takes the savepoint, and those in it, from the open ones.
func (t *savepoint) close() (err error) {
	open := t.within.open
	i := slices.Index(open, t)
	for _, each := range open[i:] {
		if each != t {
			err = errors.New("sqlitestore: a transaction that was begun in this one has not ended")
		}
		each.over = true
	}
	t.within.open = open[:i]
	return err
}

// undo fails where the savepoint is gone: it is the caller's transaction that has
// ended.
func (t *savepoint) undo(ctx context.Context) error {
	if err := t.exec(ctx, "ROLLBACK TO"); err != nil {
		return err
	}
	return t.exec(ctx, "RELEASE")
}

// ended is the error where the work has ended the caller's transaction, or a
// statement of the work has: the record, which was written before all that, tells
// how.
func (t *savepoint) ended(ctx context.Context) error {
	r, _, err := t.within.store.readRecord(ctx, t.record.ID)
	switch {
	case err != nil:
		return fmt.Errorf("%w: sqlitestore: the caller's transaction has ended, and how cannot be found: %w",
			driver.ErrUnknown, err)
	case r != nil && r.Lease() == t.record.Lease():
		return fmt.Errorf("%w: sqlitestore: the work has committed the caller's transaction", driver.ErrUnknown)
	default:
		return fmt.Errorf("%w: it was the caller's", driver.ErrTransactionFailed)
	}
}

func (t *savepoint) exec(ctx context.Context, what string) error {
	_, err := t.within.tx.ExecContext(ctx, what+" "+t.name)
	return err
}
