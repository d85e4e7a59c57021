package sqlitestore

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency/internal/driver"
	"github.com/resilienthttp/resilienthttp/idempotency/internal/storetest"
	"github.com/resilienthttp/resilienthttp/internal/sqlitekit"
)

// later returns a later version, which adds.
func later() sqlitekit.Schema {
	s := schema()
	s.Scripts = append(s.Scripts,
		`ALTER TABLE idempotency_records ADD COLUMN note TEXT NOT NULL DEFAULT '';
		CREATE INDEX idempotency_records_owner ON idempotency_records (owner);
		INSERT INTO idempotency_schema (version, oldest, applied) VALUES (2, 1, 0);`)
	return s
}

// tables returns SQLite's description of the tables.
func tables(t *testing.T, db *sql.DB) []string {
	t.Helper()
	rows, err := db.Query("SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema ORDER BY name")
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	var all []string
	for rows.Next() {
		var kind, name, table, text string
		require.NoError(t, rows.Scan(&kind, &name, &table, &text))
		all = append(all, kind+" "+name+" "+table+" "+text)
	}
	require.NoError(t, rows.Err())
	return all
}

// TestSchema_anotherTool: another tool's execution of Schema makes the tables of Open,
// and Open changes nothing.
func TestSchema_anotherTool(t *testing.T) {
	made := openInternal(t)
	path := filepath.Join(t.TempDir(), "tool.db")
	db, err := sql.Open("sqlite", "file:"+path)
	require.NoError(t, err)
	defer func() { _ = db.Close() }()
	text, err := Schema(0)
	require.NoError(t, err)
	for range 2 { // it may be applied again
		_, err = db.Exec(text)
		require.NoError(t, err)
	}
	want := tables(t, made.kit.Work)
	assert.Equal(t, want, tables(t, db))
	require.Len(t, want, 5)

	version := pragma(t, db, "schema_version")
	s, err := Open(t.Context(), path)
	require.NoError(t, err)
	assert.Equal(t, version, pragma(t, db, "schema_version"), "Open has changed nothing")
	_, err = s.Reserve(t.Context(), internalClaim("key"))
	require.NoError(t, err)
	require.NoError(t, s.Close())

	// A tool that makes tables without rows.
	_, err = db.Exec("DELETE FROM idempotency_schema")
	require.NoError(t, err)
	s, err = Open(t.Context(), path)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	assert.Equal(t, want, tables(t, db))
}

// TestSchema_versions is a rolling deploy: while a newer version starts, the older one works. That it may restart and come back
// is a test of sqlitekit.
func TestSchema_versions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	openAs := func(known int) (*Store, error) {
		schema := later()
		schema.Scripts = schema.Scripts[:known]
		return Options{}.open(t.Context(), path, schema)
	}
	older, err := openAs(1)
	require.NoError(t, err)
	_, err = older.kit.Work.Exec("CREATE TABLE ledger (id TEXT NOT NULL) STRICT")
	require.NoError(t, err)
	before, err := older.Reserve(t.Context(), internalClaim("before"))
	require.NoError(t, err)
	newer, err := openAs(2)
	require.NoError(t, err)
	require.NoError(t, older.Complete(t.Context(), before.Record.Lease(), driver.Outcome{Status: driver.Completed}))

	t.Run("both at the same time", func(t *testing.T) {
		storetest.Suite{
			Open:   func(*testing.T) driver.Store { return older },
			Again:  func(*testing.T) driver.Store { return newer },
			Queues: true,
			Write: func(ctx context.Context, tx any, id string) error {
				_, err := tx.(*sql.Tx).ExecContext(ctx, "INSERT INTO ledger (id) VALUES (?)", id)
				return err
			},
			Count: func(ctx context.Context, id string) (n int, err error) {
				err = newer.kit.Work.QueryRowContext(ctx, "SELECT count(*) FROM ledger WHERE id = ?", id).Scan(&n)
				return n, err
			},
		}.Run(t)
	})
	require.NoError(t, older.Close())
	require.NoError(t, newer.Close())
}
