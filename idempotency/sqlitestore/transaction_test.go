package sqlitestore_test

import (
	"context"
	"database/sql"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/driver"
	"github.com/resilienthttp/resilienthttp/idempotency/sqlitestore"
)

// soon is far less than any busy timeout, and far more than what does not wait.
const soon = 5 * time.Second

// begin claims an operation for joined work, which gets it.
func begin(t *testing.T, store driver.Transactor, key string) driver.Transaction {
	t.Helper()
	reservation, tx, err := store.Begin(t.Context(), claimOf(key), 0)
	require.NoError(t, err)
	require.Equal(t, driver.Acquired.String(), reservation.Decision.String())
	t.Cleanup(func() { require.NoError(t, tx.Rollback(context.Background())) })
	return tx
}

// beginDecision is what joined work is told that does not get the operation.
func beginDecision(t *testing.T, store driver.Transactor, claim driver.Claim) string {
	t.Helper()
	reservation, tx, err := store.Begin(t.Context(), claim, 0)
	assert.NoError(t, err)
	if tx != nil {
		assert.NoError(t, tx.Rollback(t.Context()))
	}
	return reservation.Decision.String()
}

// within fails if do takes as long as soon.
func within(t *testing.T, what string, do func(ctx context.Context)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	began := time.Now()
	do(ctx)
	assert.Less(t, time.Since(began), soon, what)
}

// requireRows looks how many rows of the work are committed.
func requireRows(t *testing.T, db *sql.DB, id string, want int) {
	t.Helper()
	n, err := count(t.Context(), db, id)
	require.NoError(t, err)
	require.Equal(t, want, n, "rows of %s", id)
}

// TestOpenTransaction is what all others meet while a transaction is open: this
// store, and one of another process.
func TestOpenTransaction(t *testing.T) {
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
						wait.Go(func() { assert.Equal(t, "busy", decisionOf(t, other, claimOf("working"))) })
						wait.Go(func() { assert.Equal(t, "busy", beginDecision(t, other, claimOf("working"))) })
					}
					wait.Wait()
				})
			}
			within(t, "a replay", func(context.Context) { assert.Equal(t, "done", decisionOf(t, other, done)) })
			within(t, "a joined replay", func(context.Context) { assert.Equal(t, "done", beginDecision(t, other, done)) })
			within(t, "Load", func(ctx context.Context) {
				_, err := other.Load(ctx, done.ID)
				require.NoError(t, err)
				_, err = other.Load(ctx, claimOf("working").ID)
				require.ErrorIs(t, err, driver.ErrNotFound, "nothing of the record is stored")
			})
			within(t, "Sweep", func(ctx context.Context) {
				_, err := other.Sweep(ctx, 100)
				require.NoError(t, err)
			})
			within(t, "Abandon", func(ctx context.Context) {
				_, err := other.Reap(ctx, 100)
				require.NoError(t, err)
			})
			waits(t, other)
		})
	}
	require.NoError(t, tx.Commit(t.Context(), completed))
	assert.Equal(t, "done", decisionOf(t, store, claimOf("working")))
}

// waits: verbs that must write wait for the lock, and stop when their context ends.
func waits(t *testing.T, store *sqlitestore.Store) {
	t.Helper()
	lease := driver.Lease{ID: claimOf("elsewhere").ID, Owner: "somebody", Generation: 1}
	for name, verb := range map[string]func(ctx context.Context) error{
		"claim of another key": func(ctx context.Context) error {
			_, err := store.Reserve(ctx, claimOf("another"))
			return err
		},
		"Renew":    func(ctx context.Context) error { return store.Renew(ctx, lease, time.Hour) },
		"Complete": func(ctx context.Context) error { return store.Complete(ctx, lease, completed) },
		"Release":  func(ctx context.Context) error { return store.Release(ctx, lease) },
		"Begin":    func(ctx context.Context) error { _, _, err := store.Begin(ctx, claimOf("another"), 0); return err },
	} {
		t.Run(name, func(t *testing.T) {
			within(t, "waiting", func(ctx context.Context) {
				ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
				defer cancel()
				require.ErrorIs(t, verb(ctx), context.DeadlineExceeded)
			})
		})
	}
}

// TestDeadMeanwhile: what is abandoned, or repeated, waits for the lock like
// everything else that is written.
func TestDeadMeanwhile(t *testing.T) {
	store := newStore(t)
	claim := claimOf("dead")
	claim.Lease = time.Millisecond
	lease := acquire(t, store, claim)
	time.Sleep(5 * time.Millisecond)
	tx := begin(t, store, "working")
	all, err := store.Reap(t.Context(), 10)
	require.NoError(t, err)
	assert.Empty(t, all, "the lock is not free")
	answer := make(chan string)
	go func() { answer <- beginDecision(t, store, claimOf("dead")) }()
	require.NoError(t, tx.Commit(t.Context(), completed))
	assert.Equal(t, "undecided", <-answer)
	require.ErrorIs(t, store.Complete(t.Context(), lease, completed), driver.ErrLeaseLost)
}

