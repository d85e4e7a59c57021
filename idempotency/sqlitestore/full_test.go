package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/resilienthttp/resilienthttp/idempotency/internal/driver"
)

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
	large := driver.Outcome{
		Status: driver.Completed, Result: driver.Result{Code: 200, Body: make([]byte, 20_000)},
	}
	for name, end := range map[string]func(tx driver.Transaction, ctx context.Context, large driver.Outcome) error{
		"Commit": driver.Transaction.Commit, "RollbackAndRecord": driver.Transaction.RollbackAndRecord,
	} {
		t.Run(name, func(t *testing.T) {
			s := openInternal(t)
			s.kit.Work.SetMaxOpenConns(2)
			s.kit.Work.SetMaxIdleConns(1) // so that all limits are on one connection
			_, err := s.kit.Work.Exec("CREATE TABLE work (id TEXT, payload BLOB) STRICT")
			require.NoError(t, err)
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
						require.NoError(t, s.deleteInternal(key))
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
				require.Equal(t, driver.Acquired, again.Decision, "with %d pages", more)
				assert.Equal(t, answer.Record.Generation, again.Record.Generation)
				require.NoError(t, tx.Rollback(t.Context()))
			}
			assert.Greater(t, failed, 3, "the disk was full at different statements")
		})
	}
}

func (s *Store) deleteInternal(key string) error {
	_, err := s.kit.Work.Exec("DELETE FROM idempotency_records WHERE key = ?", key)
	return err
}

// TestDiskFull_nonTransactional: a claim fails, an execution stays in progress, and
// both succeed when there is space again.
func TestDiskFull_nonTransactional(t *testing.T) {
	s := openInternal(t)
	claim := internalClaim("key")
	reservation, err := s.Reserve(t.Context(), claim)
	require.NoError(t, err)
	large := driver.Outcome{
		Status: driver.Completed, Result: driver.Result{Code: 200, Body: make([]byte, 1<<20)},
	}
	allow(t, 0, s.kit.Write)
	requireCode(t, sqlite3.SQLITE_FULL, s.Complete(t.Context(), reservation.Record.Lease(), large))
	for i := 0; err == nil; i++ {
		_, err = s.Reserve(t.Context(), internalClaim(fmt.Sprint(i)))
	}
	requireCode(t, sqlite3.SQLITE_FULL, err)

	record, err := s.Load(t.Context(), claim.ID)
	require.NoError(t, err)
	assert.Equal(t, reservation.Record, record)
	allow(t, -1, s.kit.Write)
	require.NoError(t, s.Complete(t.Context(), record.Lease(), large))
}
