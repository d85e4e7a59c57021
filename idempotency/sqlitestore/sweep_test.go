package sqlitestore_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency/sqlitestore"
)

// fill writes completed, expired records with random keys in one transaction.
func fill(tb testing.TB, store *sqlitestore.Store, rows int) {
	tb.Helper()
	execute(tb, store.DB(), `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
		INSERT INTO idempotency_records (scope, operation, key, fingerprint, status, owner, generation,
			started, updated, lease_expires, takeover, expires, code, body)
		SELECT 'tenant', 'POST /charges', hex(randomblob(16)), 'v1:a', 2, 'owner', 1, 1, 1, 1, 0, i, 200, randomblob(100)
		FROM n`, rows)
}

func TestSweep_batches(t *testing.T) {
	store := newStore(t)
	fill(t, store, 1000)
	n, err := store.Sweep(t.Context(), 601)
	require.NoError(t, err)
	assert.Equal(t, 601, n)
	var oldest int
	require.NoError(t, store.DB().QueryRow("SELECT min(expires) FROM idempotency_records").Scan(&oldest))
	assert.Equal(t, 602, oldest, "the oldest go first")
	n, err = store.Sweep(t.Context(), 601)
	require.NoError(t, err)
	assert.Equal(t, 399, n)
	n, err = store.Sweep(t.Context(), 601)
	require.NoError(t, err)
	assert.Zero(t, n)
}

// TestSweep_amongTransactions: a sweep ends although the lock is never free for long.
func TestSweep_amongTransactions(t *testing.T) {
	store := newStore(t)
	fill(t, store, 200)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	op := benchmarkModes(t, store)["transactional"]
	go func() {
		defer close(ended)
		var keys atomic.Int64
		for ctx.Err() == nil {
			assert.NoError(t, op(benchmarkKey(&keys)))
		}
	}()
	defer func() { cancel(); <-ended }()
	for deadline := time.Now().Add(time.Minute); ; {
		_, err := store.Sweep(t.Context(), 100)
		require.NoError(t, err)
		if n := 0; store.DB().QueryRow("SELECT count(*) FROM idempotency_records WHERE expires <= 200").Scan(&n) == nil && n == 0 {
			return
		}
		require.Less(t, time.Now(), deadline)
	}
}
