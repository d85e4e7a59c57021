package sqlitestore_test

import (
	"context"
	"database/sql"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency/internal/driver"
	"github.com/resilienthttp/resilienthttp/idempotency/sqlitestore"
)

func TestOpen_paths(t *testing.T) {
	names := []string{"plain.db", "with blanks and 100%.db", "a%20b", "ünïcode", "semi;colon&=+", "'quoted'", "-", " "}
	if runtime.GOOS != "windows" {
		names = append(names, "what?.db", "what?mode=memory", "frag#ment", `back\slash`, `"double"`, "line\nbreak", "\xff\xfe", "a:b")
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, name)
			store, err := sqlitestore.Open(t.Context(), path)
			require.NoError(t, err)
			claim := claimOf("key")
			acquire(t, store, claim)
			require.NoError(t, store.Close())
			require.FileExists(t, path)
			entries, err := os.ReadDir(dir)
			require.NoError(t, err)
			assert.Len(t, entries, 1, "the last connection removes the other files")

			// It is the same file.
			_, err = open(t, path).Load(t.Context(), claim.ID)
			require.NoError(t, err)
		})
	}
}

func TestOpen_relativePath(t *testing.T) {
	t.Chdir(t.TempDir())
	store := open(t, "here.db")
	t.Chdir(t.TempDir()) // later connections open the same file
	acquire(t, store, claimOf("key"))
	var wait sync.WaitGroup
	for range 20 {
		wait.Go(func() { assert.Equal(t, "in_progress", decisionOf(t, store, claimOf("key"))) })
	}
	wait.Wait()
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
			store, err := sqlitestore.Open(t.Context(), row.path)
			require.ErrorContains(t, err, row.says)
			assert.Nil(t, store)
		})
	}
	_, err := sqlitestore.Open(t.Context(), filepath.Join(dir, "missing", "x.db"))
	require.ErrorIs(t, err, fs.ErrNotExist)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = sqlitestore.Open(ctx, filepath.Join(dir, "canceled.db"))
	require.ErrorIs(t, err, context.Canceled)
}

func TestNew_errors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "work.db")
	require.NoError(t, open(t, path).Close())
	rollback := filepath.Join(t.TempDir(), "rollback.db")
	for _, row := range []struct{ name, dsn, says string }{
		{"memory", ":memory:", "in memory"},
		{"another journal", "file:" + rollback, "must be WAL"},
		{"synchronous off", path + "?_pragma=synchronous(OFF)", "must be FULL"},
		{"synchronous normal", path + "?_pragma=synchronous(NORMAL)", "must be FULL"},
		{"query only", path + "?_pragma=query_only(1)", "query_only"},
		{"read-only", "file:" + path + "?mode=ro", "read-only"},
	} {
		t.Run(row.name, func(t *testing.T) {
			db, err := sql.Open("sqlite", row.dsn)
			require.NoError(t, err)
			defer func() { _ = db.Close() }()
			store, err := sqlitestore.New(t.Context(), db)
			require.ErrorContains(t, err, row.says)
			assert.Nil(t, store)
		})
	}
}

// TestNew_closeLeavesTheDatabase: Close does not close the application's database.
func TestNew_closeLeavesTheDatabase(t *testing.T) {
	db := openWork(t, filepath.Join(t.TempDir(), "work.db"), "_pragma=busy_timeout(1234)")
	db.SetMaxOpenConns(1)
	ledger(t, db)
	store, err := sqlitestore.New(t.Context(), db)
	require.NoError(t, err)
	assert.Same(t, db, store.DB())

	tx := begin(t, store, "key")
	require.NoError(t, write(t.Context(), tx.Value(), "key"))
	require.NoError(t, tx.Commit(t.Context(), completed))
	var timeout int
	require.NoError(t, db.QueryRow("PRAGMA busy_timeout").Scan(&timeout))
	assert.Equal(t, 1234, timeout, "the connection's own busy timeout")

	require.NoError(t, store.Close())
	n, err := count(t.Context(), db, "key")
	require.NoError(t, err)
	assert.Equal(t, 1, n)
}

