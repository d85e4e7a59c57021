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

// scripts are the versions of a store of words. The second only adds, and the third
// excludes older versions of the package.
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

// openWork opens a database like an application.
func openWork(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func execute(t *testing.T, db *sql.DB, query string) {
	t.Helper()
	require.NoError(t, errOf(db.ExecContext(t.Context(), query)))
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

func TestOpen_paths(t *testing.T) {
	names := []string{"plain.db", "with blanks and 100%.db", "a%20b", "ünïcode", "semi;colon&=+", "'quoted'", "-", " "}
	if runtime.GOOS != "windows" {
		names = append(names, "what?.db", "what?mode=memory", "frag#ment", `back\slash`, `"double"`, "line\nbreak", "\xff\xfe", "a:b")
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			d, err := Open(t.Context(), path, settings(1))
			require.NoError(t, err)
			require.NoError(t, d.Transact(t.Context(), &Waiter{}, add("one")))
			require.NoError(t, d.Close())
			entries, err := os.ReadDir(filepath.Dir(path))
			require.NoError(t, err)
			assert.Len(t, entries, 1, "the last connection removes the write-ahead log")
			assert.Equal(t, 1, words(t, openAs(t, path, settings(1))))
		})
	}
}

func TestOpen_errors(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, []byte("this is no database, but it is long enough to have a header of one: "+
		"a hundred bytes are what SQLite reads first"), 0o600))
	for _, row := range []struct{ name, path, says string }{
		{"nothing", "", "is not a file"},
		{"memory", ":memory:", "is not a file"},
		{"URI", "file:x.db", "is a URI"},
		{"NUL", "a\x00b", "NUL byte"},
		{"missing directory", filepath.Join(dir, "missing", "x.db"), "directory of the database"},
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
	require.ErrorIs(t, errOf(Open(t.Context(), filepath.Join(dir, "missing", "x.db"), settings(1))), fs.ErrNotExist)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, errOf(Open(ctx, filepath.Join(dir, "canceled.db"), settings(1))), context.Canceled)
}

func TestNew_errors(t *testing.T) {
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

// Close does not close the application's database.
func TestNew_closeLeavesTheDatabase(t *testing.T) {
	db := openWork(t, filepath.Join(t.TempDir(), "work.db")+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(1234)")
	db.SetMaxOpenConns(1)
	d, err := New(t.Context(), db, settings(1))
	require.NoError(t, err)
	assert.EqualValues(t, 1234, d.BusyTimeout)
	require.NoError(t, d.Close())
	execute(t, db, "INSERT INTO words VALUES ('mine')")
}

func TestOpen_convertsTheJournal(t *testing.T) {
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

// Which connections flush.
func TestOpen_pragmas(t *testing.T) {
	d := newDB(t)
	const normal, full = 1, 2
	assert.Equal(t, full, pragma(t, d.Work, "synchronous"))
	assert.Equal(t, full, pragma(t, d.Write, "synchronous"))
	assert.Equal(t, normal, pragma(t, d.Sweeper, "synchronous"))
	assert.Equal(t, 0, pragma(t, d.Write, "busy_timeout"))
	assert.Equal(t, 1, pragma(t, d.Read, "query_only"))
	assert.Equal(t, 1, pragma(t, d.Work, "foreign_keys"))
}

func TestOpen_fileMode(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no mode")
	}
	models := t.TempDir()
	t.Setenv("TMPDIR", models)
	for _, row := range []struct {
		name     string
		existing fs.FileMode // 0: there is no file
		empty    bool
		want     fs.FileMode
	}{
		{"a new file: 0600", 0, false, 0o600},
		{"an existing file: its mode", 0o640, false, 0o640},
		{"an existing empty file: its mode", 0o660, true, 0o660},
	} {
		t.Run(row.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "test.db")
			if row.existing != 0 && row.empty {
				require.NoError(t, os.WriteFile(path, nil, row.existing))
			} else if row.existing != 0 {
				require.NoError(t, openAs(t, path, settings(1)).Close())
			}
			if row.existing != 0 {
				require.NoError(t, os.Chmod(path, row.existing))
			}
			d := openAs(t, path, settings(1))
			require.NoError(t, d.Transact(t.Context(), &Waiter{}, add("one")))
			for _, suffix := range []string{"", "-wal", "-shm"} {
				info, err := os.Stat(path + suffix)
				require.NoError(t, err)
				assert.Equal(t, row.want, info.Mode(), "payments.db"+suffix)
			}
		})
	}
	left, err := filepath.Glob(filepath.Join(models, "sqlitestore-*"))
	require.NoError(t, err)
	assert.Empty(t, left, "files that only gave their mode")
}

