package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// ErrLocked means that SQLite's write lock was not free within
// Options.BusyTimeout: another process, a transaction of the work, or a long line
// of writers had it. Nothing was changed.
var ErrLocked = errors.New("sqlitestore: the write lock is not free")

const (
	defaultBusyTimeout = 10 * time.Second

	firstPause   = time.Millisecond
	longestPause = 4 * time.Millisecond
)

func (s *Store) patience() time.Duration {
	if s.options.BusyTimeout == 0 {
		return defaultBusyTimeout
	}
	return max(s.options.BusyTimeout, 0)
}

// queue waits in this store's line of writers for the ticket's turn, no longer
// than patience. Who gets nil must leave.
func (s *Store) queue(ctx context.Context, k *ticket, patience time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := s.turn.enter(limited, k)
	if err != nil && limited.Err() != nil && ctx.Err() == nil && !errors.Is(err, errWorking) {
		return fmt.Errorf("%w after %v in line", ErrLocked, patience)
	}
	return err
}

// retry calls try until it meets no lock of others. Inside of this process writers
// stand in line (see turn); those whom they may still meet are other processes and
// the work's own transactions. The connections' busy timeout is 0, because SQLite
// waits without regard to a context.
func (s *Store) retry(ctx context.Context, patience time.Duration, try func() error) error {
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
