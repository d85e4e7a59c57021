package sqlitestore_test

import (
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

func newStore(tb testing.TB) *sqlitestore.Store {
	tb.Helper()
	return open(tb, filepath.Join(tb.TempDir(), "test.db"))
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

func TestStore(t *testing.T) {
	storetest.Suite{
		Open:   func(t *testing.T) durable.Store { return newStore(t) },
		Within: within,
	}.Run(t)
}
