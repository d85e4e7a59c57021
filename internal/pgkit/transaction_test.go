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

// TestTransact writes all or nothing.
func TestTransact(t *testing.T) {
	t.Parallel()
	pool := openPool(t)
	_, err := pool.Exec(t.Context(), "CREATE TABLE n (n integer UNIQUE)")
	require.NoError(t, err)
	insert := func(n int) *Statement {
		return &Statement{Text: "INSERT INTO n VALUES ($1)", Args: []any{n}}
	}
	broken := errors.New("broken")
	for _, row := range []struct {
		name string
		work func(tx *Transaction) error
		rows int
		want error
	}{
		{"committed", func(tx *Transaction) error { return tx.Commit(t.Context(), insert(1), insert(2)) }, 2, nil},
		{"in two trips", func(tx *Transaction) error {
			return errors.Join(tx.Send(t.Context(), insert(3)), tx.Commit(t.Context(), insert(4)))
		}, 2, nil},
		{"not committed", func(tx *Transaction) error { return tx.Send(t.Context(), insert(5)) }, 0, nil},
		{"given up", func(tx *Transaction) error { return errors.Join(tx.Send(t.Context(), insert(6)), broken) }, 0, broken},
		{"failed", func(tx *Transaction) error {
			if err := tx.Commit(t.Context(), insert(7), insert(7), insert(8)); !HasCode(err, "23505") {
				return err
			}
			return broken
		}, 0, broken},
		{"nothing", func(*Transaction) error { return nil }, 0, nil},
	} {
		count := func() (n int) {
			require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM n").Scan(&n))
			return n
		}
		n := count()
		require.ErrorIs(t, Transact(t.Context(), pool, "SELECT 1", row.work), row.want, row.name)
		assert.Equal(t, row.rows, count()-n, row.name)
	}
}

// TestTransact_keepsConnection expects the connection of a failed transaction back in
// the pool once in three tries: the rollback gets a second, and a machine may stall.
func TestTransact_keepsConnection(t *testing.T) {
	t.Parallel()
	pool := openPool(t)
	var before, after int
	for range 3 {
		err := Transact(t.Context(), pool, "", func(tx *Transaction) error {
			return tx.Send(t.Context(), &Statement{Text: "SELECT pg_backend_pid()", Scan: func(from Row) error { return from.Scan(&before) }},
				&Statement{Text: "SELECT 1 / 0"})
		})
		require.True(t, HasCode(err, "22012"), "%v", err)
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&after))
		if after == before {
			return
		}
	}
	assert.Equal(t, before, after)
}
