package sqlitekit

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sqlite3 "modernc.org/sqlite/lib"
)

// fill adds a row of 4 KB.
func fill(ctx context.Context, d *DB) error {
	return d.Transact(ctx, &Waiter{}, func(ctx context.Context, tx *sql.Tx) error {
		_, err := In(tx, "INSERT INTO words VALUES (?)").ExecContext(ctx, fmt.Sprintf("%04000d", 0))
		return err
	})
}

// sweepAll deletes all but the newest rows.
func sweepAll(ctx context.Context, d *DB, keep int) (int, error) {
	return d.Sweep(ctx, 1<<20, func(ctx context.Context, tx *sql.Tx, limit int) (int, error) {
		return Affected(tx.ExecContext(ctx,
			"DELETE FROM words WHERE rowid IN (SELECT rowid FROM words WHERE rowid <= (SELECT max(rowid) FROM words) - ? LIMIT ?)", keep, limit))
	})
}

// On a volume of 12 MB, the log must leave room for the records: it is 4 MB, whatever was written and
// swept through it.
func TestLog_staysShort(t *testing.T) {
	d := newDB(t)
	longest := int64(0)
	for i := range 6000 {
		require.NoError(t, fill(t.Context(), d))
		if i%1000 == 999 {
			_, err := sweepAll(t.Context(), d, 100)
			require.NoError(t, err)
		}
		log, err := os.Stat(d.File.Path + "-wal")
		require.NoError(t, err)
		longest = max(longest, log.Size())
	}
	assert.Less(t, longest, int64(5<<20))
}

// A full volume fails writes with SQLite's error, loses nothing, and is usable as soon as there is
// space again: in the open store, and after it was opened anew.
func TestFull_recovers(t *testing.T) {
	for _, reopened := range []bool{false, true} {
		t.Run(fmt.Sprint("reopened ", reopened), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "test.db")
			d := openAs(t, path, settings(1))
			execute(t, d.Write, "PRAGMA max_page_count = 100")
			stored := 0
			var err error
			for ; err == nil; stored++ {
				err = fill(t.Context(), d)
			}
			stored--
			require.True(t, HasCode(err, sqlite3.SQLITE_FULL), "%v", err)
			assert.Equal(t, stored, words(t, d))
			if reopened {
				require.NoError(t, d.Close())
				d = openAs(t, path, settings(1))
			}
			_, err = sweepAll(t.Context(), d, 10)
			require.NoError(t, err)
			require.NoError(t, fill(t.Context(), d))
			assert.Equal(t, 11, words(t, d))
		})
	}
}

// A log that cannot grow is copied to the file, and the write is repeated.
func TestFull_shortensTheLog(t *testing.T) {
	d := newDB(t)
	require.NoError(t, fill(t.Context(), d))
	calls := 0
	require.NoError(t, d.Transact(t.Context(), &Waiter{}, func(ctx context.Context, tx *sql.Tx) error {
		if calls++; calls > 1 {
			return add("second")(ctx, tx)
		}
		log, err := os.Stat(d.File.Path + "-wal")
		require.NoError(t, err)
		require.NotZero(t, log.Size())
		_, err = tx.ExecContext(ctx, "PRAGMA max_page_count = 1")
		require.NoError(t, err)
		_, err = tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO words VALUES ('%010000d')", 0))
		_, lifted := tx.ExecContext(ctx, "PRAGMA max_page_count = 1000000")
		require.NoError(t, lifted)
		return err
	}))
	assert.Equal(t, 2, calls)
	assert.Equal(t, 2, words(t, d))
}