// TestBegin_synchronous: Begin checks each connection of New's database.
func TestBegin_synchronous(t *testing.T) {
	db := openWork(t, filepath.Join(t.TempDir(), "work.db"), "")
	db.SetMaxOpenConns(1)
	store, err := sqlitestore.New(t.Context(), db)
	require.NoError(t, err)
	defer func() { _ = store.Close() }()
	execute(t, db, "PRAGMA synchronous(NORMAL)")
	_, _, err = store.Begin(t.Context(), claimOf("key"), 0)
	require.ErrorContains(t, err, "must be FULL")
	execute(t, db, "PRAGMA synchronous(EXTRA)")
	require.NoError(t, begin(t, store, "key").Rollback(t.Context()))
}

func TestOpen_convertsTheJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "old.db")
	old, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	execute(t, old, "CREATE TABLE other (x)")
	require.NoError(t, old.Close())

	store := open(t, path)
	var mode string
	require.NoError(t, store.DB().QueryRow("PRAGMA journal_mode").Scan(&mode))
	assert.Equal(t, "wal", mode)
	execute(t, store.DB(), "INSERT INTO other VALUES (1)")
}

// TestCheck_schema: a schema that does not fit is one sentence with what to run, at
// Check, Open and New.
func TestCheck_schema(t *testing.T) {
	const records = "ALTER TABLE idempotency_records "
	for _, row := range []struct {
		name, change, want string
		opens              bool // Open and New make what is missing
	}{
		{"newer: update the program", "INSERT INTO idempotency_schema VALUES (1000, 1000, 0)", "update the program", false},
		{"missing: execute Schema(0)", "DROP TABLE idempotency_records; DROP TABLE idempotency_schema",
			"execute the SQL of sqlitestore.Schema(0)", true},
		{"older: execute Schema(0)", "DELETE FROM idempotency_schema", "execute the SQL of sqlitestore.Schema(0)", true},
		{"foreign, a column is missing: rename it", records + "DROP COLUMN reference", "no column named reference", false},
		{"foreign, a column has another name: rename it", records + "RENAME COLUMN owner TO holder", "no column named owner", false},
		{"foreign version table: rename it", "ALTER TABLE idempotency_schema RENAME COLUMN oldest TO newest", "no such column: oldest", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "test.db")
			store := open(t, path)
			require.NoError(t, store.Check(t.Context()))
			execute(t, store.DB(), row.change)
			errs := []error{store.Check(t.Context()), store.WithTx(nil).Check(t.Context())}
			opened, err := sqlitestore.Open(t.Context(), path)
			if row.opens {
				require.NoError(t, err)
				require.NoError(t, opened.Close())
				require.NoError(t, store.Check(t.Context()), "Open has made the tables")
			} else {
				_, err2 := sqlitestore.New(t.Context(), store.DB())
				errs = append(errs, err, err2)
			}
			for _, err := range errs {
				require.ErrorIs(t, err, sqlitestore.ErrSchema)
				require.ErrorContains(t, err, row.want)
				assert.NotContains(t, err.Error(), "\n")
			}
		})
	}
}

// TestOpen_fileMode: a new database file, its -wal and its -shm are private. An
// existing file keeps its mode.
func TestOpen_fileMode(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no mode")
	}
	path := filepath.Join(t.TempDir(), "test.db")
	for _, want := range []fs.FileMode{0o600, 0o640} {
		store, err := sqlitestore.Open(t.Context(), path)
		require.NoError(t, err)
		acquire(t, store, claimOf(want.String()))
		for _, suffix := range []string{"", "-wal", "-shm"} {
			info, err := os.Stat(path + suffix)
			require.NoError(t, err)
			assert.Equal(t, want, info.Mode(), suffix)
		}
		require.NoError(t, store.Close())
		require.NoError(t, os.Chmod(path, 0o640))
	}
}

