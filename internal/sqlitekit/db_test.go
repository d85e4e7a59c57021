package sqlitekit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// scripts are versions of a store of words: one that adds, and one with which older
// versions cannot work.
var scripts = []string{
	`CREATE TABLE words_schema (version INTEGER PRIMARY KEY, oldest INTEGER NOT NULL) STRICT;
	CREATE TABLE words (word TEXT NOT NULL) STRICT;
	INSERT INTO words_schema VALUES (1, 1);`,
	`CREATE INDEX words_word ON words (word); INSERT INTO words_schema VALUES (2, 1);`,
	`INSERT INTO words_schema VALUES (3, 3);`,
}

func settings(known int) Settings {
	return Settings{Schema: Schema{Versions: "words_schema", Scripts: scripts[:known]}}
}

func openAs(t *testing.T, path string, s Settings) *DB {
	t.Helper()
	d, err := Open(t.Context(), path, s)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

func newDB(t *testing.T) *DB {
	t.Helper()
	return openAs(t, filepath.Join(t.TempDir(), "test.db"), settings(1))
}

// openWork opens a database as an application does.
func openWork(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func execute(t *testing.T, db *sql.DB, query string) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), query)
	require.NoError(t, err)
}

func add(word string) func(context.Context, *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		_, err := In(tx, "INSERT INTO words VALUES (?)").ExecContext(ctx, word)
		return err
	}
}

func words(t *testing.T, d *DB) (n int) {
	t.Helper()
	require.NoError(t, d.Reading(t.Context(), func(ctx context.Context) error {
		return d.Read.QueryRowContext(ctx, "SELECT count(*) FROM words").Scan(&n)
	}))
	return n
}

func pragma(t *testing.T, db *sql.DB, name string) (value int) {
	t.Helper()
	require.NoError(t, db.QueryRow("PRAGMA "+name).Scan(&value))
	return value
}

func TestOpenPaths(t *testing.T) {
	names := []string{"plain.db", "with blanks and 100%.db", "a%20b", "ünïcode", "semi;colon&=+", "'quoted'", "-", " "}
	if runtime.GOOS != "windows" {
		names = append(names, "what?.db", "what?mode=memory", "frag#ment", `back\slash`, `"double"`, "line\nbreak", "\xff\xfe", "a:b")
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			d, err := Open(t.Context(), path, settings(1))
			require.NoError(t, err)
			require.NoError(t, d.Transact(t.Context(), &Ticket{}, add("one")))
			require.NoError(t, d.Close())
			entries, err := os.ReadDir(filepath.Dir(path))
			require.NoError(t, err)
			assert.Len(t, entries, 1, "the log is gone with the last connection")
			assert.Equal(t, 1, words(t, openAs(t, path, settings(1))))
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, []byte("this is no database, but it is long enough to have a header of one: "+
		"a hundred bytes are what SQLite reads first"), 0o600))
	for _, row := range []struct{ name, path, says string }{
		{"nothing", "", "is no file"},
		{"memory", ":memory:", "is no file"},
		{"URI", "file:x.db", "is a URI"},
		{"NUL", "a\x00b", "NUL"},
		{"missing directory", filepath.Join(dir, "missing", "x.db"), "the database's directory"},
		{"file as directory", filepath.Join(file, "x.db"), "directory"},
		{"directory", dir, "not a regular file"},
		{"no database", file, "not a database"},
	} {
		t.Run(row.name, func(t *testing.T) {
			d, err := Open(t.Context(), row.path, settings(1))
			require.ErrorContains(t, err, row.says)
			assert.Nil(t, d)
		})
	}
	_, err := Open(t.Context(), filepath.Join(dir, "missing", "x.db"), settings(1))
	require.ErrorIs(t, err, fs.ErrNotExist)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Open(ctx, filepath.Join(dir, "cancelled.db"), settings(1))
	require.ErrorIs(t, err, context.Canceled)
}

func TestNewRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "work.db")
	require.NoError(t, openAs(t, path, settings(1)).Close())
	for _, row := range []struct{ name, dsn, says string }{
		{"memory", ":memory:", "in memory"},
		{"another journal", "file:" + filepath.Join(t.TempDir(), "rollback.db"), "must be WAL"},
		{"synchronous off", path + "?_pragma=synchronous(OFF)", "must be FULL"},
		{"synchronous normal", path + "?_pragma=synchronous(NORMAL)", "must be FULL"},
		{"query only", path + "?_pragma=query_only(1)", "query_only"},
		{"read-only", "file:" + path + "?mode=ro", "read-only"},
	} {
		t.Run(row.name, func(t *testing.T) {
			d, err := New(t.Context(), openWork(t, row.dsn), settings(1))
			require.ErrorContains(t, err, row.says)
			assert.Nil(t, d)
		})
	}
}

