package idempotency_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// This file tests a database that fails: before the claim, between effect and record, at the
// commit, and when only its answer is lost.

// charge is a handler that writes through Tx.
func charge(t *testing.T, code int) http.HandlerFunc {
	t.Helper()
	return func(w http.ResponseWriter, r *http.Request) {
		tx, err := idempotency.Tx[*ledgerTx](r.Context())
		if err == nil {
			err = tx.Add("acct", 100)
		}
		w.Header().Set("Handler", "this")
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.WriteHeader(code)
		w.Write([]byte("charged"))
	}
}

// A row of a table of failures: the responses to the first request, and to one after the store
// has recovered and the lease is over.
type failure struct {
	name  string
	rules []rule

	status int    // of the first response
	kind   string // its problem, "": the handler's own
	doubt  bool   // the work may be done, although it is transactional
	d      idempotency.Disposition
	record idempotency.Status // 0: none
	took   time.Duration      // at least

	again   int    // status of the next
	replay  bool   // it is a replay
	problem string // of the next
	runs    int64  // of the handler, in all
}

// named is the failure that these rules cause.
func (f failure) named(name string, rules ...rule) failure {
	f.name, f.rules = name, rules
	return f
}

func (f *failure) run(t *testing.T, store idempotency.Store, faults *faultyStore, next http.HandlerFunc, change ...func(*idempotency.Handler)) *rig {
	t.Helper()
	faults.obey(f.rules...)
	r := newRig(store, next, change...)
	began := time.Now()
	first := r.post(t)
	if f.kind != "" {
		requireProblem(t, first, f.status, f.kind)
		if f.status == http.StatusServiceUnavailable {
			undone := r.executions.Load() == 0 || r.Transactional && f.kind == "store" && !f.doubt
			assert.Equal(t, undone, first.Header().Get("Retry-After") != "", "it says that no work was done")
			assert.Equal(t, r.executions.Load() == 0, first.Header().Get("Request-Executed") == "?0")
		}
	} else {
		require.Equal(t, f.status, first.Code, "%s", first.Body)
		assert.Equal(t, "this", first.Header().Get("Handler"))
	}
	assert.Equal(t, []idempotency.Disposition{f.d}, r.dispositions())
	assert.GreaterOrEqual(t, time.Since(began), f.took)
	if f.kind != "" || f.d == idempotency.StoreFailed {
		assert.Error(t, r.last(t).Err)
	}

	faults.heal()
	requireRecord(t, faults, theID, f.record)

	time.Sleep(time.Minute)
	again := r.post(t)
	if f.problem != "" {
		requireProblem(t, again, f.again, f.problem)
	} else {
		require.Equal(t, f.again, again.Code, "%s", again.Body)
		assert.Equal(t, f.replay, again.Header().Get("Idempotency-Replayed") != "")
	}
	assert.Equal(t, f.runs, r.executions.Load(), "executions")
	assert.Len(t, r.dispositions(), 2, "Done is called once for each request")
	return r
}

// heal ends all faults.
func (s *faultyStore) heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = nil
}

