package sqlitestore_test

import (
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/sqlitestore"
)

// TestTx_operations: a caller's transaction sees what it has written. Others see it after the commit, and not after a rollback.
func TestTx_operations(t *testing.T) {
	for _, commit := range []bool{true, false} {
		t.Run(fmt.Sprint("committed ", commit), func(t *testing.T) {
			store := newStore(t)
			dead, expired := claimOf("dead"), claimOf("expired")
			dead.Lease, expired.Lease = time.Millisecond, time.Millisecond
			expired.TTL, expired.Takeover = time.Millisecond, idempotency.Reexecute
			acquire(t, store, dead)
			acquire(t, store, expired)
			time.Sleep(5 * time.Millisecond)

			outer, within := inbox(t, store)
			require.ErrorIs(t, errOf(within.Reserve(t.Context(), idempotency.Claim{})), idempotency.ErrInvalid)
			renewed, doubt := acquire(t, within, claimOf("renewed")), acquire(t, within, claimOf("doubt"))
			require.NoError(t, within.Renew(t.Context(), renewed, 3*time.Hour))
			require.NoError(t, within.Complete(t.Context(), doubt, idempotency.Outcome{Status: idempotency.Unknown}))
			done, released := acquire(t, within, claimOf("done")), acquire(t, within, claimOf("released"))
			require.NoError(t, within.Complete(t.Context(), done, completed))
			require.NoError(t, within.Release(t.Context(), released))
			for _, lost := range []idempotency.Lease{doubt, done, released} {
				require.ErrorIs(t, within.Renew(t.Context(), lost, time.Hour), idempotency.ErrLeaseLost)
			}
			for _, limit := range []int{-1, 0, 10} {
				reaped, err := within.Reap(t.Context(), limit)
				require.NoError(t, err)
				assert.Len(t, reaped, min(max(limit, 0), 1))
				swept, err := within.Sweep(t.Context(), limit)
				require.NoError(t, err)
				assert.Equal(t, min(max(limit, 0), 1), swept)
			}

			want := map[string]idempotency.Status{
				"dead": idempotency.Unknown, "doubt": idempotency.Unknown, "renewed": idempotency.StatusInProgress, "done": idempotency.Completed, "released": idempotency.FailedRetryable,
			}
			assert.Equal(t, want, statuses(t, within))
			var unknown []string
			for record, err := range within.Unknown(t.Context(), "tenant") {
				require.NoError(t, err)
				unknown = append(unknown, record.Key)
			}
			assert.Equal(t, []string{"dead", "doubt"}, unknown)
			if commit {
				require.NoError(t, outer.Commit())
			} else {
				require.NoError(t, outer.Rollback())
				want = map[string]idempotency.Status{"dead": idempotency.StatusInProgress}
			}
			assert.Equal(t, want, statuses(t, store))
		})
	}
}

// statuses are those of the records of TestTx_operations, by key.
func statuses(t *testing.T, store idempotency.Store) map[string]idempotency.Status {
	t.Helper()
	found := make(map[string]idempotency.Status)
	for _, key := range []string{"dead", "expired", "doubt", "renewed", "done", "released"} {
		record, err := store.Load(t.Context(), claimOf(key).ID)
		if !errors.Is(err, idempotency.ErrNotFound) {
			require.NoError(t, err)
			found[key] = record.Status
		}
	}
	return found
}

// TestTx_deferredTransaction: Reserve takes the write lock before it reads.
func TestTx_deferredTransaction(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	db := openWork(t, path, "")
	store, err := sqlitestore.New(t.Context(), db)
	require.NoError(t, err)
	defer func() { _ = store.Close() }()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback() //nolint:errcheck // the test ends
	claim := claimOf("key")
	require.NoError(t, store.Complete(t.Context(), acquire(t, store, claim), completed))
	assert.Equal(t, "done", decisionOf(t, store.WithTx(tx), claim))

	impatient, err := sqlitestore.Options{BusyTimeout: -1}.Open(t.Context(), path)
	require.NoError(t, err)
	defer func() { _ = impatient.Close() }()
	require.ErrorIs(t, errOf(impatient.Reserve(t.Context(), claimOf("another"))), sqlitestore.ErrLocked)
}