// TestNewLeavesTheDatabase: what New was given is the caller's.
func TestNewLeavesTheDatabase(t *testing.T) {
	db := openWork(t, filepath.Join(t.TempDir(), "work.db")+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(1234)")
	db.SetMaxOpenConns(1)
	d, err := New(t.Context(), db, settings(1))
	require.NoError(t, err)
	assert.EqualValues(t, 1234, d.BusyTimeout)
	require.NoError(t, d.Close())
	execute(t, db, "INSERT INTO words VALUES ('mine')")
}

func TestOpenConverts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "old.db")
	old := openWork(t, path)
	execute(t, old, "CREATE TABLE other (x)")
	require.NoError(t, old.Close())
	d := openAs(t, path, settings(1))
	var mode string
	require.NoError(t, d.Work.QueryRow("PRAGMA journal_mode").Scan(&mode))
	assert.Equal(t, "wal", mode)
	execute(t, d.Work, "INSERT INTO other VALUES (1)")
}

// TestDurability: which connection flushes.
func TestDurability(t *testing.T) {
	d := newDB(t)
	const normal, full = 1, 2
	assert.Equal(t, full, pragma(t, d.Work, "synchronous"))
	assert.Equal(t, full, pragma(t, d.Write, "synchronous"))
	assert.Equal(t, normal, pragma(t, d.Sweeper, "synchronous"))
	assert.Equal(t, 0, pragma(t, d.Write, "busy_timeout"))
	assert.Equal(t, 1, pragma(t, d.Read, "query_only"))
	assert.Equal(t, 1, pragma(t, d.Work, "foreign_keys"))
}

func TestMoved(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("an open file can be neither moved nor removed")
	}
	for name, move := range map[string]func(path string) error{
		"removed": os.Remove,
		"renamed": func(path string) error { return os.Rename(path, path+".old") },
		"replaced": func(path string) error {
			return errors.Join(os.Rename(path, path+".old"), os.WriteFile(path, nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDB(t)
			assert.Equal(t, 0, words(t, d))
			require.NoError(t, move(d.File.Path))
			require.ErrorIs(t, d.Transact(t.Context(), &Ticket{}, add("lost")), ErrMoved)
			assert.Equal(t, 0, words(t, d), "what is known may be told")
		})
	}
}

// TestLocked: somebody else has the write lock.
func TestLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	other := openAs(t, path, settings(1))
	tx, err := other.Work.Begin()
	require.NoError(t, err)
	hasty := settings(1)
	hasty.BusyTimeout = -1
	d := openAs(t, path, hasty) // whose tables are there is opened without the lock
	require.ErrorIs(t, d.Transact(t.Context(), &Ticket{}, add("no")), ErrLocked)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- other.Transact(ctx, &Ticket{}, add("never")) }()
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	waits := make(chan error)
	go func() { waits <- other.Transact(t.Context(), &Ticket{}, add("later")) }()
	require.NoError(t, tx.Rollback())
	require.NoError(t, <-waits)
	assert.Equal(t, 1, words(t, d))

	// And in line.
	first := &Ticket{}
	require.NoError(t, d.Enter(t.Context(), first, d.Patience()+1e9))
	require.ErrorIs(t, d.Transact(t.Context(), &Ticket{}, add("no")), ErrLocked)
	d.Leave(first)
}

func TestTransact(t *testing.T) {
	d := newDB(t)
	failure := errors.New("no")
	require.ErrorIs(t, d.Transact(t.Context(), &Ticket{}, func(ctx context.Context, tx *sql.Tx) error {
		require.NoError(t, add("undone")(ctx, tx))
		return failure
	}), failure)
	assert.Equal(t, 0, words(t, d))
	require.NoError(t, d.Transact(t.Context(), &Ticket{}, add("done")))
	assert.Equal(t, 1, words(t, d))
	assert.Panics(t, func() {
		_ = d.Transact(t.Context(), &Ticket{}, func(context.Context, *sql.Tx) error { panic("at work") })
	})
	require.NoError(t, d.Transact(t.Context(), &Ticket{}, add("after a panic")))
}

