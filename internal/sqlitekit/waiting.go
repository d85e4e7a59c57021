package sqlitekit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// ErrLocked means that SQLite's write lock was not free within
// Settings.BusyTimeout: another process, a transaction of the work, or a long line
// of writers had it. Nothing was changed.
var ErrLocked = errors.New("sqlitestore: the write lock is not free")

const (
	defaultBusyTimeout = 10 * time.Second

	firstPause   = time.Millisecond
	longestPause = 4 * time.Millisecond
)

// Patience is how long a writer waits.
func (d *DB) Patience() time.Duration {
	if d.settings.BusyTimeout == 0 {
		return defaultBusyTimeout
	}
	return max(d.settings.BusyTimeout, 0)
}

// Enter waits in this store's line of writers for the ticket's turn, no longer than
// patience. Who gets nil must Leave.
func (d *DB) Enter(ctx context.Context, k *Ticket, patience time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := d.turn.enter(limited, k)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%w after %v in line", ErrLocked, patience)
	}
	return err
}

// Leave gives the turn to the next in line. For a ticket that does not have it, it
// does nothing.
func (d *DB) Leave(k *Ticket) { d.turn.leave(k) }

// Retry calls try until it meets no lock of others. Inside of this process writers
// stand in line (see Enter); those whom they may still meet are other processes and
// the work's own transactions. The connections' busy timeout is 0, because SQLite
// waits without regard to a context.
func (d *DB) Retry(ctx context.Context, patience time.Duration, try func() error) error {
	var waited time.Duration
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := try()
		if !isBusy(err) {
			return err
		}
		if waited >= patience {
			return fmt.Errorf("%w after %v: %w", ErrLocked, patience, err)
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		waited += pause
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// isBusy: the statement did nothing because of a lock.
func isBusy(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && e.Code()&0xff == sqlite3.SQLITE_BUSY
}
