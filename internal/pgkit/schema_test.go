package pgkit

import (
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
)

// versions are those of a package that has come so far.
func versions(n, oldest int) *Schema {
	s := &Schema{Versions: "kit_schema", Steps: []Step{
		{"CREATE TABLE {{schema}}kit_schema (version integer PRIMARY KEY, oldest integer NOT NULL);\nCREATE TABLE {{schema}}one (a text);\n", 1},
		{"ALTER TABLE {{schema}}one ADD b text;\n", oldest},
	}}
	s.Steps = s.Steps[:n]
	return s
}

func openPool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), postgrestest.Open(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// TestVersions has packages of several versions meet tables of several versions.
func TestVersions(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name           string
		there          *Schema // nil: no tables
		schema         *Schema
		check, migrate bool // succeeds
		version        int  // afterwards
	}{
		{"no tables", nil, versions(1, 1), false, true, 1},
		{"no tables, two steps", nil, versions(2, 1), false, true, 2},
		{"the same", versions(1, 1), versions(1, 1), true, true, 1},
		{"older tables", versions(1, 1), versions(2, 1), false, true, 2},
		{"newer tables", versions(2, 1), versions(1, 1), true, true, 2},
		{"newer tables that older ones cannot work with", versions(2, 2), versions(1, 1), false, false, 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			pool := openPool(t)
			if row.there != nil {
				require.NoError(t, row.there.Migrate(t.Context(), Pool(pool)))
			}
			succeeds := func(want bool, err error) {
				if want {
					assert.NoError(t, err)
				} else {
					assert.ErrorIs(t, err, ErrSchema)
				}
			}
			succeeds(row.check, row.schema.Check(t.Context(), Pool(pool)))
			succeeds(row.migrate, row.schema.Migrate(t.Context(), Pool(pool)))
			if row.migrate {
				require.NoError(t, row.schema.Check(t.Context(), Pool(pool)))
			}
			var v int
			require.NoError(t, pool.QueryRow(t.Context(), "SELECT max(version) FROM kit_schema").Scan(&v))
			assert.Equal(t, row.version, v)
		})
	}
}

// TestMigrateTogether has many processes start at once, in a schema that is not there.
func TestMigrateTogether(t *testing.T) {
	t.Parallel()
	pool := openPool(t)
	s := versions(2, 1)
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT current_schema()").Scan(&s.Name))
	_, err := pool.Exec(t.Context(), "DROP SCHEMA "+s.Name)
	require.NoError(t, err)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { assert.NoError(t, s.Migrate(t.Context(), Pool(pool))) })
	}
	all.Wait()
	require.NoError(t, s.Check(t.Context(), Pool(pool)))
}

// TestFailedMigration leaves nothing behind.
func TestFailedMigration(t *testing.T) {
	t.Parallel()
	pool := openPool(t)
	s := versions(2, 1)
	s.Steps[1].Text = "ALTER TABLE nowhere ADD b text;\n"
	require.ErrorContains(t, s.Migrate(t.Context(), Pool(pool)), "migration 2")
	var n int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_class WHERE relnamespace = current_schema()::regnamespace").Scan(&n))
	assert.Zero(t, n)
}

// TestFrom is what another tool executes.
func TestFrom(t *testing.T) {
	t.Parallel()
	s := versions(2, 1)
	for from, want := range map[int]int{0: 5, 1: 2, 2: 0} {
		text, err := s.From(from)
		require.NoError(t, err)
		assert.Equal(t, want, strings.Count(text, ";\n"), text)
	}
	for _, from := range []int{-1, 3} {
		_, err := s.From(from)
		require.ErrorIs(t, err, ErrSchema)
	}
	s.Name = `a"b`
	text, err := s.From(0)
	require.NoError(t, err)
	assert.Contains(t, text, `CREATE SCHEMA IF NOT EXISTS "a""b";`)
	assert.Contains(t, text, `CREATE TABLE "a""b".one`)
}
