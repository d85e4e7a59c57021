package sqlitekit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// group is the writers that wait while the first writes.
type group struct {
	d     *DB
	hold  chan struct{} // closed: the first ends its work
	first chan error
	given uint64
}

// begin lets the first writer begin its work.
func begin(t *testing.T, first func(context.Context, *sql.Tx) error) *group {
	t.Helper()
	l := &group{d: newDB(t), hold: make(chan struct{}), first: make(chan error, 1)}
	working := make(chan struct{}, 2)
	go func() {
		l.first <- l.d.Transact(t.Context(), &Waiter{}, func(ctx context.Context, tx *sql.Tx) error {
			working <- struct{}{}
			<-l.hold
			return first(ctx, tx)
		})
	}()
	<-working
	l.given = l.d.grants.Load()
	return l
}

// come adds a writer to the queue.
func (l *group) come(ctx context.Context, t *testing.T, work func(context.Context, *sql.Tx) error) chan error {
	t.Helper()
	before := l.length()
	ended := make(chan error, 1)
	go func() { ended <- l.d.Transact(ctx, &Waiter{}, work) }()
	require.Eventually(t, func() bool { return l.length() == before+1 }, time.Minute, 50*time.Microsecond)
	return ended
}

func (l *group) length() int {
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	return len(l.d.queues[0]) + len(l.d.queues[1])
}

// grants returns the number of writers after the first that were let write.
func (l *group) grants() int { return int(l.d.grants.Load() - l.given) }

// The work of waiting writers is done in the transaction before them.
func TestTransact_groupCommit(t *testing.T) {
	l := begin(t, add("first"))
	var all []chan error
	for i := range SweepBatch + 1 {
		all = append(all, l.come(t.Context(), t, add(fmt.Sprint(i))))
	}
	close(l.hold)
	require.NoError(t, <-l.first)
	for _, ended := range all {
		require.NoError(t, <-ended)
	}
	assert.Equal(t, 1, l.grants(), "the first transaction takes SweepBatch writers")
	assert.Equal(t, SweepBatch+2, words(t, l.d))
}

// A writer with work that fails gets the error, and undoes no other writer's work.
func TestTransact_oneOfAGroupFails(t *testing.T) {
	failure := errors.New("no")
	fails := func(ctx context.Context, tx *sql.Tx) error {
		if err := add("undone")(ctx, tx); err != nil {
			return err
		}
		return failure
	}
	t.Run("a taken writer: the others commit", func(t *testing.T) {
		l := begin(t, add("first"))
		before, bad, after := l.come(t.Context(), t, add("before")), l.come(t.Context(), t, fails), l.come(t.Context(), t, add("after"))
		close(l.hold)
		require.NoError(t, <-l.first)
		require.NoError(t, <-before)
		require.ErrorIs(t, <-bad, failure)
		require.NoError(t, <-after)
		assert.Equal(t, 3, words(t, l.d))
		assert.Zero(t, l.grants())
	})
	t.Run("the first writer: the next one writes for itself", func(t *testing.T) {
		l := begin(t, fails)
		after := l.come(t.Context(), t, add("after"))
		close(l.hold)
		require.ErrorIs(t, <-l.first, failure)
		require.NoError(t, <-after)
		assert.Equal(t, 1, words(t, l.d))
		assert.Equal(t, 1, l.grants(), "it failed before it took other writers")
	})
	t.Run("the transaction: each writer writes for itself", func(t *testing.T) {
		l := begin(t, add("first"))
		after := l.come(t.Context(), t, func(ctx context.Context, tx *sql.Tx) error {
			return errors.Join(add("after")(ctx, tx), tx.Rollback())
		})
		close(l.hold)
		require.NoError(t, <-l.first, "it is repeated in a transaction of its own")
		require.ErrorIs(t, <-after, sql.ErrTxDone)
		assert.Equal(t, 1, words(t, l.d))
	})
}

