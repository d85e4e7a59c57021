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

// line is writers that come while the first is at work.
type line struct {
	d     *DB
	hold  chan struct{} // closed: the first ends its work
	first chan error
	given uint64
}

// begin has the first writer at work.
func begin(t *testing.T, first func(context.Context, *sql.Tx) error) *line {
	t.Helper()
	l := &line{d: newDB(t), hold: make(chan struct{}), first: make(chan error, 1)}
	working := make(chan struct{}, 2)
	go func() {
		l.first <- l.d.Transact(t.Context(), &Ticket{}, func(ctx context.Context, tx *sql.Tx) error {
			working <- struct{}{}
			<-l.hold
			return first(ctx, tx)
		})
	}()
	<-working
	l.given = l.d.turn.count()
	return l
}

// come is one more in line.
func (l *line) come(ctx context.Context, t *testing.T, work func(context.Context, *sql.Tx) error) chan error {
	t.Helper()
	before := l.length()
	ended := make(chan error, 1)
	go func() { ended <- l.d.Transact(ctx, &Ticket{}, work) }()
	require.Eventually(t, func() bool { return l.length() == before+1 }, time.Minute, 50*time.Microsecond)
	return ended
}

func (l *line) length() int {
	l.d.turn.mu.Lock()
	defer l.d.turn.mu.Unlock()
	return len(l.d.turn.lines[0]) + len(l.d.turn.lines[1])
}

// turns is how many of those who came had a turn of their own.
func (l *line) turns() int { return int(l.d.turn.count() - l.given) }

// TestGroupCommit: who waits in line has its work done in the transaction before it.
func TestGroupCommit(t *testing.T) {
	l := begin(t, add("first"))
	var all []chan error
	for i := range mostTaken + 1 {
		all = append(all, l.come(t.Context(), t, add(fmt.Sprint(i))))
	}
	close(l.hold)
	require.NoError(t, <-l.first)
	for _, ended := range all {
		require.NoError(t, <-ended)
	}
	assert.Equal(t, 1, l.turns(), "one was too many for the first transaction")
	assert.Equal(t, mostTaken+2, words(t, l.d))
}

// TestGroupFails: whose work fails, its own or for want of a lock, undoes nobody else's, and
// is told why.
func TestGroupFails(t *testing.T) {
	failure := errors.New("no")
	fails := func(ctx context.Context, tx *sql.Tx) error {
		if err := add("undone")(ctx, tx); err != nil {
			return err
		}
		return failure
	}
	t.Run("one that was taken", func(t *testing.T) {
		l := begin(t, add("first"))
		before, bad, after := l.come(t.Context(), t, add("before")), l.come(t.Context(), t, fails), l.come(t.Context(), t, add("after"))
		close(l.hold)
		require.NoError(t, <-l.first)
		require.NoError(t, <-before)
		require.ErrorIs(t, <-bad, failure)
		require.NoError(t, <-after)
		assert.Equal(t, 3, words(t, l.d))
		assert.Zero(t, l.turns())
	})
	t.Run("the first", func(t *testing.T) {
		l := begin(t, fails)
		after := l.come(t.Context(), t, add("after"))
		close(l.hold)
		require.ErrorIs(t, <-l.first, failure)
		require.NoError(t, <-after)
		assert.Equal(t, 1, words(t, l.d))
		assert.Equal(t, 1, l.turns(), "it failed before it took anybody")
	})
	t.Run("all of it", func(t *testing.T) {
		l := begin(t, add("first"))
		after := l.come(t.Context(), t, func(ctx context.Context, tx *sql.Tx) error {
			return errors.Join(add("after")(ctx, tx), tx.Rollback())
		})
		close(l.hold)
		require.NoError(t, <-l.first, "it is done again by itself")
		require.ErrorIs(t, <-after, sql.ErrTxDone)
		assert.Equal(t, 1, words(t, l.d))
	})
}

// TestGroupPanics: whoever panics tells those whose work it has taken.
func TestGroupPanics(t *testing.T) {
	d := newDB(t)
	hold, working, panicked, after := make(chan struct{}), make(chan struct{}), make(chan any), make(chan error, 1)
	l := &line{d: d}
	go func() {
		defer func() { panicked <- recover() }()
		_ = d.Transact(t.Context(), &Ticket{}, func(context.Context, *sql.Tx) error {
			close(working)
			<-hold
			return nil
		})
	}()
	<-working
	bad := l.come(t.Context(), t, func(context.Context, *sql.Tx) error { panic("at work") })
	go func() { after <- d.Transact(t.Context(), &Ticket{}, add("after")) }()
	require.Eventually(t, func() bool { return l.length() == 2 }, time.Minute, 50*time.Microsecond)
	close(hold)
	assert.Equal(t, "at work", <-panicked)
	require.ErrorIs(t, <-bad, errPanicked)
	require.ErrorIs(t, <-after, errPanicked)
	require.NoError(t, d.Transact(t.Context(), &Ticket{}, add("later")))
	assert.Equal(t, 1, words(t, d))
}

// TestGroupLeft: who leaves the line before its work is taken leaves nothing behind, and
// who leaves it later is told what came of the work.
func TestGroupLeft(t *testing.T) {
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

// TestGroupAlone: what must be alone is not taken, and comes in its turn.
func TestGroupAlone(t *testing.T) {
	l := begin(t, add("first"))
	ended := make(chan error, 1)
	go func() {
		ended <- l.d.Alone(t.Context(), &Ticket{Holds: true}, l.d.Patience(), func(ctx context.Context) error {
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
	assert.Equal(t, 1, l.turns())
}

// TestGroupLocked: where others keep the lock, all whose work was taken are told so.
func TestGroupLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	hasty := settings(1)
	hasty.BusyTimeout = 20 * time.Millisecond
	d, other := openAs(t, path, hasty), openAs(t, path, settings(1))
	tx, err := other.Work.Begin()
	require.NoError(t, err)
	ended := make(chan error, 8)
	for i := range cap(ended) {
		go func() { ended <- d.Transact(t.Context(), &Ticket{}, add(fmt.Sprint(i))) }()
	}
	for range cap(ended) {
		require.ErrorIs(t, <-ended, ErrLocked)
	}
	require.NoError(t, tx.Rollback())
	assert.Zero(t, words(t, d))
}
