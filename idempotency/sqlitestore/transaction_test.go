package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/sqlitestore"
)

// soon is less than any busy timeout, and much more than an operation that does not
// wait.
const soon = 5 * time.Second

// begin claims an operation and returns its transaction.
func begin(t *testing.T, store idempotency.Transactor, key string) idempotency.Transaction {
	t.Helper()
	reservation, tx, err := store.Begin(t.Context(), claimOf(key), 0)
	require.NoError(t, err)
	require.Equal(t, idempotency.DecisionAcquired.String(), reservation.Decision.String())
	t.Cleanup(func() { require.NoError(t, tx.Rollback(context.Background())) })
	return tx
}

// ends are the ends of transactional work.
var ends = map[string]func(tx idempotency.Transaction) error{"Commit": commit, "RollbackAndRecord": recordAlone, "Rollback": rollBack}

func commit(tx idempotency.Transaction) error { return tx.Commit(context.Background(), completed) }

func recordAlone(tx idempotency.Transaction) error {
	return tx.RollbackAndRecord(context.Background(), completed)
}

func rollBack(tx idempotency.Transaction) error { return tx.Rollback(context.Background()) }

// beginDecision returns the decision of Begin.
func beginDecision(t *testing.T, store idempotency.Transactor, claim idempotency.Claim) string {
	t.Helper()
	reservation, tx, err := store.Begin(t.Context(), claim, 0)
	assert.NoError(t, err)
	if tx != nil {
		assert.NoError(t, tx.Rollback(t.Context()))
	}
	return reservation.Decision.String()
}

// within fails if do takes longer than soon.
func within(t *testing.T, what string, do func(ctx context.Context)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	began := time.Now()
	do(ctx)
	assert.Less(t, time.Since(began), soon, what)
}

// requireRows checks the number of committed rows.
func requireRows(t *testing.T, db *sql.DB, id string, want int) {
	t.Helper()
	n, err := count(t.Context(), db, id)
	require.NoError(t, err)
	require.Equal(t, want, n, "rows of %s", id)
}

// TestBegin_openTransaction: operations of the same store and of another one while a
// transaction is open.
func TestBegin_openTransaction(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	store := open(t, path)
	done := claimOf("done")
	require.NoError(t, store.Complete(t.Context(), acquire(t, store, done), completed))
	tx := begin(t, store, "working")
	for name, other := range map[string]*sqlitestore.Store{"same store": store, "another store": open(t, path)} {
		t.Run(name, func(t *testing.T) {
			if other == store {
				var wait sync.WaitGroup
				within(t, "a hundred duplicates", func(context.Context) {
					for range 50 {
						wait.Go(func() { assert.Equal(t, "in_progress", decisionOf(t, other, claimOf("working"))) })
						wait.Go(func() { assert.Equal(t, "in_progress", beginDecision(t, other, claimOf("working"))) })
					}
					wait.Wait()
				})
			}
			within(t, "a replay", func(context.Context) { assert.Equal(t, "done", decisionOf(t, other, done)) })
			within(t, "a transactional replay", func(context.Context) { assert.Equal(t, "done", beginDecision(t, other, done)) })
			within(t, "Load", func(ctx context.Context) {
				require.NoError(t, errOf(other.Load(ctx, done.ID)))
				require.ErrorIs(t, errOf(other.Load(ctx, claimOf("working").ID)), idempotency.ErrNotFound, "nothing of the record is stored")
			})
			within(t, "Sweep", func(ctx context.Context) {
				require.NoError(t, errOf(other.Sweep(ctx, 100)))
			})
			within(t, "Abandon", func(ctx context.Context) {
				require.NoError(t, errOf(other.Reap(ctx, 100)))
			})
			waits(t, other)
		})
	}
	require.NoError(t, tx.Commit(t.Context(), completed))
	assert.Equal(t, "done", decisionOf(t, store, claimOf("working")))
}

