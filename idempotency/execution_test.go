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
)

// This file is about what work can learn and ask through its context: its
// execution, its transaction, and that a refusal keep its writes.

func TestFromContextOutsideOfAnExecution(t *testing.T) {
	e, ok := idempotency.FromContext(t.Context())
	assert.False(t, ok)
	assert.Zero(t, e)
	_, err := idempotency.Tx[*ledgerTx](t.Context())
	require.ErrorIs(t, err, idempotency.ErrNoTransaction)
	assert.NotPanics(t, func() { idempotency.Keep(t.Context()) })
}

// The whole of joined work is two round trips beside its own statements.
func TestJoinedIsOneBeginAndOneCommit(t *testing.T) {
	for _, row := range []struct {
		name string
		code int
		want map[string]int
	}{
		{"done", http.StatusCreated, map[string]int{onBegin: 1, onCommit: 1}},
		{"refused", http.StatusNotFound, map[string]int{onBegin: 1, onRefuse: 1}},
		{"failed", http.StatusInternalServerError, map[string]int{onBegin: 1, onRollback: 1}},
	} {
		t.Run(row.name, func(t *testing.T) {
			store := faultyTx(newLedger())
			r := newRig(store, charge(t, row.code), joined)
			assert.Equal(t, row.code, r.post(t).Code)
			assert.Equal(t, row.want, store.counts())
		})
	}
}

// A duplicate of joined work that is finished takes one, and opens nothing.
func TestJoinedReplayIsOneBegin(t *testing.T) {
	store := faultyTx(newLedger())
	r := newRig(store, charge(t, http.StatusCreated), joined)
	first := r.post(t)
	requireReplay(t, first, r.post(t))
	assert.Equal(t, map[string]int{onBegin: 2, onCommit: 1}, store.counts())
}

func TestTxIsOneTransaction(t *testing.T) {
	r := newRig(newLedger(), func(w http.ResponseWriter, req *http.Request) {
		first, err := idempotency.Tx[*ledgerTx](req.Context())
		assert.NoError(t, err)
		second, err := idempotency.Tx[*ledgerTx](context.WithValue(req.Context(), errDown, 1))
		assert.NoError(t, err)
		assert.Same(t, first, second)
		e, ok := idempotency.FromContext(req.Context())
		assert.True(t, ok)
		assert.Equal(t, first.lease, e.Lease)
		w.WriteHeader(http.StatusCreated)
	}, joined)
	assert.Equal(t, http.StatusCreated, r.post(t).Code)
}

func TestTxIsOneTransactionForSeveralGoroutines(t *testing.T) {
	store := newLedger()
	r := newRig(store, func(w http.ResponseWriter, req *http.Request) {
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				tx, err := idempotency.Tx[*ledgerTx](req.Context())
				if assert.NoError(t, err) {
					assert.NoError(t, tx.Add("acct", 10))
				}
				idempotency.Keep(req.Context())
			})
		}
		wg.Wait()
		w.WriteHeader(http.StatusPaymentRequired)
	}, joined)
	r.post(t)
	assert.Equal(t, 100, store.sum("acct"))
}

// Work that never asks for the transaction is recorded all the same.
func TestJoinedWithoutTx(t *testing.T) {
	store := faultyTx(newLedger())
	r := newRig(store, answer(http.StatusCreated, "made"), joined)
	requireReplay(t, r.post(t), r.post(t))
	assert.Equal(t, 1, store.count(onCommit))
}

func TestTxLimit(t *testing.T) {
	for _, row := range []struct {
		name        string
		limit, want time.Duration
	}{
		{"default", 0, 15 * time.Minute},
		{"a minute", time.Minute, time.Minute},
		{"none", -1, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(newLedger(), func(w http.ResponseWriter, req *http.Request) {
				tx, err := idempotency.Tx[*ledgerTx](req.Context())
				if assert.NoError(t, err) {
					assert.Equal(t, row.want, tx.limit)
				}
				w.WriteHeader(http.StatusCreated)
			}, joined, func(h *idempotency.Handler) { h.Limit = row.limit })
			assert.Equal(t, http.StatusCreated, r.post(t).Code)
		})
	}
}

// The database ends a transaction at the limit. What was in it is gone, and its
// client is told so.
func TestTxOverTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		work := charge(t, http.StatusCreated)
		r := newRig(store, func(w http.ResponseWriter, req *http.Request) {
			work(w, req)
			time.Sleep(time.Hour)
			assert.Equal(t, idempotency.ErrOverrun, context.Cause(req.Context()))
		}, joined, func(h *idempotency.Handler) { h.Limit = time.Minute })
		requireProblem(t, r.post(t), http.StatusServiceUnavailable, "store")
		assert.Zero(t, store.sum("acct"))
		assert.Empty(t, r.unknowns(), "nothing has happened, and that is known")
	})
}

func TestTxErrors(t *testing.T) {
	for _, row := range []struct {
		name   string
		store  idempotency.Store
		joined bool
		tx     func(ctx context.Context) error
		says   string
	}{
		{"a store without transactions", new(idempotency.Memory), false, txOf[*ledgerTx], "not Joined"},
		{"detached work", newLedger(), false, txOf[*ledgerTx], "not Joined"},
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
			}, func(h *idempotency.Handler) { h.Joined = row.joined })
			assert.Equal(t, http.StatusCreated, r.post(t).Code)
			require.ErrorIs(t, after(), idempotency.ErrNoTransaction)
		})
	}
}

func txOf[T any](ctx context.Context) error {
	_, err := idempotency.Tx[T](ctx)
	return err
}

