package sqlitekit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
	for i := range maxTaken + 1 {
		all = append(all, l.come(t.Context(), t, add(fmt.Sprint(i))))
	}
	close(l.hold)
	require.NoError(t, <-l.first)
	for _, ended := range all {
		require.NoError(t, <-ended)
	}
	assert.Equal(t, 1, l.grants(), "the first transaction takes maxTaken writers")
	assert.Equal(t, maxTaken+2, words(t, l.d))
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

// All writers of a group get ErrLocked while another connection has the lock.
func TestTransact_groupLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	hasty := settings(1)
	hasty.BusyTimeout = 20 * time.Millisecond
	d, other := openAs(t, path, hasty), openAs(t, path, settings(1))
	tx, err := other.Work.Begin()
	require.NoError(t, err)
	ended := make(chan error, 8)
	for i := range cap(ended) {
		go func() { ended <- d.Transact(t.Context(), &Waiter{}, add(fmt.Sprint(i))) }()
	}
	for range cap(ended) {
		require.ErrorIs(t, <-ended, ErrLocked)
	}
	require.NoError(t, tx.Rollback())
	assert.Zero(t, words(t, d))
}
