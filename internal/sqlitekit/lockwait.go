package sqlitekit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// ErrLocked means that SQLite's write lock was not free within
// Settings.BusyTimeout. Nothing was changed.
var ErrLocked = errors.New("sqlitestore: the write lock is not free")

const (
	defaultBusyTimeout = 10 * time.Second

	firstPause   = time.Millisecond
	longestPause = 4 * time.Millisecond
)

// LockTimeout returns the maximum time that a writer waits for the write lock.
func (d *DB) LockTimeout() time.Duration {
	if d.settings.BusyTimeout == 0 {
		return defaultBusyTimeout
	}
	return max(d.settings.BusyTimeout, 0)
}

// Enter waits in the queue of this store's writers, at most for timeout. After a
// nil error the caller must call Leave.
func (d *DB) Enter(ctx context.Context, w *Waiter, timeout time.Duration) error {
	return d.queue.enter(ctx, w, timeout)
}

// Leave lets the next writer of the queue write. It does nothing for a waiter that
// may not write.
func (d *DB) Leave(w *Waiter) { d.queue.leave(w) }

// Retry calls try until its error is not SQLITE_BUSY. The writers of this store
// wait in a queue (see Enter); the lock may still belong to another process or to
// a transaction of the application. The connections' busy timeout is 0, because
// SQLite waits without regard to a context.
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

// isBusy reports whether a lock kept the statement from doing anything.
func isBusy(err error) bool { return HasCode(err, sqlite3.SQLITE_BUSY) }

// HasCode reports whether err has one of SQLite's primary result codes.
func HasCode(err error, codes ...int) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && slices.Contains(codes, e.Code()&0xff)
}
