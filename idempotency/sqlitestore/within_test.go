package sqlitestore_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/sqlitestore"
	"github.com/resilienthttp/resilienthttp/idempotency/storetest"
)

// eachAlone is a Store whose every verb has a transaction of its own.
type eachAlone struct{ *sqlitestore.Store }

func (s eachAlone) do(ctx context.Context, verb func(w *sqlitestore.Within) error) error {
	tx, err := s.DB().BeginTx(ctx, nil)
	var e *sqlite.Error
	for errors.As(err, &e) && e.Code() == sqlite3.SQLITE_BUSY {
		tx, err = s.DB().BeginTx(ctx, nil) // SQLite's own waiting is not fair, and a slow machine may starve it
	}
	if err != nil {
		return err
	}
	if err := verb(s.Within(tx)); err != nil {
		_ = tx.Rollback()
		return err
	}
	return tx.Commit()
}

func (s eachAlone) Reserve(ctx context.Context, c idempotency.Claim) (r idempotency.Reservation, err error) {
	err = s.do(ctx, func(w *sqlitestore.Within) error { r, err = w.Reserve(ctx, c); return err })
	return r, err
}

func (s eachAlone) Renew(ctx context.Context, l idempotency.Lease, d time.Duration) error {
	return s.do(ctx, func(w *sqlitestore.Within) error { return w.Renew(ctx, l, d) })
}

func (s eachAlone) Complete(ctx context.Context, l idempotency.Lease, o idempotency.Outcome) error {
	return s.do(ctx, func(w *sqlitestore.Within) error { return w.Complete(ctx, l, o) })
}

func (s eachAlone) Release(ctx context.Context, l idempotency.Lease) error {
	return s.do(ctx, func(w *sqlitestore.Within) error { return w.Release(ctx, l) })
}

func (s eachAlone) Load(ctx context.Context, id idempotency.ID) (r idempotency.Record, err error) {
	err = s.do(ctx, func(w *sqlitestore.Within) error { r, err = w.Load(ctx, id); return err })
	return r, err
}

func (s eachAlone) Sweep(ctx context.Context, limit int) (n int, err error) {
	err = s.do(ctx, func(w *sqlitestore.Within) error { n, err = w.Sweep(ctx, limit); return err })
	return n, err
}

// store hides Begin: a transaction in a transaction there is not.
type storeOnly struct{ idempotency.Store }

func TestWithinIsAStore(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "test.db")
	store := open(t, path)
	storetest.Suite{
		Open:  func(*testing.T) idempotency.Store { return storeOnly{eachAlone{store}} },
		Again: func(t *testing.T) idempotency.Store { return storeOnly{open(t, path)} },
		Rows:  -1,
	}.Run(t)
}

// TestInbox is a consumer's transaction: the record and the effect at once, or
// neither.
func TestInbox(t *testing.T) {
	db := openWork(t, filepath.Join(t.TempDir(), "test.db"), "_txlock=immediate")
	ledger(t, db)
	store, err := sqlitestore.New(t.Context(), db)
	require.NoError(t, err)
	defer func() { _ = store.Close() }()
	consume := func(key string, fail bool) string {
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer tx.Rollback() //nolint:errcheck // after Commit it does nothing
		inbox := store.Within(tx)
		reservation, err := inbox.Reserve(t.Context(), claimOf(key))
		require.NoError(t, err)
		assert.Equal(t, reservation.Decision == idempotency.Acquired, reservation.Held)
		if reservation.Decision != idempotency.Acquired {
			return reservation.Decision.String()
		}
		require.NoError(t, write(t.Context(), tx, key))
		require.NoError(t, inbox.Complete(t.Context(), reservation.Record.Lease(), completed))
		record, err := inbox.Load(t.Context(), reservation.Record.ID)
		require.NoError(t, err)
		assert.Equal(t, idempotency.Completed, record.Status)
		_, err = store.Load(t.Context(), record.ID)
		require.ErrorIs(t, err, idempotency.ErrNotFound, "nobody else sees it yet")
		if fail {
			return "failed"
		}
		require.NoError(t, tx.Commit())
		return "consumed"
	}
	assert.Equal(t, "failed", consume("message", true))
	assert.Equal(t, "consumed", consume("message", false))
	assert.Equal(t, "done", consume("message", false))
	assert.Equal(t, "done", decisionOf(t, store, claimOf("message")))
	n, err := count(t.Context(), db, "message")
	require.NoError(t, err)
	assert.Equal(t, 1, n)
}

// TestWithinDeferred: a deferred transaction that begins with Reserve has the
// write lock from there on, and reads what is true.
func TestWithinDeferred(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	db := openWork(t, path, "")
	store, err := sqlitestore.New(t.Context(), db)
	require.NoError(t, err)
	defer func() { _ = store.Close() }()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback() //nolint:errcheck // it is the end
	claim := claimOf("key")
	require.NoError(t, store.Complete(t.Context(), acquire(t, store, claim), completed))
	assert.Equal(t, "done", decisionOf(t, store.Within(tx), claim))

	impatient, err := sqlitestore.Options{BusyTimeout: -1}.Open(t.Context(), path)
	require.NoError(t, err)
	defer func() { _ = impatient.Close() }()
	_, err = impatient.Reserve(t.Context(), claimOf("another"))
	require.ErrorIs(t, err, sqlitestore.ErrLocked)
}
