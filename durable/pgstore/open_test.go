package pgstore_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
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
			_, err := pgstore.New(t.Context(), pool, options)
			require.ErrorIs(t, err, pgstore.ErrSchema)
			row.make(t, func(text string) {
				_, err := pool.Exec(t.Context(), text)
				require.NoError(t, err)
			}, func() error { return pgstore.Migrate(t.Context(), pool, options) })
			store, err := pgstore.New(t.Context(), pool, options)
			require.NoError(t, err)
			applyAll(t, store, batch(0, 3))
		})
	}
}

// TestSchema has two stores in schemas of one database, which do not know of each other.
func TestSchema(t *testing.T) {
	t.Parallel()
	pool := newPool(t, postgrestest.Open(t), nil)
	var name string
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT current_schema()").Scan(&name))
	other := strings.ToUpper(name) + ` "other"`
	t.Cleanup(func() {
		_, _ = pool.Exec(context.Background(), `DROP SCHEMA IF EXISTS "`+strings.ReplaceAll(other, `"`, `""`)+`" CASCADE`)
	})
	first := newStore(t, pool)
	second, err := pgstore.New(t.Context(), pool, &pgstore.Options{Schema: other})
	require.NoError(t, err)
	applyAll(t, first, batch(0, 3))
	applyAll(t, second, batch(0, 5))
	for store, want := range map[*pgstore.Store]int{first: 3, second: 5} {
		claimed, err := store.Claim(t.Context(), claimOf("w", 100))
		require.NoError(t, err)
		assert.Len(t, claimed.Changes, want)
	}
	_, err = pool.Exec(t.Context(), `DROP SCHEMA "`+strings.ReplaceAll(other, `"`, `""`)+`" CASCADE`)
	require.NoError(t, err)
}

// TestInvalidSchema is refused before the database is asked.
func TestInvalidSchema(t *testing.T) {
	t.Parallel()
	for _, name := range []string{strings.Repeat("s", 64), "a\x00b", "\xff"} {
		options := &pgstore.Options{Schema: name}
		_, err := pgstore.New(t.Context(), nil, options)
		require.ErrorIs(t, err, driver.ErrInvalid)
		require.ErrorIs(t, pgstore.Migrate(t.Context(), nil, options), driver.ErrInvalid)
		_, err = pgstore.Schema(options, 0)
		require.ErrorIs(t, err, driver.ErrInvalid)
	}
}
