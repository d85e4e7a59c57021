package pgkit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/dbtest/postgrestest"
)

// versions is the schema of a program with n steps, of which the last excludes programs before the oldest.
func versions(n, oldest int) *Schema {
	s := &Schema{Versions: "kit_schema", Steps: []string{
		"CREATE TABLE {{schema}}kit_schema (version integer PRIMARY KEY, oldest integer NOT NULL);\nCREATE TABLE {{schema}}one (a text);\n",
		"ALTER TABLE {{schema}}one ADD b text;\n",
	}[:n]}
	if oldest > 1 {
		s.Steps[n-1] += fmt.Sprintf("UPDATE {{schema}}kit_schema SET oldest = %d;\n", oldest)
	}
	return s
}

func openPool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), postgrestest.Open(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// TestSchema_versions migrates and checks tables of each version with programs of each
// version.
func TestSchema_versions(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name           string
		there          *Schema // nil: no tables
		schema         *Schema
		check, migrate bool // succeeds
		version        int  // afterwards
	}{
		{"no tables: made", nil, versions(1, 1), false, true, 1},
		{"no tables, two steps: made", nil, versions(2, 1), false, true, 2},
		{"same version: accepted", versions(1, 1), versions(1, 1), true, true, 1},
		{"older tables: upgraded", versions(1, 1), versions(2, 1), false, true, 2},
		{"newer compatible tables: accepted", versions(2, 1), versions(1, 1), true, true, 2},
		{"newer incompatible tables: rejected", versions(2, 2), versions(1, 1), false, false, 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			pool := openPool(t)
			if row.there != nil {
				require.NoError(t, row.there.Migrate(t.Context(), pool))
			}
			succeeds := func(want bool, err error) {
				if want {
					assert.NoError(t, err)
				} else {
					assert.ErrorIs(t, err, ErrSchema)
				}
			}
			succeeds(row.check, row.schema.Check(t.Context(), PGX(pool)))
			succeeds(row.migrate, row.schema.Migrate(t.Context(), pool))
			if row.migrate {
				require.NoError(t, row.schema.Check(t.Context(), PGX(pool)))
			}
			var v int
			require.NoError(t, pool.QueryRow(t.Context(), "SELECT max(version) FROM kit_schema").Scan(&v))
			assert.Equal(t, row.version, v)
		})
	}
}

// TestMigrate_concurrent starts many processes at once, in a schema that does not exist.
func TestMigrate_concurrent(t *testing.T) {
	t.Parallel()
	pool := openPool(t)
	s := versions(2, 1)
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT current_schema()").Scan(&s.Name))
	_, err := pool.Exec(t.Context(), "DROP SCHEMA "+s.Name)
	require.NoError(t, err)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { assert.NoError(t, s.Migrate(t.Context(), pool)) })
	}
	all.Wait()
	require.NoError(t, s.Check(t.Context(), PGX(pool)))
}

