package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/sqlitestore"
)

// soon is far less than any busy timeout, and far more than what does not wait.
const soon = 5 * time.Second

func begin(t *testing.T, store *sqlitestore.Store, key string, lease time.Duration) idempotency.Transaction {
	t.Helper()
	claim := claimOf(key)
	claim.Joined, claim.Lease = true, lease
	tx, err := store.Begin(t.Context(), acquire(t, store, claim), 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tx.Rollback(context.Background())) })
	return tx
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

// TestOpenTransaction is what all others meet while a transaction is open: this
// store, and one of another process.
func TestOpenTransaction(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	store := open(t, path)
	done := claimOf("done")
	require.NoError(t, store.Complete(t.Context(), acquire(t, store, done), completed))
	tx := begin(t, store, "working", time.Millisecond)
	time.Sleep(5 * time.Millisecond) // its lease is over
	for name, other := range map[string]*sqlitestore.Store{"same store": store, "another store": open(t, path)} {
		t.Run(name, func(t *testing.T) {
			var wait sync.WaitGroup
			within(t, "a hundred duplicates", func(context.Context) {
				for range 100 {
					wait.Go(func() { assert.Equal(t, "busy", decisionOf(t, other, claimOf("working"))) })
				}
				wait.Wait()
			})
			abandon := claimOf("working")
			abandon.Takeover = idempotency.MarkUnknown
			within(t, "giving it up", func(context.Context) { assert.Equal(t, "busy", decisionOf(t, other, abandon)) })
			within(t, "a replay", func(context.Context) { assert.Equal(t, "done", decisionOf(t, other, done)) })
			within(t, "Load", func(ctx context.Context) {
				_, err := other.Load(ctx, done.ID)
				require.NoError(t, err)
			})
			within(t, "Sweep", func(ctx context.Context) {
				_, err := other.Sweep(ctx, 100)
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
	lease := idempotency.Lease{ID: claimOf("elsewhere").ID, Owner: "somebody", Generation: 1}
	for name, verb := range map[string]func(ctx context.Context) error{
		"claim of another key": func(ctx context.Context) error {
			_, err := store.Reserve(ctx, claimOf("another"))
			return err
		},
		"Renew":    func(ctx context.Context) error { return store.Renew(ctx, lease, time.Hour) },
		"Complete": func(ctx context.Context) error { return store.Complete(ctx, lease, completed) },
		"Release":  func(ctx context.Context) error { return store.Release(ctx, lease) },
		"Begin":    func(ctx context.Context) error { _, err := store.Begin(ctx, lease, 0); return err },
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

// TestWritersGoOn: those who waited for a transaction get their turn after it.
func TestWritersGoOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	store := open(t, path)
	for name, other := range map[string]*sqlitestore.Store{"same store": store, "another store": open(t, path)} {
		t.Run(name, func(t *testing.T) {
			tx := begin(t, store, "working "+name, time.Hour)
			answer := make(chan idempotency.Decision)
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
			assert.Equal(t, idempotency.Acquired, <-answer)
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
	tx := begin(t, store, "working", time.Hour)
	within(t, "another process", func(ctx context.Context) {
		require.ErrorIs(t, impatient.Renew(ctx, lease, time.Hour), sqlitestore.ErrLocked)
		_, err := impatient.Begin(ctx, lease, 0)
		require.ErrorIs(t, err, sqlitestore.ErrLocked)
	})
	require.NoError(t, tx.Rollback(t.Context()))

	begin(t, impatient, "in line", time.Hour)
	within(t, "in line", func(ctx context.Context) {
		require.ErrorIs(t, impatient.Renew(ctx, lease, time.Hour), sqlitestore.ErrLocked)
	})
}

// TestLimit: a transaction that nobody ends gives its turn back.
func TestLimit(t *testing.T) {
	store := newStore(t)
	ledger(t, store.DB())
	tx, err := store.Begin(t.Context(), acquire(t, store, claimOf("endless")), 20*time.Millisecond)
	require.NoError(t, err)
	require.NoError(t, write(t.Context(), tx.Value(), "endless"))
	within(t, "the next", func(context.Context) { acquire(t, store, claimOf("next")) })
	require.ErrorIs(t, tx.Commit(t.Context(), completed), sql.ErrTxDone)
	require.NoError(t, tx.Rollback(t.Context()))
	n, err := count(t.Context(), store.DB(), "endless")
	require.NoError(t, err)
	assert.Zero(t, n)
	assert.Equal(t, "busy", decisionOf(t, store, claimOf("endless")))
}

// TestTransactionOutlivesBeginsContext: only the waiting ends with it.
func TestTransactionOutlivesBeginsContext(t *testing.T) {
	store := newStore(t)
	ledger(t, store.DB())
	ctx, cancel := context.WithCancel(t.Context())
	tx, err := store.Begin(ctx, acquire(t, store, claimOf("key")), 0)
	require.NoError(t, err)
	cancel()
	time.Sleep(10 * time.Millisecond)
	require.NoError(t, write(t.Context(), tx.Value(), "key"))
	require.NoError(t, tx.Commit(t.Context(), completed))
	n, err := count(t.Context(), store.DB(), "key")
	require.NoError(t, err)
	assert.Equal(t, 1, n)
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
				tx, err := store.Begin(ctx, acquire(t, store, claimOf(string(rune('a'+i)))), 0)
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
		mine, other := acquire(t, store, claimOf("mine")), acquire(t, store, claimOf("other"))
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		began := make(chan error, 1)
		go func() {
			tx, err := store.Begin(t.Context(), other, 0)
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

// TestWorkEndsItsTransaction: what the work has committed by itself has happened,
// and its record is not there. Nobody may do it again.
func TestWorkEndsItsTransaction(t *testing.T) {
	for _, row := range []struct {
		name    string
		end     func(tx *sql.Tx) error
		written int
		status  idempotency.Status
	}{
		{"Commit", (*sql.Tx).Commit, 1, idempotency.Unknown},
		{"Rollback", (*sql.Tx).Rollback, 0, idempotency.InProgress},
		{"ROLLBACK", func(tx *sql.Tx) error { _, err := tx.Exec("ROLLBACK"); return err }, 0, idempotency.InProgress},
	} {
		test := func(t *testing.T, commit bool) {
			t.Helper()
			store := newStore(t)
			ledger(t, store.DB())
			claim := claimOf("key")
			claim.Joined = true
			tx, err := store.Begin(t.Context(), acquire(t, store, claim), 0)
			require.NoError(t, err)
			require.NoError(t, write(t.Context(), tx.Value(), "key"))
			require.NoError(t, row.end(tx.Value().(*sql.Tx)))
			record, err := store.Load(t.Context(), claim.ID)
			require.NoError(t, err)
			assert.Equal(t, row.status, record.Status, "also if the process dies here")

			if commit {
				err = tx.Commit(t.Context(), completed)
				require.Error(t, err)
				assert.Equal(t, row.written > 0, errors.Is(err, idempotency.ErrUnknown), err)
			} else {
				err = tx.Rollback(t.Context())
				assert.Equal(t, row.written > 0, errors.Is(err, idempotency.ErrUnknown), err)
			}
			require.NoError(t, tx.Rollback(t.Context()))
			n, err := count(t.Context(), store.DB(), "key")
			require.NoError(t, err)
			assert.Equal(t, row.written, n)
			record, err = store.Load(t.Context(), claim.ID)
			require.NoError(t, err)
			assert.Equal(t, row.status, record.Status)
			within(t, "the turn is free", func(context.Context) { acquire(t, store, claimOf("next")) })
		}
		t.Run(row.name+" and success", func(t *testing.T) { test(t, true) })
		t.Run(row.name+" and failure", func(t *testing.T) { test(t, false) })
	}
}
