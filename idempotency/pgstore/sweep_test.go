package pgstore_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency/pgstore"
)

// TestSweep_lockedRecords: locked records are left for the next sweep.
func TestSweep_lockedRecords(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, dsn string, store *pgstore.Store) {
		pool := newPool(t, dsn, nil)
		require.NoError(t, fill(t.Context(), pool, 10))
		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), `SELECT FROM idempotency_records ORDER BY expires LIMIT 3 FOR KEY SHARE`)
		require.NoError(t, err)

		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for _, want := range []int{4, 3, 0} {
			n, err := store.Sweep(ctx, 4)
			require.NoError(t, err)
			assert.Equal(t, want, n)
		}
		require.NoError(t, tx.Rollback(t.Context()))
		n, err := store.Sweep(ctx, 4)
		require.NoError(t, err)
		assert.Equal(t, 3, n)
	})
}
