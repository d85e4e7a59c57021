package pgkit

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func errorOf(code string) error { return fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: code}) }

func TestRetry(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		err   error
		fails int // so often
		calls int
	}{
		{"no error: one call", nil, 0, 1},
		{"deadlock: retried", errorOf(DeadlockDetected), 2, 3},
		{"serialization failure: retried", errorOf(SerializationFailure), 2, 3},
		{"lock not available: retried", errorOf(LockNotAvailable), 2, 3},
		{"permanent deadlock: given up", errorOf(DeadlockDetected), 1000, Tries},
		{"unique violation: not retried", errorOf("23505"), 1000, 1},
		{"other error: not retried", errors.New("broken"), 1000, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				calls, began := 0, time.Now()
				err := Retry(t.Context(), func() error {
					if calls++; calls <= row.fails {
						return row.err
					}
					return nil
				})
				assert.Equal(t, row.calls, calls)
				if row.fails >= row.calls {
					require.ErrorIs(t, err, row.err)
				} else {
					require.NoError(t, err)
				}
				assert.LessOrEqual(t, time.Since(began), 1200*time.Millisecond)
			})
		})
	}
}

func TestRetry_endsWithContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	err := Retry(ctx, func() error {
		calls++
		cancel()
		return errorOf(DeadlockDetected)
	})
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, 1, calls)
}
