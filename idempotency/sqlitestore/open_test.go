package sqlitestore_test

import (
	"context"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/sqlitestore"
)

func TestOpen_relativePath(t *testing.T) {
	t.Chdir(t.TempDir())
	store := open(t, "here.db")
	t.Chdir(t.TempDir()) // later connections open the same file
	acquire(t, store, claimOf("key"))
	var wait sync.WaitGroup
	for range 20 {
		wait.Go(func() { assert.Equal(t, "in_progress", decisionOf(t, store, claimOf("key"))) })
	}
	wait.Wait()
}

// TestBegin_synchronous: Begin checks each connection of New's database.
func TestBegin_synchronous(t *testing.T) {
	db := openWork(t, filepath.Join(t.TempDir(), "work.db"), "")
	db.SetMaxOpenConns(1)
	store, err := sqlitestore.New(t.Context(), db)
	require.NoError(t, err)
	defer func() { _ = store.Close() }()
	execute(t, db, "PRAGMA synchronous(NORMAL)")
	_, _, err = store.Begin(t.Context(), claimOf("key"), 0)
	require.ErrorContains(t, err, "must be FULL")
	execute(t, db, "PRAGMA synchronous(EXTRA)")
	require.NoError(t, begin(t, store, "key").Rollback(t.Context()))
}

// TestCheck_schema: a table that does not fit is one sentence with what to run, at Check, Open and New. Package
// sqlitekit tests what else may not fit.
func TestCheck_schema(t *testing.T) {
	for _, column := range []string{"reference", "owner"} {
		t.Run(column, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "test.db")
			store := open(t, path)
			require.NoError(t, store.Check(t.Context()))
			execute(t, store.DB(), "ALTER TABLE idempotency_records RENAME COLUMN "+column+" TO other")
			_, opened := sqlitestore.Open(t.Context(), path)
			_, made := sqlitestore.New(t.Context(), store.DB())
			for _, err := range []error{store.Check(t.Context()), store.WithTx(nil).Check(t.Context()), opened, made} {
				require.ErrorIs(t, err, sqlitestore.ErrSchema)
				require.ErrorContains(t, err, "no column named "+column)
				assert.NotContains(t, err.Error(), "\n")
			}
		})
	}
}

func TestClose(t *testing.T) {
	store, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "test.db"))
	require.NoError(t, err)
	lease := acquire(t, store, claimOf("key"))
	require.NoError(t, store.Close())
	require.NoError(t, store.Close())
	for name, operation := range map[string]func(ctx context.Context) error{
		"Reserve": func(ctx context.Context) error { _, err := store.Reserve(ctx, claimOf("key")); return err },
		"Renew":   func(ctx context.Context) error { return store.Renew(ctx, lease, 1) },
		"Complete": func(ctx context.Context) error {
			return store.Complete(ctx, lease, idempotency.Outcome{Status: idempotency.Completed})
		},
		"Release": func(ctx context.Context) error { return store.Release(ctx, lease) },
		"Load":    func(ctx context.Context) error { _, err := store.Load(ctx, lease.ID); return err },
		"Sweep":   func(ctx context.Context) error { _, err := store.Sweep(ctx, 1); return err },
		"Begin":   func(ctx context.Context) error { _, _, err := store.Begin(ctx, claimOf("key"), 0); return err },
		"Reap":    func(ctx context.Context) error { _, err := store.Reap(ctx, 1); return err },
		"Unknown": func(ctx context.Context) error {
			for _, err := range store.Unknown(ctx, "") {
				return err
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) { require.ErrorIs(t, operation(t.Context()), sqlitestore.ErrClosed) })
	}
}

// TestClose_openTransaction: an open transaction may still be committed.
func TestClose_openTransaction(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	db := openWork(t, path, "")
	ledger(t, db)
	opened, err := sqlitestore.Open(t.Context(), path)
	require.NoError(t, err)
	made, err := sqlitestore.New(t.Context(), db)
	require.NoError(t, err)
	for key, store := range map[string]*sqlitestore.Store{"opened": opened, "made": made} {
		_, tx, err := store.Begin(t.Context(), claimOf(key), 0)
		require.NoError(t, err)
		require.NoError(t, write(t.Context(), tx.Value(), key))
		require.NoError(t, store.Close())
		require.NoError(t, tx.Commit(t.Context(), completed))
		requireRows(t, db, key, 1)
		assert.Equal(t, "done", decisionOf(t, open(t, path), claimOf(key)))
	}
}