// Writers that were taken get an error when the work panics.
func TestTransact_panicInAGroup(t *testing.T) {
	d := newDB(t)
	hold, working, panicked, after := make(chan struct{}), make(chan struct{}), make(chan any), make(chan error, 1)
	l := &group{d: d}
	go func() {
		defer func() { panicked <- recover() }()
		_ = d.Transact(t.Context(), &Waiter{}, func(context.Context, *sql.Tx) error {
			close(working)
			<-hold
			return nil
		})
	}()
	<-working
	bad := l.come(t.Context(), t, func(context.Context, *sql.Tx) error { panic("at work") })
	go func() { after <- d.Transact(t.Context(), &Waiter{}, add("after")) }()
	require.Eventually(t, func() bool { return l.length() == 2 }, time.Minute, 50*time.Microsecond)
	close(hold)
	assert.Equal(t, "at work", <-panicked)
	require.ErrorIs(t, <-bad, errPanicked)
	require.ErrorIs(t, <-after, errPanicked)
	require.NoError(t, d.Transact(t.Context(), &Waiter{}, add("later")))
	assert.Equal(t, 1, words(t, d))
}

// If the context ends before the writer is taken, nothing is written. If it ends
// later, the writer gets the result of its work.
func TestTransact_contextEndsInAGroup(t *testing.T) {
	l := begin(t, add("first"))
	ctx, cancel := context.WithCancel(t.Context())
	never := l.come(ctx, t, add("never"))
	cancel()
	require.ErrorIs(t, <-never, context.Canceled)
	ctx, cancel = context.WithCancel(t.Context())
	taken := l.come(ctx, t, func(ctx context.Context, tx *sql.Tx) error {
		cancel()
		return add("taken")(ctx, tx)
	})
	close(l.hold)
	require.NoError(t, <-l.first)
	require.NoError(t, <-taken)
	assert.Equal(t, 2, words(t, l.d))
}

// Exclusive is not taken, and is let write in its order.
func TestTransact_exclusiveBesideAGroup(t *testing.T) {
	l := begin(t, add("first"))
	ended := make(chan error, 1)
	go func() {
		ended <- l.d.Exclusive(t.Context(), &Waiter{HoldsLease: true}, l.d.LockTimeout(), func(ctx context.Context) error {
			_, err := l.d.Write.ExecContext(ctx, "INSERT INTO words VALUES ('alone')")
			return err
		})
	}()
	require.Eventually(t, func() bool { return l.length() == 1 }, time.Minute, 50*time.Microsecond)
	after := l.come(t.Context(), t, add("after"))
	close(l.hold)
	require.NoError(t, <-l.first)
	require.NoError(t, <-ended)
	require.NoError(t, <-after)
	assert.Equal(t, 3, words(t, l.d))
	assert.Equal(t, 1, l.grants())
}

// fill adds a row of 4 KB.
func fill(ctx context.Context, d *DB) error {
	return d.Transact(ctx, &Waiter{}, func(ctx context.Context, tx *sql.Tx) error {
		_, err := In(tx, "INSERT INTO words VALUES (?)").ExecContext(ctx, fmt.Sprintf("%04000d", 0))
		return err
	})
}

// sweepAll deletes all but the newest rows.
func sweepAll(ctx context.Context, d *DB, keep int) (int, error) {
	return d.Sweep(ctx, 1<<20, func(ctx context.Context, tx *sql.Tx, limit int) (int, error) {
		return Affected(tx.ExecContext(ctx,
			"DELETE FROM words WHERE rowid IN (SELECT rowid FROM words WHERE rowid <= (SELECT max(rowid) FROM words) - ? LIMIT ?)", keep, limit))
	})
}

// On a volume of 12 MB, the log must leave room for the records: it is 4 MB, whatever was written and
// swept through it.
func TestLog_staysShort(t *testing.T) {
	d := newDB(t)
	longest := int64(0)
	for i := range 6000 {
		require.NoError(t, fill(t.Context(), d))
		if i%1000 == 999 {
			require.NoError(t, errOf(sweepAll(t.Context(), d, 100)))
		}
		log, err := os.Stat(d.File.Path + "-wal")
		require.NoError(t, err)
		longest = max(longest, log.Size())
	}
	assert.Less(t, longest, int64(5<<20))
}

