package pgstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency/internal/driver"
	"github.com/resilienthttp/resilienthttp/idempotency/pgstore"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
)

// crash is a point of an operation's life at which the server is killed.
type crash struct {
	name string

	// before runs while the server is alive. It returns a call for the dead server, which
	// must fail, and a check for the time after the restart.
	before func(t *testing.T, c *crashed) (dead func(ctx context.Context) error, after func(t *testing.T))
}

// crashed is a store of a server that is killed, with its old connections.
type crashed struct {
	store *pgstore.Store
	count func(ctx context.Context, id string) (int, error)
}

var crashes = []crash{
	{"before Reserve", beforeReserve},
	{"between effect and Complete", beforeComplete},
	{"during Renew", duringRenew},
	{"before Release", beforeRelease},
	{"before Begin", beforeBegin},
	{"in transactional work", inTransactionalWork},
	{"after transactional work", afterTransactionalWork},
}

// TestStore_serverKilled kills the server (SIGKILL). Calls fail with an error, and what was
// confirmed exists after the restart.
func TestStore_serverKilled(t *testing.T) {
	server := postgrestest.StartTB(t)
	count := effects(t, server.DSN())
	type running struct {
		name  string
		dead  func(ctx context.Context) error
		after func(t *testing.T)
	}
	var all []running
	var stores []*pgstore.Store
	for _, f := range flavors {
		store := f.store(t, server.DSN())
		stores = append(stores, store)
		for _, c := range crashes {
			t.Run("alive/"+f.name+"/"+c.name, func(t *testing.T) {
				dead, after := c.before(t, &crashed{store, count})
				all = append(all, running{f.name + "/" + c.name, dead, after})
			})
		}
	}
	require.NoError(t, server.Crash())
	require.Eventually(t, func() bool {
		_, err := count(context.Background(), "")
		return err != nil
	}, patience, time.Millisecond)
	for _, store := range stores {
		// The processes of connections outlive the server for a moment.
		failed := 0
		require.Eventually(t, func() bool {
			_, err := store.Load(context.Background(), newClaim("absent").ID)
			if failed++; errors.Is(err, driver.ErrNotFound) {
				failed = 0
			}
			return failed > 5
		}, patience, time.Millisecond)
	}
	for _, r := range all {
		t.Run("dead/"+r.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			err := r.dead(ctx)
			require.Error(t, err)
			assert.NotErrorIs(t, err, context.DeadlineExceeded)
			assert.NotErrorIs(t, err, driver.ErrLeaseLost, "the database did not say so")
			assert.NotErrorIs(t, err, driver.ErrNotFound, "the database did not say so")
		})
	}
	require.NoError(t, server.Restart(t.Context()))
	for _, r := range all {
		t.Run("back/"+r.name, r.after)
	}
}

func beforeReserve(t *testing.T, c *crashed) (dead func(context.Context) error, after func(*testing.T)) {
	claim := newClaim(t.Name())
	reserve := func(ctx context.Context) error {
		_, err := c.store.Reserve(ctx, claim)
		return err
	}
	return reserve, func(t *testing.T) {
		_, err := c.store.Load(t.Context(), claim.ID)
		assert.ErrorIs(t, err, driver.ErrNotFound)
		acquire(t, c.store, claim)
	}
}

func beforeComplete(t *testing.T, c *crashed) (dead func(context.Context) error, after func(*testing.T)) {
	lease := acquire(t, c.store, newClaim(t.Name()))
	complete := func(ctx context.Context) error { return c.store.Complete(ctx, lease, completed) }
	return complete, func(t *testing.T) {
		assert.Equal(t, driver.InProgress, statusOf(t, c.store, lease.ID), "the reservation was durable")
		require.NoError(t, complete(t.Context()), "the execution lives, and its lease still holds")
		assert.Equal(t, driver.Completed, statusOf(t, c.store, lease.ID))
	}
}

