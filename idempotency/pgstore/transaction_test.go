package pgstore_test

import (
	"context"
	"database/sql"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/pgstore"
	"github.com/resilienthttp/resilienthttp/internal/postgrestest"
)

// begin claims an operation and opens its transaction.
func begin(tb testing.TB, store *pgstore.Store, key string) (idempotency.Lease, idempotency.Transaction) {
	tb.Helper()
	claim := newClaim(key)
	claim.Joined = true
	lease := acquire(tb, store, claim)
	tx, err := store.Begin(context.Background(), lease, time.Minute)
	require.NoError(tb, err)
	return lease, tx
}

// What the work does to its transaction, and what comes of it: what it wrote and its
// record go together, whatever it tries.
func TestWorkCannotPartFromItsRecord(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		do   func(t *testing.T, tx any)
		want func(t *testing.T, err error)
	}{
		{"fails a statement", func(t *testing.T, tx any) {
			require.Error(t, execute(tx, `SELECT 1/0`))
		}, func(t *testing.T, err error) { require.ErrorIs(t, err, idempotency.ErrTransactionFailed) }},
		{"deletes the record", func(t *testing.T, tx any) {
			require.NoError(t, execute(tx, `DELETE FROM idempotency_records`))
		}, func(t *testing.T, err error) { require.ErrorIs(t, err, idempotency.ErrLeaseLost) }},
		{"gives the record away", func(t *testing.T, tx any) {
			require.NoError(t, execute(tx, `UPDATE idempotency_records SET generation = generation + 1`))
		}, func(t *testing.T, err error) { require.ErrorIs(t, err, idempotency.ErrLeaseLost) }},
		{"violates a constraint that is checked at the end", func(t *testing.T, tx any) {
			require.NoError(t, execute(tx, `CREATE TABLE late (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)`))
			require.NoError(t, execute(tx, `INSERT INTO late VALUES (1), (1)`))
		}, func(t *testing.T, err error) { require.Equal(t, "23505", code(err)) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			eachFlavor(t, func(t *testing.T, dsn string, store *pgstore.Store) {
				count := effects(t, dsn)
				lease, tx := begin(t, store, "key")
				require.NoError(t, insert(t.Context(), tx.Value(), "key"))
				row.do(t, tx.Value())
				row.want(t, tx.Commit(t.Context(), completed))
				require.NoError(t, tx.Rollback(t.Context()))

				n, err := count(t.Context(), "key")
				require.NoError(t, err)
				assert.Zero(t, n)
				assert.Equal(t, idempotency.InProgress, statusOf(t, store, lease.ID))
				require.NoError(t, store.Complete(t.Context(), lease, completed), "the execution goes on")
			})
		})
	}
}

// Where the work ends its transaction by itself, what it has committed must not be
// done again. (Of a pgx.Tx it has to send COMMIT for that.)
func TestWorkEndsItsTransaction(t *testing.T) {
	t.Parallel()
	commit := func(tx any) error {
		if tx, ok := tx.(*sql.Tx); ok {
			return tx.Commit()
		}
		return execute(tx, "COMMIT")
	}
	eachFlavor(t, func(t *testing.T, dsn string, store *pgstore.Store) {
		count := effects(t, dsn)
		for name, end := range map[string]func(tx idempotency.Transaction) error{
			"and succeeds": func(tx idempotency.Transaction) error { return tx.Commit(t.Context(), completed) },
			"and fails":    func(tx idempotency.Transaction) error { return tx.Rollback(t.Context()) },
		} {
			lease, tx := begin(t, store, name)
			require.NoError(t, insert(t.Context(), tx.Value(), name))
			require.NoError(t, commit(tx.Value()))
			require.ErrorIs(t, end(tx), idempotency.ErrUnknown, name)
			require.NoError(t, tx.Rollback(t.Context()))
			n, err := count(t.Context(), name)
			require.NoError(t, err)
			assert.Equal(t, 1, n)
			assert.Equal(t, idempotency.InProgress, statusOf(t, store, lease.ID), "it is for the caller to end")
		}
	})
}

