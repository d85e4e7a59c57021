package sqlitestore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/sqlitekit"
)

func openInternal(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "test.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func internalClaim(key string) idempotency.Claim {
	return idempotency.Claim{
		ID: idempotency.ID{Key: key}, Fingerprint: "v1:a", Owner: rand.Text(),
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
	require.ErrorContains(t, s.Complete(t.Context(), lease, idempotency.Outcome{Status: idempotency.Completed}), "closed")
	require.ErrorContains(t, errOf(s.Reserve(t.Context(), internalClaim("another"))), "closed")
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
	require.NoError(t, s.Complete(t.Context(), reservation.Record.Lease(), idempotency.Outcome{Status: idempotency.Completed}))
	other, err := sql.Open("sqlite", sqlitekit.DataSource(s.kit.File.Path, "rw"))
	require.NoError(t, err)
	defer func() { _ = other.Close() }()
	other.SetMaxOpenConns(1)
	version := pragma(t, other, "data_version") // changes with each commit of another connection
	mismatch := claim
	mismatch.Fingerprint = "v1:other"
	for range 100 {
		again, err := s.Reserve(t.Context(), claim)
		require.NoError(t, err)
		require.Equal(t, idempotency.DecisionDone, again.Decision)
		again, err = s.Reserve(t.Context(), mismatch)
		require.NoError(t, err)
		require.Equal(t, idempotency.DecisionMismatch, again.Decision)
	}
	n, err := s.Sweep(t.Context(), 100)
	require.NoError(t, err)
	assert.Zero(t, n)
	assert.Equal(t, version, pragma(t, other, "data_version"))
	require.NoError(t, s.Close())
}

// TestStatements_useIndexes: the statements use indexes.
func TestStatements_useIndexes(t *testing.T) {
	s := openInternal(t)
	for name, query := range map[string]string{
		"load": load, "take": take, "renew": renew, "complete": complete, "finish": finish,
		"release": release, "mark unknown": markUnknown, "sweep": sweep, "find expired": findExpired,
		"find dead": findDead, "reap": reap, "unknown": unknown,
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
			require.NoError(t, errOf(s.kit.Work.Exec("UPDATE idempotency_records SET "+change)))
			for _, step := range []idempotency.Step{idempotency.StepTake, idempotency.StepMarkUnknown} {
				record, err := s.forWriting.apply(t.Context(), step, judged, &claim)
				require.NoError(t, err)
				assert.Nil(t, record)
			}
			require.ErrorIs(t, s.forWork[unchanged].(*sql.Stmt).QueryRow(asJudgedArgs(judged)...).Scan(new(int64)), sql.ErrNoRows)
			require.NoError(t, errOf(s.kit.Work.Exec("DELETE FROM idempotency_records")))
			require.NoError(t, errOf(s.forWriting.apply(t.Context(), idempotency.StepInsert, nil, &claim)))
			_, err := s.kit.Work.Exec("UPDATE idempotency_records SET lease_expires = ?, expires = ?",
				judged.LeaseExpires.UnixMilli(), judged.Expires.UnixMilli())
			require.NoError(t, err)
		})
	}
	record, err := s.forWriting.apply(t.Context(), idempotency.StepTake, judged, &claim)
	require.NoError(t, err)
	assert.NotNil(t, record, "the record has not changed")
}

// TestBegin_activeOperation: claims for an operation with a transaction that is open
// or waits for its turn get DecisionInProgress at once. An ended wait leaves nothing behind.
func TestBegin_activeOperation(t *testing.T) {
	s := openInternal(t)
	decision := func(key string) idempotency.Decision {
		reserved, err := s.Reserve(t.Context(), internalClaim(key))
		require.NoError(t, err)
		began, tx, err := s.Begin(t.Context(), internalClaim(key), 0)
		require.NoError(t, err)
		assert.Nil(t, tx)
		assert.Equal(t, reserved.Decision, began.Decision)
		return began.Decision
	}
	first, tx, err := s.Begin(t.Context(), internalClaim("first"), 0)
	require.NoError(t, err)
	require.Equal(t, idempotency.DecisionAcquired, first.Decision)
	assert.Equal(t, idempotency.DecisionInProgress, decision("first"))

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, _, err := s.Begin(ctx, internalClaim("waits"), 0)
		ended <- err
	}()
	require.Eventually(t, func() bool { _, active := s.active.Load(idempotency.ID{Key: "waits"}); return active }, time.Minute, time.Millisecond)
	assert.Equal(t, idempotency.DecisionInProgress, decision("waits"))
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.NoError(t, tx.Rollback(t.Context()))
	s.active.Range(func(id, _ any) bool { t.Errorf("%v is still active", id); return true })
	for _, key := range []string{"first", "waits"} {
		reserved, err := s.Reserve(t.Context(), internalClaim(key))
		require.NoError(t, err)
		assert.Equal(t, idempotency.DecisionAcquired, reserved.Decision)
	}
}