// TestOpen_besideAWriter: Open does not need the write lock if the tables exist.
func TestOpen_besideAWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	first := open(t, path)
	tx, err := first.DB().Begin()
	require.NoError(t, err)
	defer tx.Rollback() //nolint:errcheck // it has written nothing
	store, err := sqlitestore.Options{BusyTimeout: -1}.Open(t.Context(), path)
	require.NoError(t, err)
	_, err = store.Reserve(t.Context(), claimOf("key"))
	require.ErrorIs(t, err, sqlitestore.ErrLocked, "a transaction of DB is immediate")
	require.NoError(t, store.Close())
}

func TestOpen_concurrent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	var wait sync.WaitGroup
	var mu sync.Mutex
	decisions := map[string]int{}
	for range 16 {
		wait.Go(func() {
			store, err := sqlitestore.Open(t.Context(), path)
			if !assert.NoError(t, err) {
				return
			}
			defer func() { _ = store.Close() }()
			decision := decisionOf(t, store, claimOf("contested"))
			mu.Lock()
			defer mu.Unlock()
			decisions[decision]++
		})
	}
	wait.Wait()
	assert.Equal(t, map[string]int{"acquired": 1, "in_progress": 15}, decisions)
}

// TestOpen_concurrentProcesses: processes create the file and its tables at the same
// time.
func TestOpen_concurrentProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	all := make([]*child, 8)
	for i := range all {
		all[i] = startChild(t, "race", path)
	}
	for _, c := range all {
		require.Equal(t, "ready", c.line(t))
	}
	for _, c := range all {
		c.start()
	}
	decisions := map[string]int{}
	for _, c := range all {
		decisions[c.line(t)]++
	}
	for _, c := range all {
		require.NoError(t, c.Wait())
	}
	assert.Equal(t, map[string]int{"acquired": 1, "in_progress": len(all) - 1}, decisions)
}

func TestClose(t *testing.T) {
	store, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "test.db"))
	require.NoError(t, err)
	lease := acquire(t, store, claimOf("key"))
	require.NoError(t, store.Close())
	require.NoError(t, store.Close())
	for name, operation := range map[string]func(ctx context.Context) error{
		"Reserve": func(ctx context.Context) error { _, err := store.Reserve(ctx, claimOf("key")); return err },
		"Renew":   func(ctx context.Context) error { return store.Renew(ctx, lease, 1) },
		"Complete": func(ctx context.Context) error {
			return store.Complete(ctx, lease, driver.Outcome{Status: driver.Completed})
		},
		"Release": func(ctx context.Context) error { return store.Release(ctx, lease) },
		"Load":    func(ctx context.Context) error { _, err := store.Load(ctx, lease.ID); return err },
		"Sweep":   func(ctx context.Context) error { _, err := store.Sweep(ctx, 1); return err },
		"Begin":   func(ctx context.Context) error { _, _, err := store.Begin(ctx, claimOf("key"), 0); return err },
		"Reap":    func(ctx context.Context) error { _, err := store.Reap(ctx, 1); return err },
		"Unknown": func(ctx context.Context) error {
			for _, err := range store.Unknown(ctx, "") {
				return err
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) { require.ErrorIs(t, operation(t.Context()), sqlitestore.ErrClosed) })
	}
}

// TestClose_openTransaction: an open transaction may still be committed.
func TestClose_openTransaction(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	db := openWork(t, path, "")
	ledger(t, db)
	opened, err := sqlitestore.Open(t.Context(), path)
	require.NoError(t, err)
	made, err := sqlitestore.New(t.Context(), db)
	require.NoError(t, err)
	for key, store := range map[string]*sqlitestore.Store{"opened": opened, "made": made} {
		_, tx, err := store.Begin(t.Context(), claimOf(key), 0)
		require.NoError(t, err)
		require.NoError(t, write(t.Context(), tx.Value(), key))
		require.NoError(t, store.Close())
		require.NoError(t, tx.Commit(t.Context(), completed))
		requireRows(t, db, key, 1)
		assert.Equal(t, "done", decisionOf(t, open(t, path), claimOf(key)))
	}
}