// waits checks that operations that write wait for the lock until their context ends.
func waits(t *testing.T, store *sqlitestore.Store) {
	t.Helper()
	lease := idempotency.Lease{ID: claimOf("elsewhere").ID, Owner: "another", Generation: 1}
	for name, operation := range map[string]func(ctx context.Context) error{
		"claim of another key": func(ctx context.Context) error { return errOf(store.Reserve(ctx, claimOf("another"))) },
		"Renew":                func(ctx context.Context) error { return store.Renew(ctx, lease, time.Hour) },
		"Complete":             func(ctx context.Context) error { return store.Complete(ctx, lease, completed) },
		"Release":              func(ctx context.Context) error { return store.Release(ctx, lease) },
		"Begin":                func(ctx context.Context) error { _, _, err := store.Begin(ctx, claimOf("another"), 0); return err },
	} {
		t.Run(name, func(t *testing.T) {
			within(t, "waiting", func(ctx context.Context) {
				ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
				defer cancel()
				require.ErrorIs(t, operation(ctx), context.DeadlineExceeded)
			})
		})
	}
}

// TestReap_openTransaction: a dead execution becomes Unknown when the lock is free.
func TestReap_openTransaction(t *testing.T) {
	store := newStore(t)
	claim := claimOf("dead")
	claim.Lease = time.Millisecond
	lease := acquire(t, store, claim)
	time.Sleep(5 * time.Millisecond)
	tx := begin(t, store, "working")
	all, err := store.Reap(t.Context(), 10)
	require.NoError(t, err)
	assert.Empty(t, all, "Reap does not wait")
	answer := make(chan string)
	go func() { answer <- beginDecision(t, store, claimOf("dead")) }()
	require.NoError(t, tx.Commit(t.Context(), completed))
	assert.Equal(t, "unknown", <-answer)
	require.ErrorIs(t, store.Complete(t.Context(), lease, completed), idempotency.ErrLeaseLost)
}

// TestBegin_duplicateInAnotherStore: it waits for the lock and then finds the record.
func TestBegin_duplicateInAnotherStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	store, other := open(t, path), open(t, path)
	for name, row := range map[string]struct {
		end  func(tx idempotency.Transaction) error
		want string
	}{
		"Commit":   {commit, "done"},
		"Rollback": {rollBack, "acquired"},
	} {
		t.Run(name, func(t *testing.T) {
			tx := begin(t, store, name)
			answers := make(chan string)
			go func() { answers <- beginDecision(t, other, claimOf(name)) }()
			select {
			case <-answers:
				t.Fatal("the duplicate did not wait")
			case <-time.After(30 * time.Millisecond):
			}
			require.NoError(t, row.end(tx))
			assert.Equal(t, row.want, <-answers)
		})
	}
	t.Run("RollbackAndRecord", func(t *testing.T) {
		tx := begin(t, store, "RollbackAndRecord")
		answers := make(chan string)
		go func() { answers <- beginDecision(t, other, claimOf("RollbackAndRecord")) }()
		require.NoError(t, tx.RollbackAndRecord(t.Context(), completed))
		assert.Contains(t, []string{"done", "acquired"}, <-answers, "it may begin between the rollback and the outcome")
		assert.Equal(t, "done", beginDecision(t, other, claimOf("RollbackAndRecord")), "it has changed nothing")
	})
}

func TestBusyTimeout(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	store := open(t, path)
	lease := acquire(t, store, claimOf("mine"))
	impatient, err := sqlitestore.Options{BusyTimeout: 50 * time.Millisecond}.Open(t.Context(), path)
	require.NoError(t, err)
	defer func() { _ = impatient.Close() }()
	tx := begin(t, store, "working")
	within(t, "another process", func(ctx context.Context) {
		require.ErrorIs(t, impatient.Renew(ctx, lease, time.Hour), sqlitestore.ErrLocked)
		_, _, err := impatient.Begin(ctx, claimOf("another"), 0)
		require.ErrorIs(t, err, sqlitestore.ErrLocked)
		require.ErrorIs(t, err, idempotency.ErrStoreBusy, "the claim is not repeated")
		require.ErrorIs(t, errOf(impatient.Reserve(ctx, claimOf("another"))), idempotency.ErrStoreBusy)
	})
	require.NoError(t, tx.Rollback(t.Context()))

	begin(t, impatient, "queue")
	within(t, "the queue", func(ctx context.Context) {
		require.ErrorIs(t, impatient.Renew(ctx, lease, time.Hour), sqlitestore.ErrLocked)
	})
}