// I5: a 503 asks to come again if no work was done, and only then.
func TestStoreFails_nonTransactionalWork(t *testing.T) {
	const ok = http.StatusCreated
	down, lost := fault{before: errDown}, fault{after: errLost}
	done := failure{status: ok, d: idempotency.Executed, record: idempotency.Completed, again: ok, replay: true, runs: 1}
	slow := done
	slow.took = 5 * time.Second
	before := failure{status: 503, kind: "store", d: idempotency.StoreFailed, again: ok, runs: 1} // the work was not begun
	claimed := before                                                                             // only this process knows that, and it may have died
	claimed.record = idempotency.FailedRetryable
	unheard := done
	unheard.status, unheard.kind, unheard.d = 503, "lease-lost", idempotency.LeaseLost
	unknown := failure{status: 503, kind: "store", d: idempotency.StoreFailed, record: idempotency.StatusInProgress, again: 409, problem: "unknown", runs: 1}
	late := unknown
	late.took = 29 * time.Second
	for _, row := range []failure{
		done.named("Reserve fails once", rule{onReserve, 1, 0, down}),
		done.named("Reserve's answer is lost", rule{onReserve, 1, 0, lost}),
		before.named("Reserve is down", rule{onReserve, 1, always, down}),
		claimed.named("Reserve's answers are lost, all of them", rule{onReserve, 1, always, lost}),
		done.named("Complete fails once", rule{onComplete, 1, 0, down}),
		slow.named("Complete fails for ten seconds", rule{onComplete, 1, 50, down}),
		done.named("Complete hangs once", rule{onComplete, 1, 0, fault{delay: time.Hour}}),
		done.named("Complete's answer is lost", rule{onComplete, 1, 0, lost}),
		done.named("Complete's answer is lost, and the record cannot be read at once", rule{onComplete, 1, 0, lost}, rule{onLoad, 1, 3, down}),
		unheard.named("Complete's answer is lost, and the record cannot be read any more", rule{onComplete, 1, 0, lost}, rule{onLoad, 1, always, down}),
		late.named("Complete is down for the rest of the lease", rule{onComplete, 1, always, down}),
		unknown.named("the store refuses the outcome", rule{onComplete, 1, always, fault{before: idempotency.ErrInvalid}}),
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			store := faulty(new(idempotency.Memory))
			row.run(t, store, store, answer(ok, "made"))
		})
	}
}

// A definite answer of the store is not requested again.
func TestStoreIsAskedNoMoreThanNeeded(t *testing.T) {
	lost := fault{before: idempotency.ErrLeaseLost}
	for _, row := range []struct {
		name             string
		rules            []rule
		completes, loads int
	}{
		{"it refuses the outcome", []rule{{onComplete, 1, always, fault{before: idempotency.ErrInvalid}}}, 1, 0},
		{"the lease is lost", []rule{{onComplete, 1, always, lost}}, 1, 0},
		{"the lease is lost by the second time, and the record is gone",
			[]rule{{onComplete, 1, 0, fault{before: errDown}}, {onComplete, 2, always, lost}, {onLoad, 1, always, fault{before: idempotency.ErrNotFound}}},
			2, 1},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			store := faulty(new(idempotency.Memory), row.rules...)
			r := newRig(store, answer(http.StatusCreated, ""))
			assert.Equal(t, http.StatusServiceUnavailable, r.post(t).Code)
			assert.Equal(t, row.completes, store.count(onComplete))
			assert.Equal(t, row.loads, store.count(onLoad))
		})
	}
}

func TestStoreFailsAroundARelease(t *testing.T) {
	const failed = http.StatusServiceUnavailable
	released := failure{status: failed, d: idempotency.Released, record: idempotency.FailedRetryable, again: failed, runs: 2}
	// A 4xx needs no record. At the next request the lease is over, and the execution counts as dead.
	dead := failure{status: failed, d: idempotency.StoreFailed, record: idempotency.StatusInProgress, again: 409, problem: "unknown", runs: 1}
	for _, row := range []failure{
		released.named("fails once", rule{onRelease, 1, 0, fault{before: errDown}}),
		released.named("its answer is lost", rule{onRelease, 1, 0, fault{after: errLost}}),
		dead.named("is down", rule{onRelease, 1, always, fault{before: errDown}}),
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			store := faulty(new(idempotency.Memory))
			row.run(t, store, store, answer(failed, "no"))
		})
	}
}

// If the store did not answer, Unknown may be called twice for one record.
func TestUnknown_isReportedAgainAfterAStoreError(t *testing.T) {
	for _, row := range []struct {
		name string
		work func(http.ResponseWriter, *http.Request)
	}{
		{"panic", func(http.ResponseWriter, *http.Request) { panic("test") }},
		{"policy", answer(599, "")},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			store := faulty(new(idempotency.Memory), rule{onComplete, 1, always, fault{before: errDown}})
			r := newRig(store, row.work, func(h *idempotency.Handler) {
				h.Classify = func(int) idempotency.Status { return idempotency.Unknown }
			})
			servePanicking(r, request(t))
			require.Len(t, r.unknowns(), 1)
			require.ErrorIs(t, r.unknowns()[0].Err, errDown)
			requireUnknown(t, r) // the claim finds an execution that died
			assert.EqualValues(t, 1, r.executions.Load())
		})
	}
}

