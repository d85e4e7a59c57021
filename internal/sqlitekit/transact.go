package sqlitekit

import (
	"context"
	"database/sql"
	"errors"
)

// maxTaken is the maximum number of other writers in one transaction. It bounds the wait of the first for the last.
const maxTaken = 64

// errPanicked means that the work of another writer in the same transaction panicked.
var errPanicked = errors.New("sqlitestore: the work of another writer in the same transaction panicked")

// Transact calls work in a transaction on Write, commits if work returns nil, and
// rolls back otherwise. The transaction has the write lock from its beginning.
//
// It is a group commit: the writer also does the work of the writers that wait in the queue, in the same transaction
// and with one flush to disk. If any of them fails, each work is repeated in a transaction of its own. So work may be
// called again, and in another goroutine.
func (d *DB) Transact(ctx context.Context, w *Waiter, work func(context.Context, *sql.Tx) error) (err error) {
	w.work = work
	var taken []*Waiter
	defer func() { notify(taken, err) }()
	err = errPanicked // unless it is overwritten
	err = d.Exclusive(ctx, w, d.LockTimeout(), func(ctx context.Context) error {
		err := transact(ctx, d.Write, func(ctx context.Context, tx *sql.Tx) error {
			if err := work(ctx, tx); err != nil {
				return err
			}
			if taken == nil {
				taken = d.take(maxTaken)
			}
			for _, each := range taken {
				if err := each.work(ctx, tx); err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil || isBusy(err) || len(taken) == 0 {
			return err
		}
		for ; len(taken) > 0; taken = taken[1:] {
			notify(taken[:1], d.Retry(ctx, d.LockTimeout(), func() error { return transact(ctx, d.Write, taken[0].work) }))
		}
		return transact(ctx, d.Write, work)
	})
	return err
}

func notify(taken []*Waiter, err error) {
	for _, each := range taken {
		each.err = err
		close(each.ready)
	}
}
