package sqlitestore

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency/internal/driver"
	"github.com/resilienthttp/resilienthttp/internal/sqlitekit"
)

// TestBegin_activeOperation: claims for an operation with a transaction that is open
// or waits for its turn get InProgress at once. An ended wait leaves nothing behind.
func TestBegin_activeOperation(t *testing.T) {
	s := openInternal(t)
	decision := func(key string) driver.Decision {
		reserved, err := s.Reserve(t.Context(), internalClaim(key))
		require.NoError(t, err)
		began, tx, err := s.Begin(t.Context(), internalClaim(key), 0)
		require.NoError(t, err)
		assert.Nil(t, tx)
		assert.Equal(t, reserved.Decision, began.Decision)
		return began.Decision
	}
	first, tx, err := s.Begin(t.Context(), internalClaim("first"), 0)
	require.NoError(t, err)
	require.Equal(t, driver.Acquired, first.Decision)
	assert.Equal(t, driver.DecisionInProgress, decision("first"))

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, _, err := s.Begin(ctx, internalClaim("waits"), 0)
		ended <- err
	}()
	require.Eventually(t, func() bool { _, active := s.active.Load(driver.ID{Key: "waits"}); return active }, time.Minute, time.Millisecond)
	assert.Equal(t, driver.DecisionInProgress, decision("waits"))
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.NoError(t, tx.Rollback(t.Context()))
	s.active.Range(func(id, _ any) bool { t.Errorf("%v is still active", id); return true })
	for _, key := range []string{"first", "waits"} {
		reserved, err := s.Reserve(t.Context(), internalClaim(key))
		require.NoError(t, err)
		assert.Equal(t, driver.Acquired, reserved.Decision)
	}
}

// TestBegin_stress: transactions begin, end and are canceled at all moments. One at a
// time is open, and in the end none is active.
func TestBegin_stress(t *testing.T) {
	s, err := Options{}.Open(t.Context(), filepath.Join(t.TempDir(), "test.db"))
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	var wait sync.WaitGroup
	held := 0 // guarded by the queue of writers
	for i := range 8 {
		wait.Go(func() {
			for j := range 40 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration((i*j)%97)*100*time.Microsecond)
				_, tx, err := s.Begin(ctx, internalClaim([]string{"a", "b"}[i%2]), 0)
				cancel()
				if err != nil || tx == nil {
					continue
				}
				held++
				assert.Equal(t, 1, held)
				held--
				assert.NoError(t, tx.Rollback(t.Context()))
			}
		})
	}
	wait.Wait()
	s.active.Range(func(id, _ any) bool { t.Errorf("%v is still active", id); return true })
	require.NoError(t, s.kit.Enter(t.Context(), &sqlitekit.Waiter{}, 0), "the queue is free")
}
