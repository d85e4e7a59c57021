package sqlitekit

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

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
		{"three batches: two pauses", time.Hour, nil, 2 * sweepPause, 3},
		{"the context ends during a pause: at once", sweepPause / 2, context.DeadlineExceeded, sweepPause / 2, 1},
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