// What work leaves behind gets no transaction while its record is being written.
func TestTxAfterTheEnd(t *testing.T) {
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
		}, joined)
		assert.Equal(t, http.StatusNotFound, r.post(t).Code)
		err := <-late
		require.ErrorIs(t, err, idempotency.ErrNoTransaction)
		require.ErrorContains(t, err, "over")
		assert.Zero(t, ledger.sum("acct"))
	})
}

// An early return rolls back, as everywhere else in Go. A refusal is stored
// without what was written, unless that is to be kept.
func TestJoinedEarlyReturnRollsBack(t *testing.T) {
	for _, row := range []struct {
		name   string
		code   int
		keep   bool
		record idempotency.Status // 0: none, the key is free
		sum    int
		d      idempotency.Disposition
	}{
		{"200", 200, false, idempotency.Completed, 100, idempotency.Executed},
		{"303", 303, false, idempotency.Completed, 100, idempotency.Executed},
		{"400", 400, false, idempotency.FailedFinal, 0, idempotency.Executed},
		{"402", 402, false, idempotency.FailedFinal, 0, idempotency.Executed},
		{"402 that wants its rows", 402, true, idempotency.FailedFinal, 100, idempotency.Executed},
		{"422", 422, false, idempotency.FailedFinal, 0, idempotency.Executed},
		{"401", 401, false, 0, 0, idempotency.Released},
		{"429", 429, false, 0, 0, idempotency.Released},
		{"429, and Keep", 429, true, 0, 0, idempotency.Released},
		{"500", 500, false, 0, 0, idempotency.Released},
		{"500, and Keep", 500, true, 0, 0, idempotency.Released},
		{"503, and Keep", 503, true, 0, 0, idempotency.Released},
		{"unknown, by policy", 599, false, idempotency.Unknown, 0, idempotency.Doubtful},
		{"unknown, by policy, and Keep", 599, true, idempotency.Unknown, 0, idempotency.Doubtful},
	} {
		t.Run(row.name, func(t *testing.T) {
			store := newLedger()
			work := charge(t, row.code)
			r := newRig(store, func(w http.ResponseWriter, req *http.Request) {
				if row.keep {
					idempotency.Keep(req.Context())
				}
				work(w, req)
			}, joined, func(h *idempotency.Handler) {
				h.Settle = func(code int) idempotency.Status {
					if code == 599 {
						return idempotency.Unknown
					}
					return 0
				}
			})
			first := r.post(t)
			assert.Equal(t, row.code, first.Code)
			assert.Equal(t, row.sum, store.sum("acct"))
			assert.Zero(t, store.transactions())
			assert.Equal(t, []idempotency.Disposition{row.d}, r.dispositions())
			requireRecord(t, store, theID, row.record)
			switch {
			case row.record.Finished():
				requireReplay(t, first, r.post(t))
				assert.EqualValues(t, 1, r.executions.Load())
			case row.record == idempotency.Unknown:
				requireUnknown(t, r)
			default:
				assert.Equal(t, row.code, r.post(t).Code)
				assert.EqualValues(t, 2, r.executions.Load())
			}
			assert.Equal(t, row.sum, store.sum("acct"))
		})
	}
}

// A refusal whose body is too large to be stored is a refusal still.
func TestJoinedRefusalTooLargeToBeKept(t *testing.T) {
	for _, row := range []struct {
		name string
		keep bool
		sum  int
	}{{"rolled back", false, 0}, {"kept", true, 100}} {
		t.Run(row.name, func(t *testing.T) {
			store := newLedger()
			work := charge(t, http.StatusPaymentRequired)
			r := newRig(store, func(w http.ResponseWriter, req *http.Request) {
				if row.keep {
					idempotency.Keep(req.Context())
				}
				work(w, req)
			}, joined, func(h *idempotency.Handler) { h.MaxResponse = 3 })
			assert.Equal(t, http.StatusPaymentRequired, r.post(t).Code)
			assert.Equal(t, row.sum, store.sum("acct"))
			requireRecord(t, store, theID, idempotency.CompletedUnreplayable)
		})
	}
}

// Detached work has no transaction whose writes it could keep.
func TestKeepInDetachedWorkDoesNothing(t *testing.T) {
	for _, code := range []int{http.StatusCreated, http.StatusPaymentRequired} {
		bare, kept := faulty(newLedger()), faulty(newLedger())
		for _, store := range []*faultyStore{bare, kept} {
			r := newRig(store, func(w http.ResponseWriter, req *http.Request) {
				if store == kept {
					idempotency.Keep(req.Context())
				}
				w.WriteHeader(code)
			})
			requireReplay(t, r.post(t), r.post(t))
		}
		assert.Equal(t, bare.counts(), kept.counts())
	}
}

// One execution inside another has its own transaction, or none.
func TestExecutionInAnExecution(t *testing.T) {
	ledger := newLedger()
	r := newRig(ledger, func(w http.ResponseWriter, req *http.Request) {
		_, err := idempotency.Do(req.Context(), new(idempotency.Memory), "", "inner", "k", "", func(ctx context.Context) (idempotency.Result, error) {
			idempotency.Keep(ctx) // its own, and not the outer one's
			return idempotency.Result{}, txOf[*ledgerTx](ctx)
		})
		assert.ErrorIs(t, err, idempotency.ErrNoTransaction)
		charge(t, http.StatusPaymentRequired)(w, req)
	}, joined)
	assert.Equal(t, http.StatusPaymentRequired, r.post(t).Code)
	assert.Zero(t, ledger.sum("acct"))
}

// requireRecord reads a record's status; 0: there is no record.
func requireRecord(t *testing.T, store idempotency.Store, id idempotency.ID, want idempotency.Status) {
	t.Helper()
	record, err := store.Load(t.Context(), id)
	if errors.Is(err, idempotency.ErrNotFound) {
		err = nil
	}
	require.NoError(t, err)
	require.Equal(t, want.String(), record.Status.String())
}
