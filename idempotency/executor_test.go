package idempotency_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// checkedStore is a store with a Check of its own.
type checkedStore struct {
	idempotency.Store
	check func(context.Context) error
}

func (s *checkedStore) Check(ctx context.Context) error { return s.check(ctx) }

func TestHandler_checksTheStoreOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var checks, left atomic.Int64
		left.Store(3)
		store := faulty(&checkedStore{new(idempotency.Memory), func(ctx context.Context) error {
			checks.Add(1)
			deadline, ok := ctx.Deadline()
			assert.True(t, ok)
			assert.Equal(t, 5*time.Second, time.Until(deadline))
			time.Sleep(100 * time.Millisecond)
			if left.Add(-1) >= 0 {
				return errors.New("test: no table; run Migrate")
			}
			return nil
		}})
		r := newRig(store, answer(http.StatusCreated, "made"))
		burst := func() (rejected int64) {
			var all sync.WaitGroup
			var n atomic.Int64
			for i := range 20 {
				all.Go(func() {
					w := serve(r, keyed(t, strconv.Itoa(i)))
					if w.Code == http.StatusServiceUnavailable {
						assert.Equal(t, "1", w.Header().Get("Retry-After"))
						n.Add(1)
					}
				})
			}
			all.Wait()
			return n.Load()
		}
		for second := range 3 {
			assert.EqualValues(t, 20, burst(), "a store that failed its check is not used")
			assert.EqualValues(t, 20, burst(), "within a second")
			assert.EqualValues(t, second+1, checks.Load(), "checks at most once a second")
			require.ErrorContains(t, r.last(t).Err, "no table; run Migrate")
			time.Sleep(time.Second)
		}
		assert.Zero(t, store.count(onReserve))
		assert.Zero(t, burst())
		time.Sleep(time.Hour)
		assert.Zero(t, burst())
		assert.EqualValues(t, 4, checks.Load(), "after a success never again")
	})
}

// While the pool is exhausted, requests wait for one check, and not for that of each request before them. Neither the next request
// nor one that waited a moment only has the answer of a check before.
func TestHandler_checksABusyStore(t *testing.T) {
	for _, row := range []struct {
		name string
		wait time.Duration // of a check
		took time.Duration // of 20 requests, at most
		code int           // the lowest
	}{
		{"each check waits for a second", time.Second, time.Second, http.StatusServiceUnavailable},
		{"the first caller has little time", time.Millisecond, 20 * time.Millisecond, http.StatusCreated},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			var checks atomic.Int64
			r := newRig(&checkedStore{new(idempotency.Memory), func(context.Context) error {
				if row.code == http.StatusCreated && checks.Add(1) > 1 {
					return nil
				}
				time.Sleep(row.wait)
				return idempotency.ErrStoreBusy
			}}, answer(http.StatusCreated, "made"))
			for range 2 {
				var all sync.WaitGroup
				codes := make([]int, 20)
				began := time.Now()
				for i := range codes {
					all.Go(func() { codes[i] = serve(r, keyed(t, strconv.Itoa(i))).Code })
				}
				all.Wait()
				assert.LessOrEqual(t, time.Since(began), row.took)
				slices.Sort(codes)
				assert.Equal(t, row.code, codes[0], "the lowest")
			}
		})
	}
}

// TestExecutor_doesNotCheckInCallerTx: a check would need a second connection.
func TestExecutor_doesNotCheckInCallerTx(t *testing.T) {
	store := &checkedLedger{ledgerStore: newLedger()}
	store.within = true
	do := func() {
		x := &idempotency.Executor{Store: store}
		require.NoError(t, errOf(x.Do(t.Context(), doID, "", func(context.Context) (idempotency.Result, error) { return doResult, nil })))
	}
	do()
	do()
	assert.Zero(t, store.checks)
	store.within = false
	do()
	assert.Equal(t, 1, store.checks)
}

type checkedLedger struct {
	*ledgerStore
	checks int
}

func (s *checkedLedger) Check(context.Context) error {
	s.checks++
	return nil
}

// TestStoreThatCannotWrite: duplicates get the stored result, and new keys a 503.
func TestStoreThatCannotWrite(t *testing.T) {
	readOnly := fault{before: errors.New("test: read-only")}
	for name, change := range modes() {
		bubble.Run(t, name, func(t *testing.T) {
			store := faultyTx(newLedger())
			code := http.StatusCreated
			r := newRig(store, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }, change)
			first := r.post(t)
			code = http.StatusNotFound
			failed := serve(r, keyed(t, "failed"))
			store.obey(rule{onReserve, 1, always, readOnly}, rule{onBegin, 1, always, readOnly})
			requireReplay(t, first, r.post(t))
			requireReplay(t, failed, serve(r, keyed(t, "failed")))
			assert.Equal(t, idempotency.Replayed, r.last(t).Disposition)
			requireProblem(t, serve(r, withBody(request(t), `{"amount": 1}`)), http.StatusUnprocessableEntity, "mismatch")
			w := serve(r, keyed(t, "new"))
			requireProblem(t, w, http.StatusServiceUnavailable, "store")
			assert.Equal(t, "1", w.Header().Get("Retry-After"))
			require.ErrorIs(t, r.last(t).Err, readOnly.before)
			assert.EqualValues(t, 2, r.executions.Load())
		})
	}
}