// A handler whose statement fails, on a row that is there already say, answers with
// a 4xx as it would without a record. That is final: nothing was written, and
// nothing would be the next time.
func TestRefusalAfterAFailedStatement(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, dsn string, store *pgstore.Store) {
		count := effects(t, dsn)
		for status, want := range map[int][]int{ // the answers to three requests
			http.StatusConflict: {http.StatusConflict, http.StatusConflict, http.StatusConflict},
			http.StatusCreated:  {http.StatusServiceUnavailable, http.StatusServiceUnavailable, http.StatusServiceUnavailable},
		} {
			executed := 0
			h := idempotency.NewHandler(store, func(*http.Request) (string, error) { return "tenant", nil },
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					executed++
					tx, err := anyTx(r.Context())
					assert.NoError(t, err)
					assert.NoError(t, insert(r.Context(), tx, "effect"))
					assert.Error(t, execute(tx, `SELECT 1/0`))
					w.WriteHeader(status)
				}))
			h.Joined = true
			for i := range want {
				w := httptest.NewRecorder()
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/charges", http.NoBody)
				r.Header.Set("Idempotency-Key", strconv.Itoa(status))
				h.ServeHTTP(w, r)
				assert.Equal(t, want[i], w.Code)
				assert.Equal(t, i > 0 && status == http.StatusConflict, w.Header().Get("Idempotency-Replayed") == "true")
			}
			assert.Equal(t, map[int]int{http.StatusConflict: 1, http.StatusCreated: 3}[status], executed)
		}
		n, err := count(t.Context(), "effect")
		require.NoError(t, err)
		assert.Zero(t, n)
	})
}

// anyTx is the transaction of either kind of store.
func anyTx(ctx context.Context) (any, error) {
	if tx, err := idempotency.Tx[pgx.Tx](ctx); err == nil {
		return tx, nil
	}
	return idempotency.Tx[*sql.Tx](ctx)
}

func TestWorkRollsBack(t *testing.T) {
	store := flavors[1].store(t, postgrestest.Open(t))
	_, tx := begin(t, store, "key")
	require.NoError(t, tx.Value().(*sql.Tx).Rollback())
	err := tx.Commit(t.Context(), completed)
	require.ErrorIs(t, err, sql.ErrTxDone)
	require.NotErrorIs(t, err, idempotency.ErrUnknown)
	require.ErrorContains(t, err, "deferred Rollback")
	_, tx = begin(t, store, "another key")
	require.NoError(t, tx.Value().(*sql.Tx).Rollback())
	require.NoError(t, tx.Rollback(t.Context()))
}

func execute(tx any, statement string) (err error) {
	switch tx := tx.(type) {
	case pgx.Tx:
		_, err = tx.Exec(context.Background(), statement)
	case *sql.Tx:
		_, err = tx.ExecContext(context.Background(), statement)
	}
	return err
}

// The work's pgx.Tx is closed when the transaction has ended: its connection is
// somebody else's by then.
func TestWorkEndsWithItsTransaction(t *testing.T) {
	dsn := postgrestest.Open(t)
	count := effects(t, dsn)
	pool := newPool(t, dsn, func(c *pgxpool.Config) { c.MaxConns = 1 })
	store := newStore(t, pool)
	ctx := t.Context()

	_, tx := begin(t, store, "key")
	work, ok := tx.Value().(pgx.Tx)
	require.True(t, ok)
	require.Error(t, work.Commit(ctx), "not by the work")
	require.Error(t, work.Rollback(ctx), "not by the work")
	undone, err := work.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, insert(ctx, undone, "undone"))
	require.NoError(t, undone.Rollback(ctx))
	done, err := work.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, insert(ctx, done, "done"))
	require.NoError(t, done.Commit(ctx))
	open, err := work.Begin(ctx)
	require.NoError(t, err)
	inner, err := open.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, insert(ctx, inner, "done"))
	require.NoError(t, tx.Commit(ctx, completed))

	for name, leftover := range map[string]pgx.Tx{"the transaction": work, "a savepoint": open, "one in one": inner} {
		assert.ErrorIs(t, insert(ctx, leftover, "late"), pgx.ErrTxClosed, name)
		assert.ErrorIs(t, leftover.Rollback(ctx), pgx.ErrTxClosed, "%s: as a deferred Rollback expects", name)
		_, err := leftover.Begin(ctx)
		assert.ErrorIs(t, err, pgx.ErrTxClosed, name)
	}
	for id, want := range map[string]int{"undone": 0, "done": 2, "late": 0} {
		n, err := count(ctx, id)
		require.NoError(t, err)
		assert.Equal(t, want, n, id)
	}
	assert.EqualValues(t, 0, pool.Stat().AcquiredConns())
}

