package pgstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
)

// ending is a transaction of the caller's.
type ending struct {
	driver.Outbox

	commit, rollback func() error
}

// D6: what two transactions enqueue is there when each of them commits, in whichever order,
// and never before; what a third has enqueued and rolled back never is. No claim waits for
// any of them, and none has gone past what commits later under an earlier id.
func TestCommitsInReverseOrder(t *testing.T) {
	pool := newPool(t, postgrestest.Open(t), nil)
	store := newStore(t, pool)
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	for name, begin := range map[string]func() ending{
		"pgx": func() ending {
			tx, err := pool.Begin(t.Context())
			require.NoError(t, err)
			ctx := context.WithoutCancel(t.Context())
			return ending{store.WithTx(tx), func() error { return tx.Commit(ctx) }, func() error { return tx.Rollback(ctx) }}
		},
		"database/sql": func() ending {
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			return ending{store.WithSQLTx(tx), tx.Commit, tx.Rollback}
		},
	} {
		t.Run(name, func(t *testing.T) {
			claimed := func() (keys []string) {
				got, err := store.Claim(t.Context(), claimOf("w", 100))
				require.NoError(t, err)
				for i := range got.Changes {
					keys = append(keys, got.Changes[i].Record.ID.Key)
				}
				return keys
			}
			enqueue := func(o ending, key string) {
				in := order(0)
				in.Operation, in.Key = name, key
				receipt, err := o.Enqueue(t.Context(), in)
				require.NoError(t, err)
				assert.False(t, receipt.Existing)
			}
			first, second, never := begin(), begin(), begin()
			enqueue(first, "first")
			enqueue(never, "never")
			enqueue(second, "second")
			assert.Empty(t, claimed(), "nothing is committed")
			require.NoError(t, second.commit())
			assert.Equal(t, []string{"second"}, claimed())
			assert.Empty(t, claimed())
			require.NoError(t, first.commit())
			assert.Equal(t, []string{"first"}, claimed())
			require.NoError(t, never.rollback())
			assert.Empty(t, claimed())
		})
	}
}

// TestClaim_waitsForNoLock: what a transaction of the caller's keeps locked is passed over.
func TestClaim_waitsForNoLock(t *testing.T) {
	t.Parallel()
	pool := newPool(t, postgrestest.Open(t), nil)
	store := newStore(t, pool)
	applyAll(t, store, batch(0, 3))
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, store.WithTx(tx).Cancel(t.Context(), order(0).ID))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	claimed, err := store.Claim(ctx, claimOf("w", 100))
	require.NoError(t, err)
	assert.Len(t, claimed.Changes, 2)
	require.NoError(t, tx.Rollback(t.Context()))
	claimed, err = store.Claim(t.Context(), claimOf("w", 100))
	require.NoError(t, err)
	assert.Len(t, claimed.Changes, 1)
}