// TestLocate_searchPath finds the tables where the search path leads now, and keeps to them when it leads elsewhere.
func TestLocate_searchPath(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, given string // Schema.Name before
		there       bool   // one step was made in the schema "own"
		path        string
		want        string
	}{
		{"name is set: kept", "other", true, "own", "other"},
		{"tables in the first schema: found", "", true, "own, other", "own"},
		{"tables in the second schema: found", "", true, "other, own", "own"},
		{"no tables: the first schema that exists", "", false, "nowhere, other, own", "other"},
		{"no schema: none", "", true, "nowhere", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			pool := openPool(t)
			var own string
			require.NoError(t, pool.QueryRow(t.Context(), "SELECT current_schema()").Scan(&own))
			other := own + "_other"
			_, err := pool.Exec(t.Context(), "CREATE SCHEMA "+other)
			require.NoError(t, err)
			t.Cleanup(func() { _, _ = pool.Exec(context.Background(), "DROP SCHEMA "+other+" CASCADE") })
			if row.there {
				require.NoError(t, versions(1, 1).Migrate(t.Context(), pool))
			}
			named := strings.NewReplacer("own", own, "other", other)
			conn, err := pool.Acquire(t.Context())
			require.NoError(t, err)
			defer conn.Release()
			_, err = conn.Exec(t.Context(), "SET search_path = "+named.Replace(row.path))
			require.NoError(t, err)
			s := versions(2, 1)
			s.Name = named.Replace(row.given)
			require.NoError(t, s.Locate(t.Context(), PGX(conn.Conn())))
			require.Equal(t, named.Replace(row.want), s.Name)
			err = s.Migrate(t.Context(), conn.Conn())
			if row.want == "" {
				require.ErrorContains(t, err, "no schema")
				return
			}
			require.NoError(t, err)
			_, err = conn.Exec(t.Context(), "SET search_path = nowhere")
			require.NoError(t, err)
			require.NoError(t, s.Check(t.Context(), PGX(conn.Conn())))
			_, err = conn.Exec(t.Context(), s.Fill("SELECT b FROM {{schema}}one"))
			require.NoError(t, err)
		})
	}
}

func TestMigrate_failedStepLeavesNothing(t *testing.T) {
	t.Parallel()
	pool := openPool(t)
	s := versions(2, 1)
	s.Steps[1] = "ALTER TABLE nowhere ADD b text;\n"
	require.ErrorContains(t, s.Migrate(t.Context(), pool), "migration 2")
	var n int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_class WHERE relnamespace = current_schema()::regnamespace").Scan(&n))
	assert.Zero(t, n)
}

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

// TestCheck_foreignTables checks tables that another program made. A failed check leaves
// a transaction of the caller usable.
func TestCheck_foreignTables(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, change, want string }{
		{"column is missing: named", "ALTER TABLE one RENAME a TO b", `no column "a"`},
		{"column has another type: named", "ALTER TABLE one ALTER COLUMN a TYPE varchar(7)", `column "a" of table "one" is of type character varying, want text`},
		{"table is missing: named", "DROP TABLE one", `table "one" does not exist`},
		{"version table of another program: named", "ALTER TABLE kit_schema DROP COLUMN oldest", `no column "oldest"`},
		{"version table is missing: named", "DROP TABLE kit_schema", `"kit_schema" does not exist: run pgstore.Migrate`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			pool := openPool(t)
			s := versions(1, 1)
			s.Table, s.Columns = "one", map[string]string{"a": "text"}
			require.NoError(t, s.Migrate(t.Context(), pool))
			require.NoError(t, s.Check(t.Context(), PGX(pool)))
			_, err := pool.Exec(t.Context(), row.change)
			require.NoError(t, err)
			tx, err := pool.Begin(t.Context())
			require.NoError(t, err)
			defer tx.Rollback(context.Background()) //nolint:errcheck // It has committed, if the test passes.
			err = s.Check(t.Context(), PGX(tx))
			require.ErrorIs(t, err, ErrSchema)
			require.ErrorContains(t, err, row.want)
			require.ErrorContains(t, err, "run pgstore.Migrate")
			require.NoError(t, tx.Commit(t.Context()), "the caller's transaction is usable")
		})
	}
	t.Run("table of the same name exists: Migrate says so", func(t *testing.T) {
		t.Parallel()
		pool := openPool(t)
		_, err := pool.Exec(t.Context(), "CREATE TABLE one (b integer)")
		require.NoError(t, err)
		err = versions(1, 1).Migrate(t.Context(), pool)
		require.ErrorIs(t, err, ErrSchema)
		require.ErrorContains(t, err, "choose another name")
	})
}

func TestSchemaError(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]bool{"42P01": true, "42703": true, "23505": false} {
		err := SchemaError(errorOf(code))
		assert.Equal(t, want, errors.Is(err, ErrSchema), code)
		assert.True(t, HasCode(err, code))
	}
}