// inbox returns a consumer's transaction and the store in it.
func inbox(t *testing.T, store *sqlitestore.Store) (*sql.Tx, *sqlitestore.Tx) {
	t.Helper()
	tx, err := store.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() }) // does nothing after Commit
	return tx, store.WithTx(tx)
}

// TestTx_ends: each end of the work, with each end of the caller's transaction.
func TestTx_ends(t *testing.T) {
	for _, row := range []struct {
		name   string
		end    func(tx idempotency.Transaction) error
		rows   int
		status idempotency.Status // 0: absent
	}{
		{"Commit", commit, 1, idempotency.Completed},
		{"RollbackAndRecord", recordAlone, 0, idempotency.Completed},
		{"Rollback", rollBack, 0, 0},
	} {
		for _, commit := range []bool{true, false} {
			for _, released := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, committed %v, released before %v", row.name, commit, released), func(t *testing.T) {
					store := newStore(t)
					ledger(t, store.DB())
					generation, status, rows := int64(1), row.status, row.rows
					if released {
						require.NoError(t, store.Release(t.Context(), acquire(t, store, claimOf("key"))))
						generation++
					}
					outer, within := inbox(t, store)
					require.NoError(t, write(t.Context(), outer, "before"))
					reservation, tx, err := within.Begin(t.Context(), claimOf("key"), 0)
					require.NoError(t, err)
					assert.Equal(t, generation, reservation.Record.Generation)
					assert.Same(t, outer, tx.Value())
					assert.True(t, within.InCallerTx())
					require.NoError(t, write(t.Context(), tx.Value(), "key"))
					require.NoError(t, row.end(tx))
					require.NoError(t, tx.Rollback(t.Context()), "a second end does nothing")
					require.Error(t, tx.Commit(t.Context(), completed))
					require.NoError(t, write(t.Context(), outer, "after"))
					if commit {
						require.NoError(t, outer.Commit())
					} else {
						require.NoError(t, outer.Rollback())
						status, rows = 0, 0
					}
					if status == 0 && released {
						status = idempotency.FailedRetryable
					}
					record, err := store.Load(t.Context(), claimOf("key").ID)
					assert.Equal(t, status == 0, err != nil)
					assert.Equal(t, status, record.Status)
					if status == idempotency.Completed {
						assert.Equal(t, reservation.Record.Lease(), record.Lease())
						assert.Equal(t, reservation.Record.Expires, record.Expires)
						assert.Equal(t, completed.Result.Body, record.Result.Body)
					}
					requireRows(t, store.DB(), "key", rows)
					want := map[bool]int{true: 1}[commit]
					requireRows(t, store.DB(), "before", want)
					requireRows(t, store.DB(), "after", want)
				})
			}
		}
	}
}

// TestTx_notAcquired: Begin returns no transaction and does not end the caller's.
func TestTx_notAcquired(t *testing.T) {
	store := newStore(t)
	ledger(t, store.DB())
	require.NoError(t, store.Complete(t.Context(), acquire(t, store, claimOf("done")), completed))
	mine := claimOf("working")
	acquire(t, store, mine)
	dead := claimOf("dead")
	dead.Lease = time.Millisecond
	acquire(t, store, dead)
	time.Sleep(5 * time.Millisecond)
	outer, within := inbox(t, store)
	require.NoError(t, write(t.Context(), outer, "before"))
	assert.Equal(t, "done", beginDecision(t, within, claimOf("done")))
	assert.Equal(t, "in_progress", beginDecision(t, within, claimOf("working")))
	assert.Equal(t, "in_progress", beginDecision(t, within, mine), "its lease does not permit a transaction")
	assert.Equal(t, "unknown", beginDecision(t, within, claimOf("dead")))
	other := claimOf("done")
	other.Fingerprint = "v1:b"
	assert.Equal(t, "mismatch", beginDecision(t, within, other))
	nested := begin(t, within, "nested")
	assert.Equal(t, "in_progress", beginDecision(t, within, claimOf("nested")), "nested in itself")
	require.NoError(t, nested.Rollback(t.Context()))
	require.NoError(t, outer.Commit())
	requireRows(t, store.DB(), "before", 1)
	record, err := store.Load(t.Context(), dead.ID)
	require.NoError(t, err)
	assert.Equal(t, idempotency.Unknown, record.Status)
}