// Reserve ends soon after its client has left, also if the store hangs. A goroutine that is
// left behind would fail the test.
func TestReserveEndsSoonAfterItsClient(t *testing.T) {
	hangs := fault{delay: 1000 * time.Hour}
	for _, row := range []struct {
		name  string
		lease time.Duration
		stays time.Duration
		most  time.Duration
		rules []rule
	}{
		{"the store hangs", 0, 3 * time.Second, time.Second, []rule{{onReserve, 1, always, hangs}}},
		{"the client has left before", 0, 0, time.Second, []rule{{onReserve, 1, always, hangs}}},
		{"a short lease", 30 * time.Millisecond, time.Millisecond, 20 * time.Millisecond, []rule{{onReserve, 1, always, hangs}}},
		{"the second hangs", 0, 3 * time.Second, time.Second, []rule{{onReserve, 1, 0, fault{delay: 2 * time.Second, after: errLost}}, {onReserve, 2, 0, hangs}}},
	} {
		for name, change := range modes() {
			bubble.Run(t, row.name+", "+name, func(t *testing.T) {
				var rules []rule
				for _, r := range row.rules {
					rules = append(rules, r, rule{onBegin, r.from, r.to, r.fault})
				}
				r := newRig(faultyTx(newLedger(), rules...), answer(http.StatusCreated, ""), lease(row.lease), change)
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(row.stays, cancel)
				began := time.Now()
				if row.stays == 0 {
					cancel()
				}
				serve(r, request(t).WithContext(ctx))
				assert.LessOrEqual(t, time.Since(began), row.stays+row.most)
				assert.Zero(t, r.executions.Load())
			})
		}
	}
}

// I2: work does not begin after the request's deadline.
func TestHandler_doesNotBeginWorkAfterItsDeadline(t *testing.T) {
	slow := fault{linger: 3 * time.Second}
	for _, row := range []struct {
		name   string
		change func(*idempotency.Handler)
		record idempotency.Status
	}{
		{"non-transactional", nil, idempotency.FailedRetryable},
		{"transactional", transactional, 0},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			ledger := newLedger()
			r := newRig(faultyTx(ledger, rule{onReserve, 1, 0, slow}, rule{onBegin, 1, 0, slow}), answer(http.StatusCreated, ""), row.change)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			requireProblem(t, serve(r, request(t).WithContext(ctx)), http.StatusServiceUnavailable, "store")
			require.ErrorIs(t, r.last(t).Err, context.DeadlineExceeded)
			assert.Zero(t, r.executions.Load())
			assert.Zero(t, ledger.transactions())
			requireRecord(t, ledger, theID, row.record)
			assert.Equal(t, http.StatusCreated, r.post(t).Code)
		})
	}
}

// A store that hangs does not delay a waiting client without limit.
func TestReserveHangs(t *testing.T) {
	hangs := fault{delay: 1000 * time.Hour}
	for _, row := range []struct {
		name   string
		change func(*idempotency.Handler)
		most   time.Duration
		calls  map[string]int
	}{
		{"non-transactional", nil, 10 * time.Second, map[string]int{onReserve: 2}},
		{"transactional", transactional, 30 * time.Second, map[string]int{onBegin: 1}},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			store := faultyTx(newLedger(), rule{onReserve, 1, always, hangs}, rule{onBegin, 1, always, hangs})
			r := newRig(store, answer(http.StatusCreated, ""), row.change)
			began := time.Now()
			requireProblem(t, r.post(t), http.StatusServiceUnavailable, "store")
			assert.LessOrEqual(t, time.Since(began), row.most)
			assert.Equal(t, row.calls, store.counts())
		})
	}
}