func duringRenew(t *testing.T, c *crashed) (dead func(context.Context) error, after func(*testing.T)) {
	lease := acquire(t, c.store, newClaim(t.Name()))
	renew := func(ctx context.Context) error { return c.store.Renew(ctx, lease, time.Hour) }
	require.NoError(t, renew(t.Context()))
	return renew, func(t *testing.T) {
		require.NoError(t, renew(t.Context()))
		require.NoError(t, c.store.Complete(t.Context(), lease, completed))
	}
}

func beforeRelease(t *testing.T, c *crashed) (dead func(context.Context) error, after func(*testing.T)) {
	lease := acquire(t, c.store, newClaim(t.Name()))
	release := func(ctx context.Context) error { return c.store.Release(ctx, lease) }
	return release, func(t *testing.T) {
		require.NoError(t, release(t.Context()))
		assert.Equal(t, driver.FailedRetryable, statusOf(t, c.store, lease.ID))
	}
}

func beforeBegin(t *testing.T, c *crashed) (dead func(context.Context) error, after func(*testing.T)) {
	claim := newClaim(t.Name())
	begin := func(ctx context.Context) error {
		_, tx, err := c.store.Begin(ctx, claim, time.Minute)
		if err != nil {
			return err
		}
		return tx.Commit(ctx, completed)
	}
	return begin, func(t *testing.T) {
		require.NoError(t, begin(t.Context()))
		assert.Equal(t, driver.Completed, statusOf(t, c.store, claim.ID))
	}
}

func inTransactionalWork(t *testing.T, c *crashed) (dead func(context.Context) error, after func(*testing.T)) {
	record, tx := begin(t, c.store, t.Name())
	require.NoError(t, insert(t.Context(), tx.Value(), record.Key))
	commit := func(ctx context.Context) error { return tx.Commit(ctx, completed) }
	return commit, func(t *testing.T) {
		require.NoError(t, tx.Rollback(t.Context()), "nothing is left to roll back")
		wantRows(t, c.count, record.Key, 0)
		absent(t, c.store, record.ID)
		_, tx := begin(t, c.store, record.Key)
		require.NoError(t, tx.Commit(t.Context(), completed), "the operation is free")
	}
}

func afterTransactionalWork(t *testing.T, c *crashed) (dead func(context.Context) error, after func(*testing.T)) {
	record, tx := begin(t, c.store, t.Name())
	require.NoError(t, insert(t.Context(), tx.Value(), record.Key))
	require.NoError(t, tx.Commit(t.Context(), completed))
	load := func(ctx context.Context) error {
		_, err := c.store.Load(ctx, record.ID)
		return err
	}
	return load, func(t *testing.T) {
		assert.Equal(t, driver.Completed, statusOf(t, c.store, record.ID))
		wantRows(t, c.count, record.Key, 1)
	}
}

// TestBegin_limit: the server ends a transaction that is idle for longer than the limit.
func TestBegin_limit(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, dsn string, store *pgstore.Store) {
		count := effects(t, dsn)
		record, tx := idle(t, store, time.Second)
		pool := newPool(t, dsn, nil)
		require.Eventually(t, func() bool {
			var n int
			err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
				WHERE application_name = current_setting('application_name') AND state = 'idle in transaction'`).Scan(&n)
			return err == nil && n == 0
		}, patience, 5*time.Millisecond)
		require.Error(t, tx.Commit(t.Context(), completed))
		wantRows(t, count, record.Key, 0)
		absent(t, store, record.ID)
	})
}

// idle begins transactional work, which writes and then does nothing. If a slow machine
// needs longer than the limit for that, it begins again with more time.
func idle(t *testing.T, store *pgstore.Store, limit time.Duration) (driver.Record, driver.Transaction) {
	t.Helper()
	reservation, tx, err := store.Begin(t.Context(), newClaim("limit "+limit.String()), limit)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // otherwise the pool does not close
	err = insert(t.Context(), tx.Value(), reservation.Record.Key)
	if err == nil {
		return reservation.Record, tx
	}
	require.Less(t, limit, patience, "%v", err)
	return idle(t, store, 4*limit)
}