// TestBegin_limit: a transaction that reaches its limit is rolled back.
func TestBegin_limit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		ledger(t, store.DB())
		_, tx, err := store.Begin(t.Context(), claimOf("endless"), soon/2)
		require.NoError(t, err)
		require.NoError(t, write(t.Context(), tx.Value(), "endless"))
		within(t, "the next", func(context.Context) { acquire(t, store, claimOf("next")) })
		require.ErrorIs(t, tx.Commit(t.Context(), completed), sql.ErrTxDone)
		require.ErrorIs(t, tx.RollbackAndRecord(t.Context(), completed), sql.ErrTxDone)
		require.NoError(t, tx.Rollback(t.Context()))
		requireRows(t, store.DB(), "endless", 0)
		assert.Equal(t, "acquired", beginDecision(t, store, claimOf("endless")))
	})
}

// TestBegin_contextEnds: the transaction continues after the end of Begin's context.
func TestBegin_contextEnds(t *testing.T) {
	store := newStore(t)
	ledger(t, store.DB())
	ctx, cancel := context.WithCancel(t.Context())
	_, tx, err := store.Begin(ctx, claimOf("key"), 0)
	require.NoError(t, err)
	cancel()
	time.Sleep(10 * time.Millisecond)
	require.NoError(t, write(t.Context(), tx.Value(), "key"))
	require.NoError(t, tx.Commit(t.Context(), completed))
	requireRows(t, store.DB(), "key", 1)
}

// TestNew_smallPool: with two connections, the work can read beside its transaction
// while others wait. With one, its holder can use the store while Begin waits.
func TestNew_smallPool(t *testing.T) {
	db := openWork(t, filepath.Join(t.TempDir(), "work.db"), "")
	ledger(t, db)
	store, err := sqlitestore.New(t.Context(), db)
	require.NoError(t, err)
	defer func() { _ = store.Close() }()

	t.Run("two connections", func(t *testing.T) {
		db.SetMaxOpenConns(2)
		var wait sync.WaitGroup
		for i := range 8 {
			wait.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, tx, err := store.Begin(ctx, claimOf(string(rune('a'+i))), 0)
				if !assert.NoError(t, err) {
					return
				}
				assert.NoError(t, errOf(count(ctx, db, "beside")))
				assert.NoError(t, tx.Commit(ctx, completed))
			})
		}
		wait.Wait()
	})
	t.Run("one connection", func(t *testing.T) {
		db.SetMaxOpenConns(1)
		mine := acquire(t, store, claimOf("mine"))
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		began := make(chan error, 1)
		go func() {
			_, tx, err := store.Begin(t.Context(), claimOf("other"), 0)
			if err == nil {
				err = tx.Commit(t.Context(), completed)
			}
			began <- err
		}()
		time.Sleep(20 * time.Millisecond)
		within(t, "Complete", func(ctx context.Context) { require.NoError(t, store.Complete(ctx, mine, completed)) })
		require.NoError(t, conn.Close())
		require.NoError(t, <-began)
	})
}

// TestBegin_workEndsTheTransaction: the work cannot commit without its record, and no
// record is stored for writes that were rolled back.
func TestBegin_workEndsTheTransaction(t *testing.T) {
	exec := func(texts ...string) func(tx *sql.Tx) error {
		return func(tx *sql.Tx) (err error) {
			for _, text := range texts {
				_, err = tx.Exec(text)
			}
			return err
		}
	}
	const again = "INSERT INTO ledger (id) VALUES ('key')"
	rows := []struct {
		name   string
		end    func(tx *sql.Tx) error
		fails  bool
		failed bool // by SQLite, and not by database/sql
	}{
		{"Commit", (*sql.Tx).Commit, true, false},
		{"Rollback", (*sql.Tx).Rollback, false, false},
		{"COMMIT", exec("COMMIT"), true, true},
		{"ROLLBACK", exec("ROLLBACK"), false, true},
		{"ROLLBACK and another statement", exec("ROLLBACK", again), true, true},
		{"a conflict that rolls back, and another statement", exec("INSERT OR ROLLBACK INTO ledger (id) VALUES (NULL)", again), true, true},
	}
	for _, row := range rows {
		for name, end := range ends {
			t.Run(row.name+", then "+name, func(t *testing.T) {
				store := newStore(t)
				ledger(t, store.DB())
				tx := begin(t, store, "key")
				require.NoError(t, write(t.Context(), tx.Value(), "key"))
				err := row.end(tx.Value().(*sql.Tx))
				assert.Equal(t, row.fails, err != nil, "%v", err)
				requireRows(t, store.DB(), "key", 0)

				err = end(tx)
				want := "acquired"
				switch {
				case name == "RollbackAndRecord":
					want = "done"
					require.NoError(t, err)
				case name == "Rollback":
					require.NoError(t, err)
				default:
					require.ErrorIs(t, err, idempotency.ErrUncommittable)
					require.Equal(t, !row.failed, errors.Is(err, sql.ErrTxDone))
				}
				requireRows(t, store.DB(), "key", 0)
				within(t, "the queue is free", func(context.Context) {
					assert.Equal(t, want, beginDecision(t, store, claimOf("key")))
				})
				execute(t, store.DB(), again) // the connection is usable
			})
		}
	}
}