// TestTx_nested: nested transactions must end before the outer one.
func TestTx_nested(t *testing.T) {
	store := newStore(t)
	ledger(t, store.DB())
	outer, within := inbox(t, store)
	first := begin(t, within, "first")
	require.NoError(t, write(t.Context(), outer, "first"))
	second := begin(t, within, "second")
	require.NoError(t, write(t.Context(), outer, "second"))
	require.NoError(t, second.Rollback(t.Context()))
	third := begin(t, within, "third")
	require.NoError(t, write(t.Context(), outer, "third"))
	require.NoError(t, third.Commit(t.Context(), completed))
	require.NoError(t, first.Commit(t.Context(), completed))

	fourth := begin(t, within, "fourth")
	fifth := begin(t, within, "fifth")
	require.NoError(t, write(t.Context(), outer, "fifth"))
	require.ErrorContains(t, fourth.Commit(t.Context(), completed), "has not ended")
	require.Error(t, fifth.Commit(t.Context(), completed), "it was rolled back with the outer one")
	require.NoError(t, outer.Commit())
	for key, n := range map[string]int{"first": 1, "second": 0, "third": 1, "fourth": 0, "fifth": 0} {
		requireRows(t, store.DB(), key, n)
		assert.Equal(t, map[int]string{0: "acquired", 1: "done"}[n], beginDecision(t, store, claimOf(key)), key)
	}
}

// TestTx_workEndsTheTransaction: work that was committed with its record in
// progress is not repeated.
func TestTx_workEndsTheTransaction(t *testing.T) {
	for _, row := range []struct {
		name string
		end  func(tx *sql.Tx) error
		rows int
	}{
		{"Commit", (*sql.Tx).Commit, 1},
		{"Rollback", (*sql.Tx).Rollback, 0},
		{"COMMIT", func(tx *sql.Tx) error { _, err := tx.Exec("COMMIT"); return err }, 1},
		{"ROLLBACK", func(tx *sql.Tx) error { _, err := tx.Exec("ROLLBACK"); return err }, 0},
		{"a failed statement", func(tx *sql.Tx) error {
			_, _ = tx.Exec("INSERT OR ROLLBACK INTO ledger (id) VALUES (NULL)")
			return nil
		}, 0},
	} {
		for name, end := range ends {
			t.Run(row.name+", then "+name, func(t *testing.T) {
				store := newStore(t)
				ledger(t, store.DB())
				outer, within := inbox(t, store)
				tx := begin(t, within, "key")
				require.NoError(t, write(t.Context(), outer, "key"))
				require.NoError(t, row.end(outer))
				err := end(tx)
				switch {
				case row.rows == 1:
					require.ErrorIs(t, err, idempotency.ErrUnknown)
				case name == "Rollback":
					require.NoError(t, err)
				default:
					require.ErrorIs(t, err, idempotency.ErrTransactionFailed)
				}
				requireRows(t, store.DB(), "key", row.rows)
				switch decision := decisionOf(t, store, claimOf("key")); {
				case row.rows == 0:
					assert.Equal(t, "acquired", decision)
				case row.name == "COMMIT" && name == "Commit":
					assert.Equal(t, "done", decision, "its record could still be completed")
				default:
					assert.Equal(t, "in_progress", decision, "and becomes Unknown when the lease is over")
				}
			})
		}
	}
}
