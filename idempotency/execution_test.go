package idempotency_test

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/idempotency/internal/driver"
)

// This file tests the functions of an execution's context: FromContext, Tx and
// CommitOnFailure.

func TestFromContextOutsideOfAnExecution(t *testing.T) {
	e, ok := idempotency.FromContext(t.Context())
	assert.False(t, ok)
	assert.Zero(t, e)
	require.ErrorIs(t, errOf(idempotency.Tx[*ledgerTx](t.Context())), idempotency.ErrNoTransaction)
	assert.NotPanics(t, func() { idempotency.CommitOnFailure(t.Context()) })
}

func TestTx_isOneTransactionForSeveralGoroutines(t *testing.T) {
	store := newLedger()
	r := newRig(store, func(w http.ResponseWriter, req *http.Request) {
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				tx, err := idempotency.Tx[*ledgerTx](req.Context())
				if assert.NoError(t, err) {
					assert.NoError(t, tx.Add("acct", 10))
				}
				idempotency.CommitOnFailure(req.Context())
			})
		}
		wg.Wait()
		w.WriteHeader(http.StatusPaymentRequired)
	}, transactional)
	r.post(t)
	assert.Equal(t, 100, store.sum("acct"))
}

func TestTx_errors(t *testing.T) {
	for _, row := range []struct {
		name          string
		store         idempotency.Store
		transactional bool
		tx            func(ctx context.Context) error
		says          string
	}{
		{"a store without transactions", new(idempotency.Memory), false, txOf[*ledgerTx], "Options.Transactional is false"},
		{"non-transactional work", newLedger(), false, txOf[*ledgerTx], "Options.Transactional is false"},
		{"another type", newLedger(), true, txOf[*sql.Tx], "ledgerTx"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var after func() error
			r := newRig(row.store, func(w http.ResponseWriter, req *http.Request) {
				err := row.tx(req.Context())
				if assert.ErrorIs(t, err, idempotency.ErrNoTransaction) {
					assert.ErrorContains(t, err, row.says)
				}
				after = func() error { return row.tx(req.Context()) }
				w.WriteHeader(http.StatusCreated)
			}, func(h *idempotency.Handler) { h.Transactional = row.transactional })
			assert.Equal(t, http.StatusCreated, r.post(t).Code)
			require.ErrorIs(t, after(), idempotency.ErrNoTransaction)
		})
	}
}

func txOf[T any](ctx context.Context) error { return errOf(idempotency.Tx[T](ctx)) }

// A goroutine that work leaves behind gets no transaction while the record is being written.
func TestTx_afterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger := newLedger()
		store := faultyTx(ledger, rule{onRefuse, 1, 0, fault{delay: time.Second}})
		work := charge(t, http.StatusNotFound)
		late := make(chan error, 1)
		r := newRig(store, func(w http.ResponseWriter, req *http.Request) {
			work(w, req)
			go func() {
				time.Sleep(time.Second / 2)
				late <- txOf[*ledgerTx](req.Context())
			}()
		}, transactional)
		assert.Equal(t, http.StatusNotFound, r.post(t).Code)
		err := <-late
		require.ErrorIs(t, err, idempotency.ErrNoTransaction)
		require.ErrorContains(t, err, "has ended")
		assert.Zero(t, ledger.sum("acct"))
	})
}

// requireRecord reads a record's status; 0: there is no record.
func requireRecord(t *testing.T, store idempotency.Store, id idempotency.ID, want idempotency.Status) {
	t.Helper()
	record, err := store.Load(t.Context(), id)
	if errors.Is(err, driver.ErrNotFound) {
		err = nil
	}
	require.NoError(t, err)
	require.Equal(t, want.String(), record.Status.String())
}