func TestSweep(t *testing.T) {
	d := newDB(t)
	execute(t, d.Work, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300) INSERT INTO words SELECT i FROM n`)
	var batches []int
	sweep := func(limit int) int {
		n, err := d.Sweep(t.Context(), limit, func(ctx context.Context, tx *sql.Tx, most int) (int, error) {
			n, err := Affected(tx.ExecContext(ctx, "DELETE FROM words WHERE rowid IN (SELECT rowid FROM words LIMIT ?)", most))
			batches = append(batches, n)
			return n, err
		})
		require.NoError(t, err)
		return n
	}
	assert.Equal(t, 200, sweep(200))
	assert.Equal(t, []int{SweepBatch, SweepBatch, SweepBatch, 200 - 3*SweepBatch}, batches)
	assert.Equal(t, 100, sweep(200))
	assert.Equal(t, 0, sweep(200))

	tx, err := d.Work.Begin()
	require.NoError(t, err)
	assert.Equal(t, 0, sweep(10), "it does not wait for a transaction")
	require.NoError(t, tx.Rollback())
}

func TestClose(t *testing.T) {
	d := newDB(t)
	tx, err := d.Work.Begin()
	require.NoError(t, err)
	require.NoError(t, add("open")(t.Context(), tx))
	require.NoError(t, d.Close())
	require.NoError(t, d.Close())
	require.ErrorIs(t, d.Transact(t.Context(), &Ticket{}, add("no")), ErrClosed)
	require.ErrorIs(t, d.Reading(t.Context(), nil), ErrClosed)
	_, err = d.Sweep(t.Context(), 1, nil)
	require.ErrorIs(t, err, ErrClosed)
	require.NoError(t, tx.Commit())
	assert.Equal(t, 1, words(t, openAs(t, d.File.Path, settings(1))))
}

func TestSchema(t *testing.T) {
	s := ReadSchema("v", fstest.MapFS{
		"m/0002_b.sql": {Data: []byte("b")}, "m/0001_a.sql": {Data: []byte("a")}, "m/readme": {Data: []byte("no")},
	}, "m/*.sql")
	assert.Equal(t, Schema{Versions: "v", Scripts: []string{"a", "b"}}, s)
	for from, want := range []string{"a\nb", "b", ""} {
		text, err := s.From(from)
		require.NoError(t, err)
		assert.Equal(t, want, text)
	}
	for _, from := range []int{-1, 3} {
		_, err := s.From(from)
		require.ErrorIs(t, err, ErrSchema)
	}
}

// TestVersions is a rolling deploy: a newer version comes while an older one is at
// work, which works on, may be restarted, and may come back when the newer is gone.
func TestVersions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	older := openAs(t, path, settings(1))
	openAs(t, path, settings(2))
	require.NoError(t, older.Transact(t.Context(), &Ticket{}, add("older")))
	for i, known := range []int{1, 2, 1} {
		require.NoError(t, openAs(t, path, settings(known)).Close(), "restart %d", i)
	}
	openAs(t, path, settings(3))
	for _, known := range []int{1, 2} {
		_, err := Open(t.Context(), path, settings(known))
		require.ErrorIs(t, err, ErrSchema)
		_, err = New(t.Context(), older.Work, settings(known))
		require.ErrorIs(t, err, ErrSchema)
	}
}

// TestMigrationFails: all of it, or nothing.
func TestMigrationFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	bad := settings(1)
	bad.Schema.Scripts = []string{scripts[0], "CREATE TABLE half (x); SELECT nonsense FROM nowhere"}
	_, err := Open(t.Context(), path, bad)
	require.ErrorContains(t, err, "version 2 of the schema")
	assert.Equal(t, 0, words(t, openAs(t, path, settings(1))), "the first is made now, and was not before")
}

func TestManyOpenAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	var wait sync.WaitGroup
	for i := range 16 {
		wait.Go(func() {
			d, err := Open(t.Context(), path, settings(2))
			if assert.NoError(t, err) {
				assert.NoError(t, d.Transact(t.Context(), &Ticket{}, add(fmt.Sprint(i))))
				assert.NoError(t, d.Close())
			}
		})
	}
	wait.Wait()
	assert.Equal(t, 16, words(t, openAs(t, path, settings(2))))
}
