package sqlitestore_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/sqlitestore"
	"github.com/resilienthttp/resilienthttp/durable/storetest"
)

func open(tb testing.TB, path string) *sqlitestore.Store {
	tb.Helper()
	store, err := sqlitestore.Open(tb.Context(), path)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, store.Close()) })
	return store
}

// within commits if work returns nil.
func within(t *testing.T, s durable.Store, work func(durable.Outbox) error) error {
	t.Helper()
	store := s.(*sqlitestore.Store)
	tx, err := store.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	if err := work(store.Within(tx)); err != nil {
		require.NoError(t, tx.Rollback())
		return err
	}
	return tx.Commit()
}

// TestOpened has two handles, as two processes have.
func TestOpened(t *testing.T) {
	t.Parallel()
	paths := make(map[durable.Store]string)
	storetest.Suite{
		Open: func(t *testing.T) durable.Store {
			path := filepath.Join(t.TempDir(), "test.db")
			store := open(t, path)
			paths[store] = path
			return store
		},
		Again:  func(t *testing.T, first durable.Store) durable.Store { return open(t, paths[first]) },
		Within: within,
	}.Run(t)
}

// TestNew runs the suite in a database of the work's, with a pool of one connection,
// whose transactions are deferred and which has no busy timeout.
func TestNew(t *testing.T) {
	t.Parallel()
	storetest.Suite{
		Open: func(t *testing.T) durable.Store {
			db, err := sql.Open("sqlite", "file:"+filepath.ToSlash(filepath.Join(t.TempDir(), "work.db"))+"?_pragma=journal_mode(WAL)")
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			db.SetMaxOpenConns(1)
			store, err := sqlitestore.New(t.Context(), db)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, store.Close()) })
			return store
		},
		Within: within,
	}.Run(t)
}
