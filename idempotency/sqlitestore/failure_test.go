package sqlitestore_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency/internal/driver"
	"github.com/resilienthttp/resilienthttp/idempotency/sqlitestore"
)

// TestCrash_openTransaction: a process dies with an open transaction. Nothing of it
// is stored, and a claim that waited for the lock acquires the operation.
func TestCrash_openTransaction(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	ledger(t, open(t, path).DB())
	c := startChild(t, "hang", path)
	require.Equal(t, "open", c.line(t))

	survivor := open(t, path)
	answer := make(chan driver.Reservation)
	go func() {
		reservation, tx, err := survivor.Begin(t.Context(), claimOf("hanging"), 0)
		if assert.NoError(t, err) {
			assert.NoError(t, tx.Rollback(t.Context()))
		}
		answer <- reservation
	}()
	select {
	case <-answer:
		t.Fatal("two executions of the operation")
	case <-time.After(50 * time.Millisecond):
	}
	c.kill(t)
	reservation := <-answer
	assert.Equal(t, "acquired", reservation.Decision.String())
	assert.EqualValues(t, 1, reservation.Record.Generation)
	n, err := count(t.Context(), survivor.DB(), "hanging")
	require.NoError(t, err)
	assert.Zero(t, n)
}

// TestStore_movedFile: a store does not write to a file that was moved.
func TestStore_movedFile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("an open file cannot be moved or removed")
	}
	for name, move := range map[string]func(t *testing.T, path string){
		"removed": func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) },
		"renamed": func(t *testing.T, path string) { require.NoError(t, os.Rename(path, path+".old")) },
		"replaced": func(t *testing.T, path string) {
			require.NoError(t, os.Rename(path, path+".old"))
			require.NoError(t, os.WriteFile(path, nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "test.db")
			store := open(t, path)
			done := claimOf("done")
			require.NoError(t, store.Complete(t.Context(), acquire(t, store, done), completed))
			lease := acquire(t, store, claimOf("key"))
			move(t, path)

			_, err := store.Reserve(t.Context(), claimOf("another"))
			require.ErrorIs(t, err, sqlitestore.ErrMoved)
			require.ErrorIs(t, store.Complete(t.Context(), lease, completed), sqlitestore.ErrMoved)
			_, _, err = store.Begin(t.Context(), claimOf("another"), 0)
			require.ErrorIs(t, err, sqlitestore.ErrMoved)
			assert.Equal(t, "done", decisionOf(t, store, done), "a read still works")
		})
	}
}

// TestLoad_damagedRecord: a damaged record is an error.
func TestLoad_damagedRecord(t *testing.T) {
	store := newStore(t)
	claim := claimOf("key")
	require.NoError(t, store.Complete(t.Context(), acquire(t, store, claim), completed))
	for _, damage := range []string{
		"header = x'FF'", "header = x'01'", "header = CAST('{\"A\":\"1\"}' AS BLOB)", "status = 1000", "status = -1",
	} {
		t.Run(damage, func(t *testing.T) {
			execute(t, store.DB(), "UPDATE idempotency_records SET header = NULL, status = 2")
			execute(t, store.DB(), "UPDATE idempotency_records SET "+damage)
			_, err := store.Load(t.Context(), claim.ID)
			require.Error(t, err)
			_, err = store.Reserve(t.Context(), claim)
			require.Error(t, err)
		})
	}
}

// TestStatements_noTimeArgument: the application's clock is not used.
func TestStatements_noTimeArgument(t *testing.T) {
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	require.Greater(t, len(names), 10)
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		source, err := os.ReadFile(name)
		require.NoError(t, err)
		assert.NotContains(t, string(source), "time.Now", name)
	}
}

// TestReserve_times: the times of a record are those of SQLite's clock.
func TestReserve_times(t *testing.T) {
	store := newStore(t)
	clock := func() (ms int64) {
		const now = "SELECT CAST(round(unixepoch('subsec') * 1000) AS INTEGER)"
		require.NoError(t, store.DB().QueryRow(now).Scan(&ms))
		return ms
	}
	before := clock()
	reservation, err := store.Reserve(t.Context(), claimOf("key"))
	require.NoError(t, err)
	after := clock()
	r := reservation.Record
	assert.GreaterOrEqual(t, r.Started.UnixMilli(), before)
	assert.LessOrEqual(t, r.Started.UnixMilli(), after)
	assert.Equal(t, time.Hour, r.LeaseExpires.Sub(r.Started))
	assert.Equal(t, 2*time.Hour, r.Expires.Sub(r.Started))
}