func TestCheck(t *testing.T) {
	for _, row := range []struct{ name, change, want string }{
		{"the tables fit: nil", "SELECT 1", ""},
		{"a newer version that excludes this one: ErrSchema", scripts[2],
			"it has version 3, which needs version 3 of the package, and this is version 2: update the program"},
		{"an older version: ErrSchema", "DELETE FROM words_schema WHERE version > 1",
			"it has version 1, must be 2 (0: there are no tables): execute the SQL of sqlitestore.Schema(1)"},
		{"no tables: ErrSchema", "DROP TABLE words; DROP TABLE words_schema",
			"it has version 0, must be 2 (0: there are no tables): execute the SQL of sqlitestore.Schema(0)"},
		{"a foreign table: ErrSchema", "ALTER TABLE words RENAME COLUMN word TO value",
			"rename it and words_schema, and execute the SQL of sqlitestore.Schema(0): SQL logic error: no such column: word"},
		{"a foreign version table: ErrSchema", "ALTER TABLE words_schema RENAME COLUMN oldest TO newest", "no such column: oldest"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := settings(2)
			s.Schema.Probes = []string{"UPDATE words SET word = word"}
			d := openAs(t, filepath.Join(t.TempDir(), "test.db"), s)
			execute(t, d.Work, row.change)
			execute(t, d.Work, "PRAGMA wal_checkpoint(TRUNCATE)")
			if err := d.Check(t.Context()); row.want != "" {
				require.ErrorIs(t, err, ErrSchema)
				require.ErrorContains(t, err, row.want)
				assert.NotContains(t, err.Error(), "\n")
			} else {
				require.NoError(t, err)
			}
			info, err := os.Stat(d.File.Path + "-wal")
			require.NoError(t, err)
			assert.Zero(t, info.Size(), "Check writes nothing")
		})
	}
	t.Run("Open of a foreign table: ErrSchema", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "test.db")
		s := settings(2)
		s.Schema.Probes = []string{"UPDATE words SET word = word"}
		execute(t, openWork(t, path), scripts[0]+"ALTER TABLE words RENAME COLUMN word TO value")
		_, err := Open(t.Context(), path, s) // version 2 makes an index
		require.ErrorIs(t, err, ErrSchema)
		require.ErrorContains(t, err, "no such column: word")
	})
}

// Another connection has the write lock.
func TestTransact_locked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	other := openAs(t, path, settings(1))
	tx, err := other.Work.Begin()
	require.NoError(t, err)
	impatient := settings(1)
	impatient.BusyTimeout = -1
	d := openAs(t, path, impatient) // Open does not need the lock if the tables exist
	require.ErrorIs(t, d.Transact(t.Context(), &Waiter{}, add("no")), ErrLocked)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- other.Transact(ctx, &Waiter{}, add("never")) }()
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	waits := make(chan error)
	go func() { waits <- other.Transact(t.Context(), &Waiter{}, add("later")) }()
	require.NoError(t, tx.Rollback())
	require.NoError(t, <-waits)
	assert.Equal(t, 1, words(t, d))

	// And in the queue.
	first := &Waiter{}
	require.NoError(t, d.Enter(t.Context(), first, d.LockTimeout()+1e9))
	require.ErrorIs(t, d.Transact(t.Context(), &Waiter{}, add("no")), ErrLocked)
	d.Leave(first)
}

func TestTransact(t *testing.T) {
	d := newDB(t)
	failure := errors.New("no")
	require.ErrorIs(t, d.Transact(t.Context(), &Waiter{}, func(ctx context.Context, tx *sql.Tx) error {
		require.NoError(t, add("undone")(ctx, tx))
		return failure
	}), failure)
	assert.Equal(t, 0, words(t, d))
	require.NoError(t, d.Transact(t.Context(), &Waiter{}, add("done")))
	assert.Equal(t, 1, words(t, d))
	assert.Panics(t, func() {
		_ = d.Transact(t.Context(), &Waiter{}, func(context.Context, *sql.Tx) error { panic("at work") })
	})
	require.NoError(t, d.Transact(t.Context(), &Waiter{}, add("after a panic")))
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
	assert.Equal(t, 0, sweep(10), "a sweep does not wait for a transaction")
	require.NoError(t, tx.Rollback())
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
		require.ErrorIs(t, errOf(s.From(from)), ErrSchema)
	}
}

// A rolling deploy: while a newer version starts, the older one works, may restart,
// and may come back after the newer one is gone.
func TestSchema_versions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	older := openAs(t, path, settings(1))
	openAs(t, path, settings(2))
	require.NoError(t, older.Transact(t.Context(), &Waiter{}, add("older")))
	for i, known := range []int{1, 2, 1} {
		require.NoError(t, openAs(t, path, settings(known)).Close(), "restart %d", i)
	}
	openAs(t, path, settings(3))
	for _, known := range []int{1, 2} {
		require.ErrorIs(t, errOf(Open(t.Context(), path, settings(known))), ErrSchema)
		require.ErrorIs(t, errOf(New(t.Context(), older.Work, settings(known))), ErrSchema)
	}
}

// A failed migration changes nothing.
func TestSchema_migrationFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	bad := settings(1)
	bad.Schema.Scripts = []string{scripts[0], "CREATE TABLE half (x); SELECT nonsense FROM nowhere"}
	require.ErrorContains(t, errOf(Open(t.Context(), path, bad)), "version 2 of the schema")
	assert.Equal(t, 0, words(t, openAs(t, path, settings(1))), "version 1 is made now")
}

func TestOpen_concurrent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	var wait sync.WaitGroup
	for i := range 16 {
		wait.Go(func() {
			d, err := Open(t.Context(), path, settings(2))
			if assert.NoError(t, err) {
				assert.NoError(t, d.Transact(t.Context(), &Waiter{}, add(fmt.Sprint(i))))
				assert.NoError(t, d.Close())
			}
		})
	}
	wait.Wait()
	assert.Equal(t, 16, words(t, openAs(t, path, settings(2))))
}

// errOf is the error of a call. The value does not matter.
func errOf[T any](_ T, err error) error { return err }