// I6: a duplicate that waits for an execution in progress does not learn, when the store fails, that nothing was executed.
func TestRequestExecuted_duplicateWaits(t *testing.T) {
	for _, row := range []struct {
		name  string
		rules []rule
	}{
		{"the claim fails, and reading does not", []rule{{onReserve, 3, always, fault{before: errDown}}}},
		{"the store is down", []rule{{onReserve, 3, always, fault{before: errDown}}, {onLoad, 1, always, fault{before: errDown}}}},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			store := faulty(new(idempotency.Memory), row.rules...)
			r := newRig(store, func(w http.ResponseWriter, _ *http.Request) {
				time.Sleep(10 * time.Second)
				w.WriteHeader(http.StatusCreated)
			}, func(h *idempotency.Handler) { h.DuplicateWait = time.Minute })
			first := r.goPost(t)
			synctest.Wait()
			w := r.post(t) // its first claim finds the execution
			requireProblem(t, w, http.StatusServiceUnavailable, "store")
			assert.Empty(t, w.Header().Values("Request-Executed"))
			store.heal()
			for _, w := range []*httptest.ResponseRecorder{<-first, r.post(t)} {
				require.Equal(t, http.StatusCreated, w.Code)
				assert.Empty(t, w.Header().Values("Request-Executed"))
			}
		})
	}
}

// If the client leaves before the store answers, the store has not failed. If its deadline
// ends, the store has failed to answer in time.
func TestClientLeavesBeforeTheClaimIsAnswered(t *testing.T) {
	hangs, breaks := fault{delay: time.Hour}, fault{after: errDown, linger: 2 * time.Second}
	for _, row := range []struct {
		name  string
		fault fault
		end   func(context.Context) (context.Context, context.CancelFunc)
		want  idempotency.Disposition
	}{
		{"leaves", hangs, leaving(nil), idempotency.Canceled},
		{"leaves, for a reason", hangs, leaving(errGone), idempotency.Canceled},
		{"its time is over", hangs, expiring, idempotency.StoreFailed},
		{"leaves, and the store fails", breaks, leaving(nil), idempotency.StoreFailed},
	} {
		for name, change := range modes() {
			bubble.Run(t, row.name+", "+name, func(t *testing.T) {
				store := faultyTx(newLedger(), rule{onReserve, 1, always, row.fault}, rule{onBegin, 1, always, row.fault})
				r := newRig(store, answer(http.StatusCreated, ""), change)
				ctx, cancel := row.end(t.Context())
				defer cancel()
				serve(r, request(t).WithContext(ctx))
				assert.Equal(t, row.want, r.last(t).Disposition, "%v", r.last(t).Err)
				assert.Zero(t, r.executions.Load())

				x := &idempotency.Executor{Store: store, Options: r.Options, Trace: r.trace()}
				ctx, cancel = row.end(t.Context())
				defer cancel()
				_, err := x.Do(ctx, doID, "", nothing)
				require.Error(t, err)
				assert.Equal(t, row.want, r.last(t).Disposition, "%v", err)
			})
		}
	}
}

// leaving is a context that is canceled after a second.
func leaving(why error) func(context.Context) (context.Context, context.CancelFunc) {
	return func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancelCause(ctx)
		timer := time.AfterFunc(time.Second, func() { cancel(why) })
		return ctx, func() {
			timer.Stop()
			cancel(nil)
		}
	}
}

func nothing(context.Context) (idempotency.Result, error) {
	return idempotency.Result{}, errors.New("test: this was not to be executed")
}

// If the file of a large response fails, the response is lost, but not the effect.
func TestLargeResponseThatCannotBeKept(t *testing.T) {
	t.Setenv("TMPDIR", "/nonexistent")
	t.Setenv("TMP", "/nonexistent")
	store := new(idempotency.Memory)
	r := newRig(store, answer(http.StatusCreated, "too large for memory"), func(h *idempotency.Handler) { h.MaxResponse = 5 })
	w, panicked := servePanicking(r, request(t))
	assert.Equal(t, http.ErrAbortHandler, panicked)
	assert.Empty(t, w.Body.String())
	assert.Equal(t, idempotency.CompletedUnreplayable, mustLoad(t, store, theID).Status)
	assert.Equal(t, idempotency.Unreplayable, r.last(t).Disposition)
	require.Error(t, r.last(t).Err)
	requireProblem(t, r.post(t), http.StatusConflict, "unreplayable")
	assert.EqualValues(t, 1, r.executions.Load())
}
