package idempotency_test

import (
	"context"
	"database/sql"
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
// execution, its transaction, and that the transaction be discarded.

func TestFromContextOutsideOfAnExecution(t *testing.T) {
	e, ok := idempotency.FromContext(t.Context())
	assert.False(t, ok)
	assert.Zero(t, e)
	_, err := idempotency.Tx[*ledgerTx](t.Context())
	require.ErrorIs(t, err, idempotency.ErrNoTransaction)
	require.NoError(t, idempotency.Discard(t.Context()))
}

func TestTxIsOneTransaction(t *testing.T) {
	store := faultyTx(newLedger())
	r := newRig(store, func(_ http.ResponseWriter, req *http.Request) {
		first, err := idempotency.Tx[*ledgerTx](req.Context())
		assert.NoError(t, err)
		second, err := idempotency.Tx[*ledgerTx](context.WithValue(req.Context(), errDown, 1))
		assert.NoError(t, err)
		assert.Same(t, first, second)
		assert.Equal(t, 15*time.Minute, first.limit.Round(time.Second))
	}, joined)
	r.post(t)
	assert.Equal(t, 1, store.count(onBegin))
	assert.Equal(t, 1, store.count(onCommit))
	assert.Zero(t, store.count(onComplete), "the record is a part of the transaction")
	assert.Zero(t, store.count(onRollback))
}

func TestTxIsOneTransactionForSeveralGoroutines(t *testing.T) {
	store := faultyTx(newLedger(), rule{onBegin, 1, 0, fault{linger: time.Millisecond}})
	r := newRig(store, func(_ http.ResponseWriter, req *http.Request) {
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				tx, err := idempotency.Tx[*ledgerTx](req.Context())
				if assert.NoError(t, err) {
					assert.NoError(t, tx.Add("acct", 10))
				}
			})
		}
		wg.Wait()
	}, joined)
	r.post(t)
	assert.Equal(t, 1, store.count(onBegin))
	assert.Equal(t, 100, store.Store.(*ledgerStore).sum("acct"))
}

// Work that never asks for the transaction needs none.
func TestJoinedWithoutTx(t *testing.T) {
	store := faultyTx(newLedger())
	r := newRig(store, answer(http.StatusCreated, "made"), joined)
	requireReplay(t, r.post(t), r.post(t))
	assert.Zero(t, store.count(onBegin))
	assert.Equal(t, 1, store.count(onComplete))
}

// Detached work may use it too; a crash is another matter.
func TestTxInDetachedWork(t *testing.T) {
	store := newLedger()
	r := newRig(store, charge(t, 201))
	requireReplay(t, r.post(t), r.post(t))
	assert.Equal(t, 100, store.sum("acct"))
}

func TestTxLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, row := range []struct{ limit, begin, want time.Duration }{
			{time.Minute, 0, time.Minute},
			{time.Minute, time.Second, 59 * time.Second},
			{-1, time.Second, 0},
		} {
			r := newRig(newLedger(), func(_ http.ResponseWriter, req *http.Request) {
				time.Sleep(row.begin)
				tx, err := idempotency.Tx[*ledgerTx](req.Context())
				if assert.NoError(t, err) {
					assert.Equal(t, row.want, tx.limit)
				}
			}, joined, func(h *idempotency.Handler) { h.Limit = row.limit })
			assert.Equal(t, http.StatusOK, r.post(t).Code)
		}
	})
}

// The database ends a transaction at the limit. What was in it is gone, and its
// work is told so by a failing commit.
func TestTxOverTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		work := charge(t, 201)
		r := newRig(store, func(w http.ResponseWriter, req *http.Request) {
			work(w, req)
			time.Sleep(time.Hour)
		}, joined, func(h *idempotency.Handler) { h.Limit = time.Minute })
		requireProblem(t, r.post(t), http.StatusServiceUnavailable, "store")
		assert.Zero(t, store.sum("acct"))
	})
}

func TestTxErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, ledger := new(idempotency.Memory), newLedger()
		for _, row := range []struct {
			name   string
			store  idempotency.Store
			before func(ctx context.Context)
			tx     func(ctx context.Context) error
			want   error
			says   string
		}{
			{"a store without transactions", memory, nil, txOf[*ledgerTx], idempotency.ErrNoTransaction, "Memory"},
			{"another type", ledger, nil, txOf[*sql.Tx], idempotency.ErrNoTransaction, "ledgerTx"},
			{"after Discard", ledger, func(ctx context.Context) {
				assert.NoError(t, txOf[*ledgerTx](ctx))
				assert.NoError(t, idempotency.Discard(ctx))
			}, txOf[*ledgerTx], idempotency.ErrNoTransaction, "over"},
			{"lost lease, found by Begin", ledger, func(ctx context.Context) { steal(t, ledger, ctx) },
				txOf[*ledgerTx], idempotency.ErrLeaseLost, ""},
			{"lost lease, found by the heartbeat", ledger, func(ctx context.Context) {
				steal(t, ledger, ctx)
				<-ctx.Done()
			}, txOf[*ledgerTx], idempotency.ErrLeaseLost, ""},
			{"lost after the limit", ledger, func(context.Context) { time.Sleep(time.Hour) },
				txOf[*ledgerTx], idempotency.ErrLeaseLost, ""},
			{"the database's own", faultyTx(ledger, rule{onBegin, 1, 0, fault{before: errDown}}), nil,
				txOf[*ledgerTx], errDown, ""},
			{"the context has ended", ledger, func(ctx context.Context) { <-ctx.Done() },
				txOf[*ledgerTx], context.DeadlineExceeded, ""},
		} {
			t.Log(row.name)
			var after func() error
			r := newRig(row.store, func(w http.ResponseWriter, req *http.Request) {
				if row.before != nil {
					row.before(req.Context())
				}
				err := row.tx(req.Context())
				if assert.ErrorIs(t, err, row.want, row.name) {
					assert.ErrorContains(t, err, row.says)
				}
				after = func() error { return row.tx(req.Context()) }
				w.WriteHeader(http.StatusInternalServerError)
			}, func(h *idempotency.Handler) { h.Limit = time.Minute })
			serve(r, keyed(t, "k"))
			require.Error(t, after(), "%s: there is no transaction after the end", row.name)
			assert.Zero(t, ledger.transactions(), row.name)
		}
	})
}

func txOf[T any](ctx context.Context) error {
	_, err := idempotency.Tx[T](ctx)
	return err
}

// steal takes an operation over, as another process does when a lease is over.
func steal(t *testing.T, store idempotency.Store, ctx context.Context) { //nolint:revive // t first
	t.Helper()
	e, ok := idempotency.FromContext(ctx)
	require.True(t, ok)
	record := mustLoad(t, store, e.ID)
	require.NoError(t, store.Renew(t.Context(), e.Lease, time.Nanosecond))
	time.Sleep(time.Microsecond)
	reservation, err := store.Reserve(t.Context(), idempotency.Claim{
		ID: e.ID, Fingerprint: record.Fingerprint, Owner: idempotency.NewOwner(),
		Lease: time.Hour, TTL: idempotency.Day, Takeover: idempotency.Reexecute,
	})
	require.NoError(t, err)
	require.Equal(t, idempotency.Acquired, reservation.Decision)
	require.NoError(t, store.Release(t.Context(), reservation.Record.Lease()))
}

// Tx in a goroutine that outlives its handler: the transaction that it gets too
// late is rolled back, or the database would have it for good.
func TestTxThatComesTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		arrived := make(chan struct{})
		ledger := newLedger()
		store := faultyTx(ledger, rule{onBegin, 1, 0, fault{linger: time.Second}})
		late := make(chan error, 1)
		r := newRig(store, func(w http.ResponseWriter, req *http.Request) {
			go func() {
				close(arrived)
				late <- txOf[*ledgerTx](req.Context())
			}()
			<-arrived
			time.Sleep(time.Millisecond)
			w.WriteHeader(http.StatusCreated)
		})
		response := r.goPost(t)
		require.ErrorIs(t, <-late, idempotency.ErrNoTransaction)
		assert.Equal(t, 1, store.count(onRollback))
		assert.Zero(t, ledger.transactions())
		assert.Equal(t, http.StatusCreated, (<-response).Code)
	})
}

