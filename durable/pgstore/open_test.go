package pgstore_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
	"github.com/resilienthttp/resilienthttp/durable/pgstore"
	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
)

// TestNoMigration changes no tables, and works with those that another program has made.
func TestNoMigration(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		make func(t *testing.T, execute func(string), migrate func() error)
	}{
		{"Migrate", func(t *testing.T, _ func(string), migrate func() error) {
			t.Helper()
			require.NoError(t, migrate())
			require.NoError(t, migrate(), "again")
		}},
		{"Schema", func(t *testing.T, execute func(string), _ func() error) {
			t.Helper()
			text, err := pgstore.Schema(nil, 0)
			require.NoError(t, err)
			execute(text)
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t, postgrestest.Open(t), nil)
			options := &pgstore.Options{NoMigration: true}
			require.ErrorIs(t, errOf(pgstore.New(t.Context(), pool, options)), pgstore.ErrSchema)
			row.make(t, func(text string) {
				require.NoError(t, errOf(pool.Exec(t.Context(), text)))
			}, func() error { return pgstore.Migrate(t.Context(), pool, options) })
			store, err := pgstore.New(t.Context(), pool, options)
			require.NoError(t, err)
			applyAll(t, store, batch(0, 3))
		})
	}
}

// TestInvalidSchema is refused before the database is asked.
func TestInvalidSchema(t *testing.T) {
	t.Parallel()
	for _, name := range []string{strings.Repeat("s", 64), "a\x00b", "\xff"} {
		options := &pgstore.Options{Schema: name}
		require.ErrorIs(t, errOf(pgstore.New(t.Context(), nil, options)), driver.ErrInvalid)
		require.ErrorIs(t, pgstore.Migrate(t.Context(), nil, options), driver.ErrInvalid)
		require.ErrorIs(t, errOf(pgstore.Schema(options, 0)), driver.ErrInvalid)
	}
}

// errOf is the error of a call. The value does not matter.
func errOf[T any](_ T, err error) error { return err }