// A full volume fails writes with SQLite's error, loses nothing, and is usable as soon as there is
// space again: in the open store, and after it was opened anew.
func TestFull_recovers(t *testing.T) {
	for _, reopened := range []bool{false, true} {
		t.Run(fmt.Sprint("reopened ", reopened), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "test.db")
			d := openAs(t, path, settings(1))
			execute(t, d.Write, "PRAGMA max_page_count = 100")
			stored := 0
			var err error
			for ; err == nil; stored++ {
				err = fill(t.Context(), d)
			}
			stored--
			require.True(t, HasCode(err, sqlite3.SQLITE_FULL), "%v", err)
			assert.Equal(t, stored, words(t, d))
			if reopened {
				require.NoError(t, d.Close())
				d = openAs(t, path, settings(1))
			}
			require.NoError(t, errOf(sweepAll(t.Context(), d, 10)))
			require.NoError(t, fill(t.Context(), d))
			assert.Equal(t, 11, words(t, d))
		})
	}
}

// A log that cannot grow is copied to the file, and the write is repeated.
func TestFull_shortensTheLog(t *testing.T) {
	d := newDB(t)
	require.NoError(t, fill(t.Context(), d))
	calls := 0
	require.NoError(t, d.Transact(t.Context(), &Waiter{}, func(ctx context.Context, tx *sql.Tx) error {
		if calls++; calls > 1 {
			return add("second")(ctx, tx)
		}
		log, err := os.Stat(d.File.Path + "-wal")
		require.NoError(t, err)
		require.NotZero(t, log.Size())
		require.NoError(t, errOf(tx.ExecContext(ctx, "PRAGMA max_page_count = 1")))
		_, err = tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO words VALUES ('%010000d')", 0))
		_, lifted := tx.ExecContext(ctx, "PRAGMA max_page_count = 1000000")
		require.NoError(t, lifted)
		return err
	}))
	assert.Equal(t, 2, calls)
	assert.Equal(t, 2, words(t, d))
}

// Retry pauses for 1, 2, 4, 4, ... ms while another connection has the write lock. It ends with
// its timeout, or with its context.
func TestRetry(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	tx, err := openAs(t, path, settings(1)).Work.Begin()
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback()) }()
	busy := transact(t.Context(), openAs(t, path, settings(1)).Write, add("no"))
	require.True(t, isBusy(busy))
	for _, row := range []struct {
		name     string
		deadline time.Duration
		err      error
		took     time.Duration
		tries    int
	}{
		{"the timeout: after 1 + 2 + 25 × 4 ms", time.Hour, ErrLocked, 103 * time.Millisecond, 28},
		{"the context ends during a pause: at once", 5 * time.Millisecond, context.DeadlineExceeded, 5 * time.Millisecond, 3},
		{"the context has ended: no try", 0, context.DeadlineExceeded, 0, 0},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), row.deadline)
			defer cancel()
			began, tries := time.Now(), 0
			err := new(DB).Retry(ctx, 100*time.Millisecond, func() error {
				tries++
				return busy
			})
			require.ErrorIs(t, err, row.err)
			require.Equal(t, row.took, time.Since(began))
			require.Equal(t, row.tries, tries)
		})
	}
}

// A sweep pauses after each batch, and ends with its context.
func TestSweep_pauses(t *testing.T) {
	d := newDB(t)
	one := func(context.Context, *sql.Tx, int) (int, error) { return 1, nil }
	for _, row := range []struct {
		name     string
		deadline time.Duration
		err      error
		took     time.Duration
		swept    int
	}{
		{"three batches: two pauses", time.Hour, nil, 2 * firstPause, 3},
		{"the context ends during a pause: at once", firstPause / 2, context.DeadlineExceeded, firstPause / 2, 1},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), row.deadline)
			defer cancel()
			began := time.Now()
			swept, err := d.Sweep(ctx, 3, one)
			require.ErrorIs(t, err, row.err)
			require.Equal(t, row.took, time.Since(began))
			require.Equal(t, row.swept, swept)
		})
	}
}
