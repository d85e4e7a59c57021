package sqlitekit

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"time"
)

// writerQueue is the order in which a store's writers take SQLite's write lock: first the holders
// of leases, then the others, each in the order of arrival. A lease must not be lost because a
// claim waited before its renewal. SQLite's own waiting is not fair and does not end with a
// context. Writers of other processes and the application's own transactions are not in the
// queue: see DB.Retry.
type writerQueue struct {
	mu     sync.Mutex
	holder *Waiter
	queues [2][]*Waiter // holders of leases, and all others
	grants uint64
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

// enter waits until w may write. After a nil error the caller must call leave,
// unless w was taken.
func (q *writerQueue) enter(ctx context.Context, w *Waiter, timeout time.Duration) (err error) {
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
	q.leave(w)
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

// quit removes w from the queue, and reports whether it was still there.
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

// leave lets the next waiter write. It does nothing for a waiter that may not write.
func (q *writerQueue) leave(w *Waiter) {
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

// grant is called under the mutex.
func (q *writerQueue) grant(w *Waiter) {
	q.holder = w
	q.grants++
}

// count returns how many times a waiter was let write.
func (q *writerQueue) count() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.grants
}
