package sqlitekit

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// writerQueue is the order in which a store's writers take SQLite's write lock: first the holders of leases, then the
// others, each in the order of arrival. A lease must not be lost because a claim waited before its renewal. SQLite's
// own waiting is not fair and does not end with a context. Writers of other processes and the application's own
// transactions are not in the queue: see DB.Retry.
type writerQueue struct {
	mu     sync.Mutex
	holder *Waiter
	queues [2][]*Waiter // holders of leases, and all others
	grants atomic.Uint64
}

// Waiter is a writer's position in the queue of its store. It is used once.
type Waiter struct {
	// HoldsLease reports whether the writer is the holder of a lease.
	HoldsLease bool

	// work is what the writer does in a transaction, if another writer may do it in
	// its own transaction. nil: the writer needs the lock for itself.
	work work

	ready chan struct{} // closed when the writer may write, or another has done its work
	taken bool          // another writer does the work; written before ready is closed
	err   error         // the result of that; written before ready is closed
}

// work is what is done in a transaction. It may be called again after a failure.
type work func(context.Context, *sql.Tx) error

func (w *Waiter) index() int {
	if w.HoldsLease {
		return 0
	}
	return 1
}

// Enter waits until w may write, at most for timeout. After a nil error the caller must call Leave, unless w was taken.
func (q *writerQueue) Enter(ctx context.Context, w *Waiter, timeout time.Duration) (err error) {
	w.ready = make(chan struct{})
	if q.join(w) {
		return nil
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = fmt.Errorf("%w after %v in the queue", ErrLocked, timeout)
	}
	if q.quit(w) {
		return err
	}
	<-w.ready // it was granted at the same moment, or another writer completes the work
	if w.taken {
		return nil
	}
	q.Leave(w)
	return err
}

// take removes up to limit waiters that let another writer do their work, in order.
func (q *writerQueue) take(limit int) []*Waiter {
	q.mu.Lock()
	defer q.mu.Unlock()
	var all []*Waiter
	for i, queue := range q.queues {
		q.queues[i] = slices.DeleteFunc(queue, func(w *Waiter) bool {
			if w.work == nil || len(all) == limit {
				return false
			}
			w.taken = true
			all = append(all, w)
			return true
		})
	}
	return all
}

// join adds w to the queue, and reports whether it may write at once.
func (q *writerQueue) join(w *Waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.holder == nil {
		q.grant(w)
		return true
	}
	q.queues[w.index()] = append(q.queues[w.index()], w)
	return false
}

func (q *writerQueue) quit(w *Waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	queue := &q.queues[w.index()]
	i := slices.Index(*queue, w)
	if i < 0 {
		return false
	}
	*queue = slices.Delete(*queue, i, i+1)
	return true
}

// Leave lets the next waiter write. It does nothing for a waiter that may not write.
func (q *writerQueue) Leave(w *Waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.holder != w {
		return
	}
	q.holder = nil
	for i, queue := range q.queues {
		if len(queue) > 0 {
			next := queue[0]
			q.queues[i] = slices.Delete(queue, 0, 1)
			q.grant(next)
			close(next.ready)
			return
		}
	}
}

func (q *writerQueue) grant(w *Waiter) {
	q.holder = w
	q.grants.Add(1)
}

// ErrLocked means that SQLite's write lock was not free within Settings.BusyTimeout. Nothing was changed.
var ErrLocked = errors.New("sqlitestore: the write lock is not free")

const (
	defaultBusyTimeout = 10 * time.Second

	firstPause   = time.Millisecond
	longestPause = 4 * time.Millisecond
)

// LockTimeout returns the maximum time that a writer waits for the write lock.
func (d *DB) LockTimeout() time.Duration {
	return max(cmp.Or(d.settings.BusyTimeout, defaultBusyTimeout), 0)
}

// Retry calls try until its error is not SQLITE_BUSY. The writers of this store wait in a queue (see Enter); the lock
// may still belong to another process or to a transaction of the application. The connections' busy timeout is 0,
// because SQLite waits without regard to a context.
func (d *DB) Retry(ctx context.Context, timeout time.Duration, try func() error) error {
	began := time.Now()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := try()
		if !isBusy(err) {
			return err
		}
		if time.Since(began) >= timeout {
			return fmt.Errorf("%w after %v: %w", ErrLocked, timeout, err)
		}
		if err := sleep.Context(ctx, pause); err != nil {
			return err
		}
	}
}

func isBusy(err error) bool { return HasCode(err, sqlite3.SQLITE_BUSY) }

// HasCode reports whether err has one of SQLite's primary result codes.
func HasCode(err error, codes ...int) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && slices.Contains(codes, e.Code()&0xff)
}

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
				taken = d.take(SweepBatch) // the first waits for the last
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
