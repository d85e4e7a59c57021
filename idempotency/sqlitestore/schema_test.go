package sqlitestore

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency/internal/driver"
)

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

// TestOpen_newerTables: a newer version of the package has added a column. A store of this version goes on, and is started again, as
// in a rolling deploy, until the tables need newer programs. Package sqlitekit tests the versions.
func TestOpen_newerTables(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	older, err := Open(t.Context(), path)
	require.NoError(t, err)
	before, err := older.Reserve(t.Context(), internalClaim("before"))
	require.NoError(t, err)
	_, err = older.kit.Work.Exec(`ALTER TABLE idempotency_records ADD COLUMN note TEXT NOT NULL DEFAULT '';
		INSERT INTO idempotency_schema (version, oldest, applied) VALUES (2, 1, 0)`)
	require.NoError(t, err)
	outcome := driver.Outcome{Status: driver.Completed}
	require.NoError(t, older.Complete(t.Context(), before.Record.Lease(), outcome))
	restarted, err := Open(t.Context(), path)
	require.NoError(t, err)
	for _, store := range []*Store{older, restarted} {
		claim := internalClaim(driver.NewOwner())
		_, tx, err := store.Begin(t.Context(), claim, 0)
		require.NoError(t, err)
		require.NoError(t, tx.Commit(t.Context(), outcome))
		record, err := store.Load(t.Context(), claim.ID)
		require.NoError(t, err)
		assert.Equal(t, driver.Completed, record.Status)
	}
	_, err = older.kit.Work.Exec(`INSERT INTO idempotency_schema (version, oldest, applied) VALUES (3, 3, 0)`)
	require.NoError(t, err)
	_, err = Open(t.Context(), path)
	require.ErrorIs(t, err, ErrSchema)
	require.NoError(t, older.Close())
	require.NoError(t, restarted.Close())
}