// TestDuplicateElsewhere: one of another process waits for the lock, and then finds
// what has become of the operation.
func TestDuplicateElsewhere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	store, other := open(t, path), open(t, path)
	for name, row := range map[string]struct {
		end  func(tx driver.Transaction) error
		want string
	}{
		"Commit":   {func(tx driver.Transaction) error { return tx.Commit(t.Context(), completed) }, "done"},
		"Rollback": {func(tx driver.Transaction) error { return tx.Rollback(t.Context()) }, "acquired"},
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
	t.Run("Refuse", func(t *testing.T) {
		tx := begin(t, store, "Refuse")
		answers := make(chan string)
		go func() { answers <- beginDecision(t, other, claimOf("Refuse")) }()
		require.NoError(t, tx.RollbackAndRecord(t.Context(), completed))
		assert.Contains(t, []string{"done", "acquired"}, <-answers, "it may come between the work's end and its outcome")
		assert.Equal(t, "done", beginDecision(t, other, claimOf("Refuse")), "but changed nothing")
	})
}

// TestWritersGoOn: those who waited for a transaction get their turn after it.
func TestWritersGoOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	store := open(t, path)
	for name, other := range map[string]*sqlitestore.Store{"same store": store, "another store": open(t, path)} {
		t.Run(name, func(t *testing.T) {
			tx := begin(t, store, "working "+name)
			answer := make(chan driver.Decision)
			go func() {
				reservation, err := other.Reserve(t.Context(), claimOf("another "+name))
				assert.NoError(t, err)
				answer <- reservation.Decision
			}()
			select {
			case <-answer:
				t.Fatal("the claim did not wait")
			case <-time.After(50 * time.Millisecond):
			}
			require.NoError(t, tx.Commit(t.Context(), completed))
			assert.Equal(t, driver.Acquired, <-answer)
		})
	}
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
	})
	require.NoError(t, tx.Rollback(t.Context()))

	begin(t, impatient, "in line")
	within(t, "in line", func(ctx context.Context) {
		require.ErrorIs(t, impatient.Renew(ctx, lease, time.Hour), sqlitestore.ErrLocked)
	})
}

// TestBusyTimeoutAtTheHandler: a store that has waited as long as it was told to is not
// asked to wait again, and its client has an answer then.
func TestBusyTimeoutAtTheHandler(t *testing.T) {
	const patience = 3 * time.Second
	for name, joined := range map[string]bool{"joined": true, "detached": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, err := sqlitestore.Options{BusyTimeout: patience}.Open(t.Context(), filepath.Join(t.TempDir(), "test.db"))
				require.NoError(t, err)
				defer func() { require.NoError(t, store.Close()) }()
				tx := begin(t, store, "sleeps in its transaction")
				var told idempotency.Event
				h := idempotency.NewHandler(store, func(*http.Request) (string, error) { return "", nil },
					http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
				h.Transactional = joined
				h.Trace = &idempotency.Trace{Done: func(e *idempotency.Event) { told = *e }}
				post := func() int {
					r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/charges", nil)
					r.Header.Set("Idempotency-Key", "another")
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					return w.Code
				}
				began := time.Now()
				assert.Equal(t, http.StatusServiceUnavailable, post())
				assert.Equal(t, patience, time.Since(began))
				assert.Equal(t, idempotency.StoreFailed, told.Disposition)
				require.ErrorIs(t, told.Err, sqlitestore.ErrLocked)
				require.ErrorIs(t, told.Err, driver.ErrStoreBusy)
				require.NoError(t, tx.Rollback(t.Context()))
				assert.Equal(t, http.StatusCreated, post())
			})
		})
	}
}