// conflict is PostgreSQL's error for a serialization failure or a deadlock.
type conflict struct{ code string }

func (e *conflict) Error() string    { return "test: SQLSTATE " + e.code }
func (e *conflict) SQLState() string { return e.code }

func TestDo_repeatsWorkAfterAConflict(t *testing.T) {
	atCommit := func(code string, times int) faultyTransactor {
		return faultyTx(newLedger(), rule{onCommit, 1, times, fault{before: fmt.Errorf("%w: %w", idempotency.ErrTransactionFailed, &conflict{code})}})
	}
	for _, row := range []struct {
		name     string
		store    idempotency.Store
		options  idempotency.Options
		failures []error // of the work, one for each try
		runs     int
		want     error
	}{
		{"COMMIT fails with 40001 once: done by the second try", atCommit("40001", 1), idempotency.Options{Transactional: true}, nil, 2, nil},
		{"COMMIT fails with 40P01 twice: done by the third try", atCommit("40P01", 2), idempotency.Options{Transactional: true}, nil, 3, nil},
		{"COMMIT fails three times: the error", atCommit("40001", 3), idempotency.Options{Transactional: true}, nil, 3, idempotency.ErrTransactionFailed},
		{"COMMIT fails with 23505: the error", atCommit("23505", 3), idempotency.Options{Transactional: true}, nil, 1, idempotency.ErrTransactionFailed},
		{"the work fails with 40P01 once: done by the second try", newLedger(), idempotency.Options{Transactional: true}, []error{fmt.Errorf("charge: %w", &conflict{"40P01"})}, 2, nil},
		{"the work fails with another error: the error", newLedger(), idempotency.Options{Transactional: true}, []error{errDown}, 1, errDown},
		{"a conflict marked as permanent: stored", newLedger(), idempotency.Options{Transactional: true}, []error{idempotency.Permanent(&conflict{"40001"})}, 1, &conflict{}},
		{"not transactional: unknown", new(idempotency.Memory), idempotency.Options{}, []error{&conflict{"40001"}}, 1, idempotency.ErrUnknown},
		{"in the caller's transaction: the error", &ledgerStore{within: true, ledger: map[string]int{}, open: map[idempotency.ID]*ledgerTx{}}, idempotency.Options{}, []error{&conflict{"40001"}}, 1, &conflict{}},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			var remembered hooks
			x := &idempotency.Executor{Store: row.store, Options: row.options, Trace: remembered.trace()}
			runs := 0
			_, err := x.Do(t.Context(), doID, "", func(ctx context.Context) (idempotency.Result, error) {
				runs++
				if tx, err := idempotency.Tx[*ledgerTx](ctx); err == nil {
					assert.NoError(t, tx.Add("a", 1))
				}
				if runs <= len(row.failures) {
					return idempotency.Result{}, row.failures[runs-1]
				}
				return doResult, nil
			})
			assert.Equal(t, row.runs, runs)
			var want *conflict
			switch {
			case row.want == nil:
				require.NoError(t, err)
			case errors.As(row.want, &want):
				require.ErrorAs(t, err, &want)
			default:
				require.ErrorIs(t, err, row.want)
			}
			assert.Len(t, remembered.dispositions(), 1, "one event for one Do")
			if store, ok := row.store.(faultyTransactor); ok && row.want == nil {
				assert.Equal(t, 1, store.ledger.sum("a"), "the writes of one try")
			}
		})
	}
}

// usedStore counts the operations of a store that are running.
type usedStore struct {
	idempotency.Store
	used atomic.Int64
}

func (s *usedStore) Reserve(ctx context.Context, claim idempotency.Claim) (idempotency.Reservation, error) {
	s.used.Add(1)
	defer s.used.Add(-1)
	time.Sleep(time.Millisecond)
	return s.Store.Reserve(ctx, claim)
}

// TestDuplicateWait_usesNoConnection: between its claims a duplicate that waits uses
// nothing of the store.
func TestDuplicateWait_usesNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &usedStore{Store: new(idempotency.Memory)}
		r := newRig(store, func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(10 * time.Second)
			w.WriteHeader(http.StatusCreated)
		}, func(h *idempotency.Handler) { h.DuplicateWait = time.Minute })
		first := r.goPost(t)
		synctest.Wait()
		time.Sleep(time.Second)
		duplicate := r.goPost(t)
		idle, samples := 0, 0
		for range 500 {
			time.Sleep(10 * time.Millisecond)
			samples++
			if store.used.Load() == 0 {
				idle++
			}
		}
		assert.Greater(t, idle, samples*9/10, "samples without a running operation, of %d", samples)
		requireReplay(t, <-first, <-duplicate)
	})
}