// allow limits the growth of the database in pages; negative: no limit.
func allow(t *testing.T, more int, dbs ...*sql.DB) {
	t.Helper()
	for _, db := range dbs {
		limit := 1 << 30
		if more >= 0 {
			limit = pragma(t, db, "page_count") + more
		}
		pragma(t, db, fmt.Sprintf("max_page_count = %d", limit))
	}
}

// TestDiskFull_transactional: the disk is full at each page that the work needs. A
// failed transaction has written nothing, and succeeds when there is space again.
func TestDiskFull_transactional(t *testing.T) {
	large := idempotency.Outcome{
		Status: idempotency.Completed, Result: idempotency.Result{Code: 200, Body: make([]byte, 20_000)},
	}
	for name, end := range map[string]func(tx idempotency.Transaction, ctx context.Context, large idempotency.Outcome) error{
		"Commit": idempotency.Transaction.Commit, "RollbackAndRecord": idempotency.Transaction.RollbackAndRecord,
	} {
		t.Run(name, func(t *testing.T) {
			s := openInternal(t)
			s.kit.Work.SetMaxOpenConns(2)
			s.kit.Work.SetMaxIdleConns(1) // so that all limits are on one connection
			require.NoError(t, errOf(s.kit.Work.Exec("CREATE TABLE work (id TEXT, payload BLOB) STRICT")))
			failed := 0
			for more := 0; ; more++ {
				key := fmt.Sprint(more)
				allow(t, more, s.kit.Work, s.kit.Write)
				answer, tx, err := s.Begin(t.Context(), internalClaim(key), 0)
				require.NoError(t, err)
				work := tx.Value().(*sql.Tx)
				_, err = work.Exec("INSERT INTO work VALUES (?, randomblob(20000))", key)
				if err == nil {
					err = end(tx, t.Context(), large)
				} else {
					requireCode(t, sqlite3.SQLITE_FULL, err)
					_, following := work.Exec("INSERT INTO work VALUES ('following', '')")
					assert.Error(t, following, "it would be committed without the record")
					if end(tx, t.Context(), large) == nil {
						require.Equal(t, "RollbackAndRecord", name)
						require.NoError(t, errOf(s.kit.Work.Exec("DELETE FROM idempotency_records WHERE key = ?", key)))
					}
				}
				allow(t, -1, s.kit.Work, s.kit.Write)
				if err == nil {
					break
				}
				failed++
				requireCode(t, sqlite3.SQLITE_FULL, err)
				var rows int
				require.NoError(t, s.kit.Work.QueryRow("SELECT count(*) FROM work").Scan(&rows))
				assert.Zero(t, rows)
				again, tx, err := s.Begin(t.Context(), internalClaim(key), 0)
				require.NoError(t, err)
				require.Equal(t, idempotency.DecisionAcquired, again.Decision, "with %d pages", more)
				assert.Equal(t, answer.Record.Generation, again.Record.Generation)
				require.NoError(t, tx.Rollback(t.Context()))
			}
			assert.Greater(t, failed, 3, "the disk was full at different statements")
		})
	}
}

// tables returns SQLite's description of the tables.
func tables(t *testing.T, db *sql.DB) []string {
	t.Helper()
	var all string
	require.NoError(t, db.QueryRow("SELECT group_concat(concat_ws(' ', type, name, tbl_name, sql), char(10, 10) ORDER BY name) FROM sqlite_schema").Scan(&all))
	return strings.Split(all, "\n\n")
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
		require.NoError(t, errOf(db.Exec(text)))
	}
	want := tables(t, made.kit.Work)
	assert.Equal(t, want, tables(t, db))
	require.Len(t, want, 5)

	version := pragma(t, db, "schema_version")
	s, err := Open(t.Context(), path)
	require.NoError(t, err)
	assert.Equal(t, version, pragma(t, db, "schema_version"), "Open has changed nothing")
	require.NoError(t, errOf(s.Reserve(t.Context(), internalClaim("key"))))
	require.NoError(t, s.Close())

	// A tool that makes tables without rows.
	require.NoError(t, errOf(db.Exec("DELETE FROM idempotency_schema")))
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
	outcome := idempotency.Outcome{Status: idempotency.Completed}
	require.NoError(t, older.Complete(t.Context(), before.Record.Lease(), outcome))
	restarted, err := Open(t.Context(), path)
	require.NoError(t, err)
	for _, store := range []*Store{older, restarted} {
		claim := internalClaim(rand.Text())
		_, tx, err := store.Begin(t.Context(), claim, 0)
		require.NoError(t, err)
		require.NoError(t, tx.Commit(t.Context(), outcome))
		record, err := store.Load(t.Context(), claim.ID)
		require.NoError(t, err)
		assert.Equal(t, idempotency.Completed, record.Status)
	}
	require.NoError(t, errOf(older.kit.Work.Exec(`INSERT INTO idempotency_schema (version, oldest, applied) VALUES (3, 3, 0)`)))
	require.ErrorIs(t, errOf(Open(t.Context(), path)), ErrSchema)
	require.NoError(t, older.Close())
	require.NoError(t, restarted.Close())
}

// errOf is the error of a call. The value does not matter.
func errOf[T any](_ T, err error) error { return err }
