package pgstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/pgstore"
	"github.com/resilienthttp/resilienthttp/internal/postgrestest"
)

// crash is a point of an operation's life at which the server is killed.
type crash struct {
	name string

	// before is done while the server is alive. It returns what is then called on the
	// dead server, which must fail, and what must hold when the server is back.
	before func(t *testing.T, c *crashed) (dead func(ctx context.Context) error, after func(t *testing.T))
}

// crashed is a store of a server that is killed, with connections from before.
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
	{"in joined work", inJoinedWork},
	{"after joined work", afterJoinedWork},
}

// A server that is killed as by kill -9: what fails says so, and what was said to be
// done is there when the server is back.
func TestServerIsKilled(t *testing.T) {
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
	}, 10*time.Second, time.Millisecond)
	for _, store := range stores {
		// The server's children outlive it for a moment, each connection's by itself.
		failed := 0
		require.Eventually(t, func() bool {
			_, err := store.Load(context.Background(), newClaim("nobody's").ID)
			if failed++; errors.Is(err, idempotency.ErrNotFound) {
				failed = 0
			}
			return failed > 5
		}, 10*time.Second, time.Millisecond)
	}
	for _, r := range all {
		t.Run("dead/"+r.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			err := r.dead(ctx)
			require.Error(t, err)
			assert.NotErrorIs(t, err, context.DeadlineExceeded)
			assert.NotErrorIs(t, err, idempotency.ErrLeaseLost, "the database did not say so")
			assert.NotErrorIs(t, err, idempotency.ErrNotFound, "the database did not say so")
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
		assert.ErrorIs(t, err, idempotency.ErrNotFound)
		acquire(t, c.store, claim)
	}
}

func beforeComplete(t *testing.T, c *crashed) (dead func(context.Context) error, after func(*testing.T)) {
	lease := acquire(t, c.store, newClaim(t.Name()))
	complete := func(ctx context.Context) error { return c.store.Complete(ctx, lease, completed) }
	return complete, func(t *testing.T) {
		assert.Equal(t, idempotency.InProgress, statusOf(t, c.store, lease.ID), "the reservation was durable")
		require.NoError(t, complete(t.Context()), "the execution lives, and its lease still holds")
		assert.Equal(t, idempotency.Completed, statusOf(t, c.store, lease.ID))
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
		assert.Equal(t, idempotency.FailedRetryable, statusOf(t, c.store, lease.ID))
	}
}

func beforeBegin(t *testing.T, c *crashed) (dead func(context.Context) error, after func(*testing.T)) {
	lease := acquire(t, c.store, newClaim(t.Name()))
	begin := func(ctx context.Context) error {
		tx, err := c.store.Begin(ctx, lease, time.Minute)
		if err != nil {
			return err
		}
		return tx.Commit(ctx, completed)
	}
	return begin, func(t *testing.T) {
		require.NoError(t, begin(t.Context()))
		assert.Equal(t, idempotency.Completed, statusOf(t, c.store, lease.ID))
	}
}

func inJoinedWork(t *testing.T, c *crashed) (dead func(context.Context) error, after func(*testing.T)) {
	claim := newClaim(t.Name())
	claim.Joined = true
	lease := acquire(t, c.store, claim)
	tx, err := c.store.Begin(t.Context(), lease, time.Minute)
	require.NoError(t, err)
	require.NoError(t, insert(t.Context(), tx.Value(), claim.Key))
	commit := func(ctx context.Context) error { return tx.Commit(ctx, completed) }
	return commit, func(t *testing.T) {
		require.NoError(t, tx.Rollback(t.Context()), "there is nothing left to roll back")
		n, err := c.count(t.Context(), claim.Key)
		require.NoError(t, err)
		assert.Zero(t, n)
		record, err := c.store.Load(t.Context(), lease.ID)
		if err != nil {
			assert.ErrorIs(t, err, idempotency.ErrNotFound, "the reservation may be lost with the work")
			return
		}
		assert.Equal(t, idempotency.InProgress, record.Status)
	}
}

// A joined reservation is not flushed by itself, and yet is there with the work: the
// log is in order.
func afterJoinedWork(t *testing.T, c *crashed) (dead func(context.Context) error, after func(*testing.T)) {
	claim := newClaim(t.Name())
	claim.Joined = true
	lease := acquire(t, c.store, claim)
	tx, err := c.store.Begin(t.Context(), lease, time.Minute)
	require.NoError(t, err)
	require.NoError(t, insert(t.Context(), tx.Value(), claim.Key))
	require.NoError(t, tx.Commit(t.Context(), completed))
	load := func(ctx context.Context) error {
		_, err := c.store.Load(ctx, lease.ID)
		return err
	}
	return load, func(t *testing.T) {
		assert.Equal(t, idempotency.Completed, statusOf(t, c.store, lease.ID))
		n, err := c.count(t.Context(), claim.Key)
		require.NoError(t, err)
		assert.Equal(t, 1, n)
	}
}

// Connections that are terminated in the middle of joined work leave neither work
// nor outcome, and the next execution takes over as soon as the lease is over.
func TestConnectionIsKilledInJoinedWork(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, dsn string, store *pgstore.Store) {
		count := effects(t, dsn)
		pool := newPool(t, dsn, nil)
		claim := newClaim("terminated")
		claim.Joined, claim.Lease = true, time.Millisecond
		lease := acquire(t, store, claim)
		tx, err := store.Begin(t.Context(), lease, time.Minute)
		require.NoError(t, err)
		require.NoError(t, insert(t.Context(), tx.Value(), claim.Key))

		terminate(t, pool)
		require.Error(t, tx.Commit(t.Context(), completed))
		require.NoError(t, tx.Rollback(t.Context()))

		n, err := count(t.Context(), claim.Key)
		require.NoError(t, err)
		assert.Zero(t, n)
		next := claim
		next.Owner = idempotency.NewOwner()
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			reservation, err := store.Reserve(context.Background(), next)
			require.NoError(c, err)
			assert.Equal(c, idempotency.Acquired, reservation.Decision)
			assert.EqualValues(c, 2, reservation.Record.Generation)
		}, 10*time.Second, 10*time.Millisecond)
	})
}

// terminate ends the connections with an open transaction.
func terminate(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	var n int
	err := pool.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE application_name = current_setting('application_name') AND state = 'idle in transaction'`).Scan(&n)
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

// The server ends a transaction that does nothing for longer than Begin's limit.
func TestLimit(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, dsn string, store *pgstore.Store) {
		count := effects(t, dsn)
		claim := newClaim("limit")
		claim.Joined = true
		lease := acquire(t, store, claim)
		tx, err := store.Begin(t.Context(), lease, 10*time.Millisecond)
		require.NoError(t, err)
		require.NoError(t, insert(t.Context(), tx.Value(), claim.Key))
		pool := newPool(t, dsn, nil)
		require.Eventually(t, func() bool {
			var n int
			err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
				WHERE application_name = current_setting('application_name') AND state = 'idle in transaction'`).Scan(&n)
			return err == nil && n == 0
		}, 10*time.Second, 5*time.Millisecond)
		require.Error(t, tx.Commit(t.Context(), completed))
		n, err := count(t.Context(), claim.Key)
		require.NoError(t, err)
		assert.Zero(t, n)
		assert.Equal(t, idempotency.InProgress, statusOf(t, store, lease.ID))
	})
}