// The lease is lost while Begin is under way.
func TestTxWhoseLeaseIsLostMeanwhile(t *testing.T) {
	for _, row := range []struct {
		name string
		rule fault
	}{
		{"before the transaction", fault{delay: time.Minute}},
		{"after it", fault{linger: time.Minute}},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ledger := newLedger()
				store := faultyTx(ledger, rule{onBegin, 1, 0, row.rule},
					rule{onRenew, 1, always, fault{before: errDown}})
				var err error
				r := newRig(store, func(w http.ResponseWriter, req *http.Request) {
					err = txOf[*ledgerTx](req.Context())
					w.WriteHeader(http.StatusInternalServerError)
				}, joined)
				r.post(t)
				require.ErrorIs(t, err, idempotency.ErrLeaseLost)
				assert.Zero(t, ledger.transactions())
			})
		})
	}
}

func TestDiscard(t *testing.T) {
	for _, row := range []struct {
		name string
		work func(t *testing.T, ctx context.Context)
		sum  int
		err  error
	}{
		{name: "after a write", work: func(t *testing.T, ctx context.Context) {
			t.Helper()
			tx, err := idempotency.Tx[*ledgerTx](ctx)
			require.NoError(t, err)
			require.NoError(t, tx.Add("acct", 100))
			require.NoError(t, idempotency.Discard(ctx))
			require.ErrorIs(t, tx.Add("acct", 100), errTxDone)
			require.NoError(t, idempotency.Discard(ctx), "again")
		}},
		{name: "before any", work: func(t *testing.T, ctx context.Context) {
			t.Helper()
			require.NoError(t, idempotency.Discard(ctx))
			tx, err := idempotency.Tx[*ledgerTx](ctx)
			require.NoError(t, err, "there was nothing to discard")
			require.NoError(t, tx.Add("acct", 100))
		}, sum: 100},
	} {
		t.Run(row.name, func(t *testing.T) {
			store := newLedger()
			var later func() error
			r := newRig(store, func(w http.ResponseWriter, req *http.Request) {
				later = func() error { return idempotency.Discard(req.Context()) }
				row.work(t, req.Context())
				answer(http.StatusUnprocessableEntity, "no such account")(w, req)
			}, joined)
			first := r.post(t)
			assert.Equal(t, http.StatusUnprocessableEntity, first.Code)
			assert.Equal(t, "no such account", first.Body.String())
			assert.Equal(t, row.sum, store.sum("acct"))
			assert.Equal(t, idempotency.FailedFinal, mustLoad(t, store, theID).Status, "the refusal is stored all the same")
			requireReplay(t, first, r.post(t))
			assert.NoError(t, later(), "after the end there is nothing to discard")
		})
	}
}

func TestDiscardThatFails(t *testing.T) {
	ledger := newLedger()
	store := faultyTx(ledger, rule{onRollback, 1, 0, fault{after: errLost}})
	r := newRig(store, func(w http.ResponseWriter, req *http.Request) {
		assert.NoError(t, txOf[*ledgerTx](req.Context()))
		assert.Equal(t, errLost, idempotency.Discard(req.Context()))
		assert.ErrorIs(t, txOf[*ledgerTx](req.Context()), idempotency.ErrNoTransaction)
		w.WriteHeader(http.StatusConflict)
	}, joined)
	assert.Equal(t, http.StatusConflict, r.post(t).Code)
	assert.Equal(t, idempotency.FailedFinal, mustLoad(t, store, theID).Status)
}

// A rollback that hangs does not hold the handler up for good, nor the heartbeat.
func TestDiscardThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := faultyTx(newLedger(), rule{onRollback, 1, 0, fault{delay: time.Hour}})
		r := newRig(store, func(w http.ResponseWriter, req *http.Request) {
			assert.NoError(t, txOf[*ledgerTx](req.Context()))
			time.Sleep(time.Minute)
			assert.ErrorIs(t, idempotency.Discard(req.Context()), context.DeadlineExceeded)
			w.WriteHeader(http.StatusInternalServerError)
		}, joined)
		began := time.Now()
		assert.Equal(t, http.StatusInternalServerError, r.post(t).Code)
		assert.Less(t, time.Since(began), 3*time.Minute)
	})
}