// TestLimit: a transaction that nobody ends gives its turn back.
func TestLimit(t *testing.T) {
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

// TestTransactionOutlivesBeginsContext: only the waiting ends with it.
func TestTransactionOutlivesBeginsContext(t *testing.T) {
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

// TestPreparedStatements: those of DB run in the transaction.
func TestPreparedStatements(t *testing.T) {
	store := newStore(t)
	ledger(t, store.DB())
	insert, err := store.DB().PrepareContext(t.Context(), "INSERT INTO ledger (id) VALUES (?)")
	require.NoError(t, err)
	defer func(all *sql.Stmt) { _ = all.Close() }(insert)
	tx := begin(t, store, "key")
	insert = tx.Value().(*sql.Tx).StmtContext(t.Context(), insert)
	defer func() { _ = insert.Close() }()
	_, err = insert.ExecContext(t.Context(), "key")
	require.NoError(t, err)
	requireRows(t, store.DB(), "key", 0)
	require.NoError(t, tx.Commit(t.Context(), completed))
	requireRows(t, store.DB(), "key", 1)
}

// TestSmallPool: one whose turn it is can still read beside its transaction,
// however many wait for theirs, and who has the only connection can call verbs
// while somebody else wants to begin.
func TestSmallPool(t *testing.T) {
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
				_, err = count(ctx, db, "beside")
				assert.NoError(t, err)
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

// TestWorkEndsItsTransaction: whatever the work does to its transaction, nothing of
// it is committed without its record, and nothing is recorded that was undone.
func TestWorkEndsItsTransaction(t *testing.T) {
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
		failed bool // an ErrTransactionFailed
	}{
		{"Commit", (*sql.Tx).Commit, true, false},
		{"Rollback", (*sql.Tx).Rollback, false, false},
		{"COMMIT", exec("COMMIT"), true, true},
		{"ROLLBACK", exec("ROLLBACK"), false, true},
		{"ROLLBACK and what follows", exec("ROLLBACK", again), true, true},
		{"a conflict that rolls back, and what follows", exec("INSERT OR ROLLBACK INTO ledger (id) VALUES (NULL)", again), true, true},
	}
	ends := map[string]func(t *testing.T, tx driver.Transaction) error{
		"Commit": func(t *testing.T, tx driver.Transaction) error {
			t.Helper()
			return tx.Commit(t.Context(), completed)
		},
		"Rollback": func(t *testing.T, tx driver.Transaction) error { t.Helper(); return tx.Rollback(t.Context()) },
		"Refuse": func(t *testing.T, tx driver.Transaction) error {
			t.Helper()
			return tx.RollbackAndRecord(t.Context(), completed)
		},
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

				err = end(t, tx)
				want := "acquired"
				switch {
				case name == "Refuse":
					want = "done"
					require.NoError(t, err)
				case name == "Rollback":
					require.NoError(t, err)
				case row.failed:
					require.ErrorIs(t, err, driver.ErrTransactionFailed)
				default:
					require.ErrorIs(t, err, sql.ErrTxDone)
				}
				requireRows(t, store.DB(), "key", 0)
				within(t, "the turn is free", func(context.Context) {
					assert.Equal(t, want, beginDecision(t, store, claimOf("key")))
				})
				execute(t, store.DB(), again) // the connection is as it was
			})
		}
	}
}

// TestWorkWritesTheRecord: who got there first, if only by the work's own hand, is
// not overwritten.
func TestWorkWritesTheRecord(t *testing.T) {
	for _, before := range []string{"", "released"} {
		t.Run(before, func(t *testing.T) {
			store := newStore(t)
			ledger(t, store.DB())
			if before == "released" {
				require.NoError(t, store.Release(t.Context(), acquire(t, store, claimOf("key"))))
			}
			tx := begin(t, store, "key")
			require.NoError(t, write(t.Context(), tx.Value(), "key"))
			acquire(t, store.Within(tx.Value().(*sql.Tx)), claimOf("key"))
			require.ErrorIs(t, tx.Commit(t.Context(), completed), driver.ErrLeaseLost)
			requireRows(t, store.DB(), "key", 0)
			assert.Equal(t, "acquired", beginDecision(t, store, claimOf("key")))
		})
	}
}

// TestRefuseOvertaken: between the work's transaction and that of the refusal
// somebody of another process may have had the operation.
func TestRefuseOvertaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	store, other := open(t, path), open(t, path)
	tx := begin(t, store, "key")
	require.NoError(t, tx.Value().(*sql.Tx).Rollback())
	require.NoError(t, begin(t, other, "key").Commit(t.Context(), completed))
	refused := driver.Outcome{Status: driver.FailedFinal}
	require.ErrorIs(t, tx.RollbackAndRecord(t.Context(), refused), driver.ErrLeaseLost)
	record, err := store.Load(t.Context(), claimOf("key").ID)
	require.NoError(t, err)
	assert.Equal(t, driver.Completed, record.Status)
}

// TestRenewalFirst: who holds a lease goes before those who would take over, also
// if it comes later. Both wait for joined work, and the lease is over meanwhile.
func TestRenewalFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		claim := claimOf("detached")
		claim.Takeover = driver.Reexecute
		lease := acquire(t, store, claim)
		execute(t, store.DB(), "UPDATE idempotency_records SET lease_expires = 1")
		tx := begin(t, store, "joined")
		taker := make(chan string)
		go func() { taker <- decisionOf(t, store, claimOf("detached")) }()
		synctest.Wait() // it is in line
		renewed := make(chan error)
		go func() { renewed <- store.Renew(t.Context(), lease, time.Hour) }()
		synctest.Wait()
		require.NoError(t, tx.Commit(t.Context(), completed))
		require.NoError(t, <-renewed)
		assert.Equal(t, "busy", <-taker)
	})
}