// TestDoJSON_repeatsWorkAfterAConflict: the value is that of the try that was committed, or
// the one that another process committed meanwhile.
func TestDoJSON_repeatsWorkAfterAConflict(t *testing.T) {
	conflicted := rule{onCommit, 1, 1, fault{before: fmt.Errorf("%w: %w", idempotency.ErrTransactionFailed, &conflict{"40001"})}}
	options := idempotency.Options{Transactional: true}
	do := func(t *testing.T, store idempotency.Store, work func(context.Context) (int, error)) (int, error) {
		t.Helper()
		return idempotency.DoJSON(t.Context(), store, "comp1", "op", "1", "", work, options)
	}
	bubble.Run(t, "the second try is committed", func(t *testing.T) {
		runs := 0
		got, err := do(t, faultyTx(newLedger(), conflicted), func(context.Context) (int, error) {
			runs++
			return runs, nil
		})
		require.NoError(t, err)
		assert.Equal(t, 2, got)
	})
	bubble.Run(t, "another process commits between the tries", func(t *testing.T) {
		ledger := newLedger()
		store := faultyTx(ledger, conflicted)
		runs := 0
		other := make(chan error, 1)
		got, err := do(t, store, func(context.Context) (int, error) {
			runs++
			go func() {
				time.Sleep(time.Millisecond) // after the rollback, before the second try
				_, err := idempotency.DoJSON(context.WithoutCancel(t.Context()), ledger, "comp1", "op", "1", "",
					func(context.Context) (int, error) { return 7, nil }, options)
				other <- err
			}()
			return 1, nil
		})
		require.NoError(t, err)
		require.NoError(t, <-other)
		assert.Equal(t, 1, runs)
		assert.Equal(t, 7, got, "not the value that was rolled back")
	})
	t.Run("two Options are invalid", func(t *testing.T) {
		_, err := idempotency.DoJSON(t.Context(), newLedger(), "comp1", "op", "1", "",
			func(context.Context) (int, error) { return 1, nil }, options, options)
		require.ErrorIs(t, err, idempotency.ErrInvalid)
	})
}

// TestClaim_seesTheCallersDeadline: a store that waits for a part of the time until the
// deadline must not see a deadline of the executor.
func TestClaim_seesTheCallersDeadline(t *testing.T) {
	for name, change := range modes() {
		for _, deadline := range []time.Duration{0, 300 * time.Millisecond, time.Minute} {
			bubble.Run(t, fmt.Sprint(name, ", ", deadline), func(t *testing.T) {
				var seen []time.Duration
				store := &deadlineStore{ledgerStore: newLedger(), see: func(ctx context.Context) {
					if at, ok := ctx.Deadline(); ok {
						seen = append(seen, time.Until(at))
					}
				}}
				r := newRig(store, answer(http.StatusCreated, "made"), change)
				ctx, cancel := within(t.Context(), deadline)
				defer cancel()
				require.Equal(t, http.StatusCreated, serve(r, request(t).WithContext(ctx)).Code)
				if deadline == 0 {
					assert.Empty(t, seen)
					return
				}
				require.Len(t, seen, 1)
				assert.InDelta(t, deadline, seen[0], float64(500*time.Millisecond))
			})
		}
	}
}

// deadlineStore shows the contexts of its claims.
type deadlineStore struct {
	*ledgerStore
	see func(context.Context)
}

func (s *deadlineStore) Reserve(ctx context.Context, claim idempotency.Claim) (idempotency.Reservation, error) {
	s.see(ctx)
	return s.ledgerStore.Reserve(ctx, claim)
}

func (s *deadlineStore) Begin(ctx context.Context, claim idempotency.Claim, limit time.Duration) (idempotency.Reservation, idempotency.Transaction, error) {
	s.see(ctx)
	return s.ledgerStore.Begin(ctx, claim, limit)
}

// TestHandler_claimThatCameTooLate: an execution is released at once after its deadline, also
// if the store hangs.
func TestHandler_claimThatCameTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := faulty(new(idempotency.Memory), rule{onReserve, 1, 0, fault{delay: 300 * time.Millisecond}},
			rule{onRelease, 1, 0, fault{delay: time.Hour}})
		r := newRig(store, answer(http.StatusCreated, "made"))
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		began := time.Now()
		requireProblem(t, serve(r, request(t).WithContext(ctx)), http.StatusServiceUnavailable, "store")
		assert.LessOrEqual(t, time.Since(began), time.Second)
		assert.Zero(t, r.executions.Load())
	})
}

// TestUnknown_isReportedIfTheClaimsAnswerWasLost: the first claim made the record Unknown.
func TestUnknown_isReportedIfTheClaimsAnswerWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := faulty(new(idempotency.Memory))
		r := newRig(store, answer(http.StatusCreated, "made"))
		crash(t, r.Handler, store, request(t))
		time.Sleep(time.Minute)
		store.rules = []rule{{onReserve, 2, 0, fault{after: errLost}}}
		requireProblem(t, r.post(t), http.StatusConflict, "unknown")
		assert.Len(t, r.unknowns(), 1)
	})
}

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
	if errors.Is(err, idempotency.ErrNotFound) {
		err = nil
	}
	require.NoError(t, err)
	require.Equal(t, want.String(), record.Status.String())
}
