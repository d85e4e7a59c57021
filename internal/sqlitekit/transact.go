package sqlitekit

import (
	"context"
	"database/sql"
	"errors"
)

// mostTaken is the most others whose work is done in one transaction: how long it may be
// that the first of them waits for the last.
const mostTaken = 64

// errPanicked: the work of somebody in the same transaction has panicked.
var errPanicked = errors.New("sqlitestore: another's work in the same transaction has panicked")

// Transact is Alone with a transaction on Write, which is committed if work returns nil
// and rolled back if not. It has the write lock from its beginning, so that work is not
// called before there is nobody left to wait for.
//
// Group commit: whoever has its turn does the work of those too who wait in line by then,
// one after the other in one transaction, so that all share one flush to disk. If any of it
// fails, each is done again in a transaction of its own. So work may be called again, and
// in another goroutine, and must begin anew each time.
func (d *DB) Transact(ctx context.Context, k *Ticket, work func(context.Context, *sql.Tx) error) (err error) {
	k.work = work
	var taken []*Ticket
	defer func() { tell(taken, err) }()
	err = errPanicked // if it is not set anew
	err = d.Alone(ctx, k, d.Patience(), func(ctx context.Context) error {
		err := transact(ctx, d.Write, func(ctx context.Context, tx *sql.Tx) error {
			if err := work(ctx, tx); err != nil {
				return err
			}
			if taken == nil {
				taken = d.turn.take(mostTaken)
			}
			return all(ctx, tx, taken)
		})
		if err == nil || isBusy(err) || len(taken) == 0 {
			return err
		}
		for ; len(taken) > 0; taken = taken[1:] {
			tell(taken[:1], d.Retry(ctx, d.Patience(), func() error { return transact(ctx, d.Write, taken[0].work) }))
		}
		return transact(ctx, d.Write, work)
	})
	return err
}

// all does the work of all.
func all(ctx context.Context, tx *sql.Tx, taken []*Ticket) error {
	for _, each := range taken {
		if err := each.work(ctx, tx); err != nil {
			return err
		}
	}
	return nil
}

// tell says what came of it to those whose work was done.
func tell(taken []*Ticket, err error) {
	for _, each := range taken {
		each.err = err
		close(each.ready)
	}
}
