package pgstore_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
)

// TestBeatPastThePool: work of the same process that keeps all connections does not make
// its worker count as dead.
func TestBeatPastThePool(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Open(t)
	pool := newPool(t, dsn, func(c *pgxpool.Config) { c.MaxConns = 2 })
	store := newStore(t, pool)
	applyAll(t, store, batch(0, 1))
	claimed, err := store.Claim(t.Context(), claimOf("w", 1))
	require.NoError(t, err)
	require.Len(t, claimed.Changes, 1)
	for range 2 {
		conn, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		t.Cleanup(conn.Release)
	}

	other := newStore(t, newPool(t, dsn, nil))
	before := claimed.Now
	for _, lease := range []time.Duration{time.Second, time.Second, 9 * time.Second} { // the one that was claimed for is longer, and is replaced
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // the pool is never free
		now, err := store.Heartbeat(ctx, "w", lease)
		cancel()
		require.NoError(t, err)
		assert.True(t, now.After(before), "%v after %v", now, before)
		before = now
	}
	stats, err := other.Stats(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, stats.Workers)
	lost, err := other.Reap(t.Context(), 10)
	require.NoError(t, err)
	assert.Empty(t, lost)
}

// TestClaimsUnderOneName: a claim does not write the row of a worker with a new lease, because
// it would wait for the commits of other claims. Otherwise it extends the lease.
func TestClaimsUnderOneName(t *testing.T) {
	t.Parallel()
	pool := newPool(t, postgrestest.Open(t), nil)
	store := newStore(t, pool)
	for i, row := range []struct {
		name    string
		lease   time.Duration // before the claim
		written bool
	}{
		{"none", 0, true},
		{"a fresh one", 59 * time.Minute, false},
		{"one of which more than a tenth is over", 53 * time.Minute, true},
		{"one from before the clock was set back", 2 * time.Hour, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			in := order(i)
			worker := claimOf("w "+strconv.Itoa(i), 1)
			worker.ID = &in.ID
			if row.lease > 0 {
				require.NoError(t, errOf(store.Heartbeat(t.Context(), worker.Worker, row.lease)))
			}
			tx, err := pool.Begin(t.Context())
			require.NoError(t, err)
			require.NoError(t, errOf(tx.Exec(t.Context(), `SELECT FROM durable_worker WHERE id = $1 FOR UPDATE`, worker.Worker)))
			if row.written {
				require.NoError(t, tx.Rollback(t.Context()))
			} else {
				defer func() { assert.NoError(t, tx.Rollback(t.Context())) }() // it is not waited for
			}
			applyAll(t, store, batch(i, 1))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			claimed, err := store.Claim(ctx, worker)
			require.NoError(t, err)
			require.Len(t, claimed.Changes, 1)
			want := worker.Lease
			if !row.written {
				want = row.lease
			}
			assert.InDelta(t, want, claimed.Lease, float64(time.Minute))
			var expires time.Time
			require.NoError(t, pool.QueryRow(t.Context(), `SELECT expires_at FROM durable_worker WHERE id = $1`, worker.Worker).Scan(&expires))
			assert.Equal(t, claimed.Now.Add(claimed.Lease), expires.UTC())
		})
	}
}