// Rollback gives a usable connection back even if the context has ended, and a
// transaction outlives the context of Begin.
func TestTransactionOutlivesContexts(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, dsn string, store *pgstore.Store) {
		lease := acquire(t, store, newClaim("key"))
		ctx, cancel := context.WithCancel(t.Context())
		tx, err := store.Begin(ctx, lease, 0)
		require.NoError(t, err)
		cancel()
		require.NoError(t, execute(tx.Value(), `SELECT 1`))
		require.NoError(t, tx.Rollback(ctx))

		tx, err = store.Begin(t.Context(), lease, 0)
		require.NoError(t, err, "the record is not held any more")
		require.ErrorIs(t, tx.Commit(ctx, completed), context.Canceled)
		require.NoError(t, tx.Rollback(ctx))
		_, err = store.Begin(ctx, lease, 0)
		require.ErrorIs(t, err, context.Canceled)
	})
}

// A pool of one connection, which joined work has: others wait for it as long as
// their context lets them, and go on when it is free.
func TestPoolOfOne(t *testing.T) {
	for _, f := range flavors {
		t.Run(f.name, func(t *testing.T) {
			store := poolOfOne(t, f.name, postgrestest.Open(t))
			lease, tx := begin(t, store, "key")
			for name, call := range map[string]func(ctx context.Context) error{
				"Reserve": func(ctx context.Context) error { _, err := store.Reserve(ctx, newClaim("other")); return err },
				"Renew":   func(ctx context.Context) error { return store.Renew(ctx, lease, time.Hour) },
				"Begin":   func(ctx context.Context) error { _, err := store.Begin(ctx, lease, 0); return err },
			} {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				assert.ErrorIs(t, call(ctx), context.DeadlineExceeded, name)
				cancel()
			}
			waiting := make(chan error, 1)
			go func() {
				_, err := store.Reserve(context.Background(), newClaim("other"))
				waiting <- err
			}()
			require.NoError(t, tx.Commit(t.Context(), completed))
			require.NoError(t, <-waiting)

			_, err := store.Begin(t.Context(), lease, 0)
			require.ErrorIs(t, err, idempotency.ErrLeaseLost, "which takes a second look on the one connection")
		})
	}
}

func poolOfOne(t *testing.T, flavor, dsn string) *pgstore.Store {
	t.Helper()
	if flavor == "pgx" {
		return newStore(t, newPool(t, dsn, func(c *pgxpool.Config) { c.MaxConns = 1 }))
	}
	db := newDB(t, dsn)
	db.SetMaxOpenConns(1)
	store, err := pgstore.NewSQL(t.Context(), db, nil)
	require.NoError(t, err)
	return store
}

// While its own transaction is open, an execution's other verbs do not hang.
func TestLockedByItsOwnTransaction(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, dsn string, store *pgstore.Store) {
		lease, tx := begin(t, store, "key")
		for name, call := range map[string]func() error{
			"Renew":    func() error { return store.Renew(t.Context(), lease, time.Hour) },
			"Complete": func() error { return store.Complete(t.Context(), lease, completed) },
			"Release":  func() error { return store.Release(t.Context(), lease) },
			"Begin":    func() error { _, err := store.Begin(t.Context(), lease, 0); return err },
		} {
			err := call()
			assert.ErrorContains(t, err, "locked", name)
			assert.NotErrorIs(t, err, idempotency.ErrLeaseLost, name)
		}
		require.NoError(t, tx.Commit(t.Context(), completed))
	})
}

// Where joined work is serializable, one of two that cannot stand side by side is
// told to begin again, and nothing of it is committed.
func TestSerializableWork(t *testing.T) {
	for _, f := range flavors {
		t.Run(f.name, func(t *testing.T) {
			dsn := postgrestest.Open(t)
			count := effects(t, dsn)
			f.options = &pgstore.Options{Isolation: sql.LevelSerializable}
			store := f.store(t, dsn)
			lease1, tx1 := begin(t, store, "1")
			lease2, tx2 := begin(t, store, "2")
			// Each reads what the other writes.
			for _, tx := range []any{tx1.Value(), tx2.Value()} {
				require.NoError(t, execute(tx, `SELECT count(*) FROM effects`))
			}
			require.NoError(t, insert(t.Context(), tx1.Value(), "1"))
			require.NoError(t, insert(t.Context(), tx2.Value(), "2"))
			require.NoError(t, tx1.Commit(t.Context(), completed))
			assert.Equal(t, "40001", code(tx2.Commit(t.Context(), completed)))

			assert.Equal(t, idempotency.Completed, statusOf(t, store, lease1.ID))
			assert.Equal(t, idempotency.InProgress, statusOf(t, store, lease2.ID))
			n, err := count(t.Context(), "2")
			require.NoError(t, err)
			assert.Zero(t, n)
			again, err := store.Begin(t.Context(), lease2, 0)
			require.NoError(t, err)
			require.NoError(t, again.Commit(t.Context(), completed))
		})
	}
}
