package sqlitestore_test

import (
	"context"
	"errors"
	"iter"
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

func (s eachAlone) Abandon(ctx context.Context, n int) (all []idempotency.Record, err error) {
	err = s.do(ctx, func(w *sqlitestore.Within) error { all, err = w.Abandon(ctx, n); return err })
	return all, err
}

// Unknown reads all at once: the reconciler, who comes in between, has another transaction.
func (s eachAlone) Unknown(ctx context.Context, scope string) iter.Seq2[idempotency.Record, error] {
	return func(yield func(idempotency.Record, error) bool) {
		var all []idempotency.Record
		err := s.do(ctx, func(w *sqlitestore.Within) error {
			for record, err := range w.Unknown(ctx, scope) {
				if err != nil {
					return err
				}
				all = append(all, record)
			}
			return nil
		})
		for _, record := range all {
			if !yield(record, nil) {
				return
			}
		}
		if err != nil {
			yield(idempotency.Record{}, err)
		}
	}
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
