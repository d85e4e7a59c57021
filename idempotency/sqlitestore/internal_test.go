package sqlitestore

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"github.com/resilienthttp/resilienthttp/idempotency/internal/driver"
	"github.com/resilienthttp/resilienthttp/internal/sqlitekit"
)

func openInternal(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "test.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func internalClaim(key string) driver.Claim {
	return driver.Claim{
		ID: driver.ID{Key: key}, Fingerprint: "v1:a", Owner: driver.NewOwner(),
		Lease: time.Hour, TTL: time.Hour,
	}
}

func pragma(t *testing.T, db *sql.DB, name string) (value int) {
	t.Helper()
	require.NoError(t, db.QueryRow("PRAGMA "+name).Scan(&value))
	return value
}

// TestStore_writesFlush: writes use the connection that flushes.
func TestStore_writesFlush(t *testing.T) {
	s := openInternal(t)
	reservation, err := s.Reserve(t.Context(), internalClaim("key"))
	require.NoError(t, err)
	lease := reservation.Record.Lease()
	require.NoError(t, s.kit.Write.Close())
	require.ErrorContains(t, s.Renew(t.Context(), lease, time.Hour), "closed")
	require.ErrorContains(t, s.Release(t.Context(), lease), "closed")
	require.ErrorContains(t, s.Complete(t.Context(), lease, driver.Outcome{Status: driver.Completed}), "closed")
	_, err = s.Reserve(t.Context(), internalClaim("another"))
	require.ErrorContains(t, err, "closed")
}

func requireCode(t *testing.T, code int, err error) {
	t.Helper()
	var e *sqlite.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, code, e.Code()&0xff, "%v", err)
}

// TestReserve_replayWritesNothing counts the changes of the database.
func TestReserve_replayWritesNothing(t *testing.T) {
	s := openInternal(t)
	claim := internalClaim("key")
	reservation, err := s.Reserve(t.Context(), claim)
	require.NoError(t, err)
	require.NoError(t, s.Complete(t.Context(), reservation.Record.Lease(), driver.Outcome{Status: driver.Completed}))
	other, err := sql.Open("sqlite", sqlitekit.DataSource(s.kit.File.Path, "rw"))
	require.NoError(t, err)
	defer func() { _ = other.Close() }()
	other.SetMaxOpenConns(1)
	version := pragma(t, other, "data_version") // changes with each commit of another connection
	for range 100 {
		again, err := s.Reserve(t.Context(), claim)
		require.NoError(t, err)
		require.Equal(t, driver.Done, again.Decision)
		again, err = s.Reserve(t.Context(), internalClaimOf(claim, "v1:other"))
		require.NoError(t, err)
		require.Equal(t, driver.Mismatch, again.Decision)
	}
	n, err := s.Sweep(t.Context(), 100)
	require.NoError(t, err)
	assert.Zero(t, n)
	assert.Equal(t, version, pragma(t, other, "data_version"))
	require.NoError(t, s.Close())
}

// TestReserve_checkpoints: claims copy the write-ahead log to the file.
func TestReserve_checkpoints(t *testing.T) {
	s := openInternal(t)
	for range 3000 {
		claim := internalClaim(driver.NewOwner())
		_, err := s.Reserve(t.Context(), claim)
		require.NoError(t, err)
	}
	info, err := os.Stat(s.kit.File.Path + "-wal")
	require.NoError(t, err)
	assert.Less(t, info.Size(), int64(20<<20), "the automatic checkpoint is at 16 MB")
}

func internalClaimOf(c driver.Claim, f driver.Fingerprint) driver.Claim {
	c.Fingerprint = f
	return c
}

// TestStatements_useIndexes: the statements use indexes.
func TestStatements_useIndexes(t *testing.T) {
	s := openInternal(t)
	for name, query := range map[string]string{
		"load": loadSQL, "take": takeSQL, "renew": renewSQL, "complete": completeSQL, "finish": finishSQL,
		"release": releaseSQL, "mark unknown": markUnknownSQL, "sweep": sweepSQL, "find expired": findExpiredSQL,
		"find dead": findDeadSQL, "reap": reapSQL, "unknown": unknownSQL,
	} {
		t.Run(name, func(t *testing.T) {
			rows, err := s.kit.Work.Query("EXPLAIN QUERY PLAN "+query, make([]any, 16)...)
			require.NoError(t, err)
			defer func() { require.NoError(t, rows.Close()) }()
			found := false
			for rows.Next() {
				var id, parent, unused int
				var detail string
				require.NoError(t, rows.Scan(&id, &parent, &unused, &detail))
				assert.NotContains(t, strings.TrimPrefix(detail, "SCAN CONSTANT ROW"), "SCAN")
				assert.NotContains(t, detail, "TEMP B-TREE")
				found = true
			}
			require.NoError(t, rows.Err())
			assert.True(t, found || name == "finish") // INSERT has no plan
		})
	}
}

// TestApply_recordChanged: a step is not done if the record has changed since it was
// read.
func TestApply_recordChanged(t *testing.T) {
	s := openInternal(t)
	claim := internalClaim("key")
	reservation, err := s.Reserve(t.Context(), claim)
	require.NoError(t, err)
	judged := &reservation.Record
	for _, change := range []string{
		"status = 3", "owner = 'other'", "generation = 2", "lease_expires = lease_expires + 1", "expires = expires - 1",
		"scope = 'other'", "operation = 'other'", "key = 'other'",
	} {
		t.Run(change, func(t *testing.T) {
			_, err := s.kit.Work.Exec("UPDATE idempotency_records SET " + change)
			require.NoError(t, err)
			for _, step := range []driver.Step{driver.Take, driver.StepMarkUnknown} {
				record, err := s.forWriting.apply(t.Context(), step, judged, &claim)
				require.NoError(t, err)
				assert.Nil(t, record)
			}
			var clock int64
			require.ErrorIs(t, s.forWork[unchanged].(*sql.Stmt).QueryRow(asJudgedArgs(judged)...).Scan(&clock), sql.ErrNoRows)
			_, err = s.kit.Work.Exec("DELETE FROM idempotency_records")
			require.NoError(t, err)
			_, err = s.forWriting.apply(t.Context(), driver.Insert, nil, &claim)
			require.NoError(t, err)
			_, err = s.kit.Work.Exec("UPDATE idempotency_records SET lease_expires = ?, expires = ?",
				judged.LeaseExpires.UnixMilli(), judged.Expires.UnixMilli())
			require.NoError(t, err)
		})
	}
	record, err := s.forWriting.apply(t.Context(), driver.Take, judged, &claim)
	require.NoError(t, err)
	assert.NotNil(t, record, "the record has not changed")
}