// TestCommit_deferredConstraint: the COMMIT can never succeed, and the connection can be used again.
func TestCommit_deferredConstraint(t *testing.T) {
	store := newStore(t)
	store.DB().SetMaxOpenConns(1)
	execute(t, store.DB(), "CREATE TABLE parent (id INTEGER PRIMARY KEY)")
	execute(t, store.DB(), "CREATE TABLE child (id INTEGER REFERENCES parent DEFERRABLE INITIALLY DEFERRED)")
	for range 2 {
		tx := begin(t, store, "key")
		_, err := tx.Value().(*sql.Tx).ExecContext(t.Context(), "INSERT INTO child VALUES (1)")
		require.NoError(t, err)
		err = tx.Commit(t.Context(), completed)
		require.ErrorIs(t, err, idempotency.ErrUncommittable)
		require.ErrorContains(t, err, "FOREIGN KEY")
		require.ErrorIs(t, errOf(store.Load(t.Context(), claimOf("key").ID)), idempotency.ErrNotFound)
		var rows int
		require.NoError(t, store.DB().QueryRowContext(t.Context(), "SELECT count(*) FROM child").Scan(&rows))
		require.Zero(t, rows)
	}
	execute(t, store.DB(), "INSERT INTO parent VALUES (1)")
	tx := begin(t, store, "key")
	_, err := tx.Value().(*sql.Tx).ExecContext(t.Context(), "INSERT INTO child VALUES (1)")
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context(), completed))
}

// TestBegin_workWritesTheRecord: a record that the work has written is not overwritten.
func TestBegin_workWritesTheRecord(t *testing.T) {
	for _, before := range []string{"", "released"} {
		t.Run(before, func(t *testing.T) {
			store := newStore(t)
			ledger(t, store.DB())
			if before == "released" {
				require.NoError(t, store.Release(t.Context(), acquire(t, store, claimOf("key"))))
			}
			tx := begin(t, store, "key")
			require.NoError(t, write(t.Context(), tx.Value(), "key"))
			acquire(t, store.WithTx(tx.Value().(*sql.Tx)), claimOf("key"))
			require.ErrorIs(t, tx.Commit(t.Context(), completed), idempotency.ErrLeaseLost)
			requireRows(t, store.DB(), "key", 0)
			assert.Equal(t, "acquired", beginDecision(t, store, claimOf("key")))
		})
	}
}

// TestRollbackAndRecord_overtaken: another process may complete the operation between
// the rollback and the record.
func TestRollbackAndRecord_overtaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	store, other := open(t, path), open(t, path)
	tx := begin(t, store, "key")
	require.NoError(t, tx.Value().(*sql.Tx).Rollback())
	require.NoError(t, begin(t, other, "key").Commit(t.Context(), completed))
	declined := idempotency.Outcome{Status: idempotency.FailedFinal}
	require.ErrorIs(t, tx.RollbackAndRecord(t.Context(), declined), idempotency.ErrLeaseLost)
	record, err := store.Load(t.Context(), claimOf("key").ID)
	require.NoError(t, err)
	assert.Equal(t, idempotency.Completed, record.Status)
}

// TestRenew_beforeClaims: a renewal that waits goes before a claim that would take the
// lease over, even if it came later.
func TestRenew_beforeClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		claim := claimOf("leased")
		claim.Takeover = idempotency.Reexecute
		lease := acquire(t, store, claim)
		execute(t, store.DB(), "UPDATE idempotency_records SET lease_expires = 1")
		tx := begin(t, store, "transactional")
		taker := make(chan string)
		go func() { taker <- decisionOf(t, store, claimOf("leased")) }()
		synctest.Wait() // it is in the queue
		renewed := make(chan error)
		go func() { renewed <- store.Renew(t.Context(), lease, time.Hour) }()
		synctest.Wait()
		require.NoError(t, tx.Commit(t.Context(), completed))
		require.NoError(t, <-renewed)
		assert.Equal(t, "in_progress", <-taker)
	})
}
