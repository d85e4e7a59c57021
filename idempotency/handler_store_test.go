package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// This file is about a database that goes away: before the claim, between effect
// and record, at the commit, and when only its answer is lost.

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

// A row of a table of failures: what the first request gets, and what the next
// one, which comes once the store is well again and the lease is over.
type failure struct {
	name  string
	rules []rule

	status int    // of the first response
	kind   string // its problem, "": the handler's own
	d      idempotency.Disposition
	record idempotency.Status // 0: none
	took   time.Duration      // at least

	again   int    // status of the next
	replay  bool   // it is a replay
	problem string // of the next
	runs    int64  // of the handler, in all
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
			assert.NotEmpty(t, first.Header().Get("Retry-After"))
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

func TestStoreFailsAroundDetachedWork(t *testing.T) {
	const ok = http.StatusCreated
	down, lost := fault{before: errDown}, fault{after: errLost}
	for _, row := range []failure{
		{
			name: "Reserve fails once", rules: []rule{{onReserve, 1, 0, down}},
			status: ok, d: idempotency.Executed, record: idempotency.Completed, again: ok, replay: true, runs: 1,
		},
		{
			name: "Reserve's answer is lost", rules: []rule{{onReserve, 1, 0, lost}},
			status: ok, d: idempotency.Executed, record: idempotency.Completed, again: ok, replay: true, runs: 1,
		},
		{
			name: "Reserve is down", rules: []rule{{onReserve, 1, always, down}},
			status: 503, kind: "store", d: idempotency.StoreFailed, again: ok, runs: 1,
		},
		{
			// Nobody knows that nothing was executed but a process that may have died.
			name: "Reserve's answers are lost, all of them", rules: []rule{{onReserve, 1, always, lost}},
			status: 503, kind: "store", d: idempotency.StoreFailed, record: idempotency.InProgress,
			again: 409, problem: "unknown", runs: 0,
		},
		{
			name: "Complete fails once", rules: []rule{{onComplete, 1, 0, down}},
			status: ok, d: idempotency.Executed, record: idempotency.Completed, again: ok, replay: true, runs: 1,
		},
		{
			name: "Complete fails for ten seconds", rules: []rule{{onComplete, 1, 50, down}},
			status: ok, d: idempotency.Executed, record: idempotency.Completed, again: ok, replay: true, runs: 1,
			took: 5 * time.Second,
		},
		{
			name: "Complete hangs once", rules: []rule{{onComplete, 1, 0, fault{delay: time.Hour}}},
			status: ok, d: idempotency.Executed, record: idempotency.Completed, again: ok, replay: true, runs: 1,
		},
		{
			name: "Complete's answer is lost", rules: []rule{{onComplete, 1, 0, lost}},
			status: ok, d: idempotency.Executed, record: idempotency.Completed, again: ok, replay: true, runs: 1,
		},
		{
			name:   "Complete's answer is lost, and the record cannot be read at once",
			rules:  []rule{{onComplete, 1, 0, lost}, {onLoad, 1, 3, down}},
			status: ok, d: idempotency.Executed, record: idempotency.Completed, again: ok, replay: true, runs: 1,
		},
		{
			name:   "Complete's answer is lost, and the record cannot be read any more",
			rules:  []rule{{onComplete, 1, 0, lost}, {onLoad, 1, always, down}},
			status: 503, kind: "overtaken", d: idempotency.Overtaken, record: idempotency.Completed,
			again: ok, replay: true, runs: 1,
		},
		{
			name: "Complete is down for the rest of the lease", rules: []rule{{onComplete, 1, always, down}},
			status: 503, kind: "store", d: idempotency.StoreFailed, record: idempotency.InProgress,
			took: 29 * time.Second, again: 409, problem: "unknown", runs: 1,
		},
		{
			name: "the store refuses the outcome", rules: []rule{{onComplete, 1, always, fault{before: idempotency.ErrInvalid}}},
			status: 503, kind: "store", d: idempotency.StoreFailed, record: idempotency.InProgress,
			again: 409, problem: "unknown", runs: 1,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := faulty(new(idempotency.Memory))
				row.run(t, store, store, answer(ok, "made"))
			})
		})
	}
}

func TestStoreFailsAroundARelease(t *testing.T) {
	const failed = http.StatusServiceUnavailable
	for _, row := range []failure{
		{
			name: "fails once", rules: []rule{{onRelease, 1, 0, fault{before: errDown}}},
			status: failed, d: idempotency.Released, record: idempotency.FailedRetryable, again: failed, runs: 2,
		},
		{
			name: "its answer is lost", rules: []rule{{onRelease, 1, 0, fault{after: errLost}}},
			status: failed, d: idempotency.Released, record: idempotency.FailedRetryable, again: failed, runs: 2,
		},
		{
			// A refusal needs no record. By the next time the lease is over, and the
			// execution counts as one that died.
			name: "is down", rules: []rule{{onRelease, 1, always, fault{before: errDown}}},
			status: failed, d: idempotency.Released, record: idempotency.InProgress,
			again: 409, problem: "unknown", runs: 1,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := faulty(new(idempotency.Memory))
				row.run(t, store, store, answer(failed, "no"))
			})
		})
	}
}

// A success that the policy does not store must not leave either before the store
// knows.
func TestStoreFailsAroundTheReleaseOfASuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := faulty(new(idempotency.Memory), rule{onRelease, 1, always, fault{before: errDown}})
		r := newRig(store, answer(http.StatusAccepted, ""), func(h *idempotency.Handler) {
			h.Settle = func(int) idempotency.Status { return idempotency.FailedRetryable }
		})
		requireProblem(t, r.post(t), http.StatusServiceUnavailable, "store")
	})
}

func TestStoreFailsAroundJoinedWork(t *testing.T) {
	const ok = http.StatusCreated
	down, lost, lease := fault{before: errDown}, fault{after: errLost}, fault{before: idempotency.ErrLeaseLost}
	done := failure{status: ok, d: idempotency.Executed, record: idempotency.Completed, again: ok, replay: true, runs: 1}
	undone := failure{status: 503, kind: "store", d: idempotency.StoreFailed, again: ok, runs: 2}
	named := func(f failure, name string, rules ...rule) failure {
		f.name, f.rules = name, rules
		return f
	}
	unheard := undone // it was committed, and the client is not told before it asks again
	unheard.record, unheard.replay, unheard.runs = idempotency.Completed, true, 1
	late := unheard // it is committed even later
	late.record = 0
	before := undone // the work was not even begun
	before.runs = 1
	overtaken := undone
	overtaken.kind, overtaken.d = "overtaken", idempotency.Overtaken
	for _, row := range []failure{
		named(done, "nothing fails"),
		named(done, "Begin fails once", rule{onBegin, 1, 0, down}),
		named(done, "Begin's answer is lost", rule{onBegin, 1, 0, lost}),
		named(before, "Begin is down", rule{onBegin, 1, always, down}),
		named(before, "Begin's answers are lost, all of them", rule{onBegin, 1, always, lost}),
		named(before, "Begin hangs", rule{onBegin, 1, always, fault{delay: time.Hour}}),
		named(undone, "the commit fails", rule{onCommit, 1, 0, down}),
		named(done, "the commit's answer is lost", rule{onCommit, 1, 0, lost}),
		named(done, "the commit's answer comes too late", rule{onCommit, 1, 0, fault{linger: time.Minute, after: errLost}}),
		named(undone, "the commit hangs", rule{onCommit, 1, 0, fault{delay: time.Hour}}),
		named(done, "the commit is done later than its answer was lost", rule{onCommit, 1, 0, fault{after: errLost, ghost: 9 * time.Second}}),
		named(undone, "the commit is undone later than its answer was lost", rule{onCommit, 1, 0, fault{before: errLost, ghost: 9 * time.Second}}),
		named(late, "the commit is done after the lease's time", rule{onCommit, 1, 0, fault{after: errLost, ghost: 40 * time.Second}}),
		named(done, "the commit's answer is lost, and the store is away for a while", rule{onCommit, 1, 0, lost}, rule{onBegin, 2, 12, down}),
		named(undone, "the commit fails, and the store is away for a while", rule{onCommit, 1, 0, down}, rule{onBegin, 2, 12, down}),
		named(done, "the commit's answer is lost, and a Begin hangs", rule{onCommit, 1, 0, lost}, rule{onBegin, 2, 0, fault{delay: time.Hour}}),
		named(unheard, "the commit's answer is lost, and the store is gone", rule{onCommit, 1, 0, lost}, rule{onBegin, 2, always, down}),
		named(undone, "the commit fails, and the store is gone", rule{onCommit, 1, 0, down}, rule{onBegin, 2, always, down}),
		named(overtaken, "the record is somebody else's at the commit", rule{onCommit, 1, 0, lease}),
		named(undone, "a statement has failed", rule{onCommit, 1, 0, fault{before: fmt.Errorf("%w: duplicate key", idempotency.ErrTransactionFailed)}}),
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ledger := newLedger()
				store := faultyTx(ledger)
				r := row.run(t, store, store.faultyStore, charge(t, ok), joined)
				assert.Equal(t, 100, ledger.sum("acct"), "one effect, whatever fails")
				assert.Zero(t, ledger.transactions())
				assert.Empty(t, r.unknowns())
				counts := store.counts()
				assert.Zero(t, counts[onReserve]+counts[onComplete]+counts[onRelease]+counts[onRenew], "joined work has no lease")
			})
		})
	}
}

// A commit whose answer is lost, and by the time that one looks, somebody else has
// done the work. His result is not the loser's own.
func TestCommitIsLostAndSomebodyElseHasDoneIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger := newLedger()
		store := faultyTx(ledger, rule{onCommit, 1, 0, fault{before: errDown}}, rule{onBegin, 2, 20, fault{before: errDown}})
		a := newRig(store, charge(t, http.StatusCreated), joined)
		b := newRig(ledger, charge(t, http.StatusCreated), joined)
		response := a.goPost(t)
		time.Sleep(time.Second)
		won := b.post(t)
		assert.Equal(t, http.StatusCreated, won.Code)
		requireProblem(t, <-response, http.StatusServiceUnavailable, "overtaken")
		requireReplay(t, won, a.post(t))
		assert.Equal(t, 100, ledger.sum("acct"))
	})
}

// The same, and the other is still at it.
func TestCommitIsLostAndSomebodyElseIsAtIt(t *testing.T) {
	for _, row := range []struct {
		name  string
		takes time.Duration
		kind  string
	}{
		{"and ends in time", 10 * time.Second, "overtaken"},
		{"and does not", 10 * time.Minute, "store"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ledger := newLedger()
				store := faultyTx(ledger, rule{onCommit, 1, 0, fault{before: errDown}}, rule{onBegin, 2, 20, fault{before: errDown}})
				a := newRig(store, charge(t, http.StatusCreated), joined)
				work := charge(t, http.StatusCreated)
				b := newRig(ledger, func(w http.ResponseWriter, r *http.Request) {
					time.Sleep(row.takes)
					work(w, r)
				}, joined)
				response := a.goPost(t)
				time.Sleep(time.Second)
				won := b.goPost(t)
				began := time.Now()
				requireProblem(t, <-response, http.StatusServiceUnavailable, row.kind)
				assert.Less(t, time.Since(began), time.Minute)
				assert.Equal(t, http.StatusCreated, (<-won).Code)
				assert.Equal(t, 100, ledger.sum("acct"))
			})
		})
	}
}

// What a refusal's commit says is dealt with like a success's.
func TestStoreFailsAroundAJoinedRefusal(t *testing.T) {
	const no = http.StatusPaymentRequired
	refused := failure{status: no, d: idempotency.Executed, record: idempotency.FailedFinal, again: no, replay: true, runs: 1}
	undone := failure{status: 503, kind: "store", d: idempotency.StoreFailed, again: no, runs: 2}
	named := func(f failure, name string, fault fault) failure {
		f.name, f.rules = name, []rule{{onRefuse, 1, 0, fault}, {onCommit, 1, 0, fault}}
		return f
	}
	overtaken := undone
	overtaken.kind, overtaken.d = "overtaken", idempotency.Overtaken
	for _, keep := range []bool{false, true} {
		for _, row := range []failure{
			named(refused, "nothing fails", fault{}),
			named(refused, "the answer is lost", fault{after: errLost}),
			named(undone, "it fails", fault{before: errDown}),
			named(overtaken, "the record is somebody else's", fault{before: idempotency.ErrLeaseLost}),
		} {
			t.Run(fmt.Sprint(row.name, ", keep ", keep), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ledger := newLedger()
					store := faultyTx(ledger)
					work := charge(t, no)
					row.run(t, store, store.faultyStore, func(w http.ResponseWriter, r *http.Request) {
						if keep {
							idempotency.Keep(r.Context())
						}
						work(w, r)
					}, joined)
					if keep {
						assert.Equal(t, 100, ledger.sum("acct"))
					} else {
						assert.Empty(t, ledger.ledger)
					}
					assert.Zero(t, ledger.transactions())
				})
			})
		}
	}
}

// The same at the first request alone: what a client is told, and what the ledger
// says at that moment.
func TestCommitAndLedgerAgree(t *testing.T) {
	for _, row := range []struct {
		name   string
		rules  []rule
		code   int
		ledger int
	}{
		{"committed", nil, 201, 100},
		{"not committed", []rule{{onCommit, 1, 0, fault{before: errDown}}}, 503, 0},
		{"committed, unheard", []rule{{onCommit, 1, 0, fault{after: errLost}}}, 201, 100},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := faultyTx(newLedger(), row.rules...)
				w := newRig(store, charge(t, 201), joined).post(t)
				assert.Equal(t, row.code, w.Code)
				assert.Equal(t, row.ledger, store.Store.(*ledgerStore).sum("acct"))
			})
		})
	}
}

// A rollback that fails leaves nothing behind either: a transaction that is not
// committed is not. The answer says that nothing was done, and that is so.
func TestRollbackFails(t *testing.T) {
	for _, row := range []struct {
		name string
		rule fault
		work func()
	}{
		{"500", fault{after: errLost}, func() {}},
		{"500, and it hangs", fault{delay: time.Hour}, func() {}},
		{"panic", fault{before: errDown}, func() { panic("test") }},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := faultyTx(newLedger(), rule{onRollback, 1, 0, row.rule})
				work := charge(t, 500)
				r := newRig(store, func(w http.ResponseWriter, req *http.Request) {
					work(w, req)
					row.work()
				}, joined)
				began := time.Now()
				w, panicked := servePanicking(r, request(t))
				assert.LessOrEqual(t, time.Since(began), 10*time.Second)
				requireRecord(t, store, theID, 0)
				assert.Zero(t, store.ledger.sum("acct"))
				assert.Len(t, r.dispositions(), 1)
				assert.Empty(t, r.unknowns())
				if panicked == nil {
					assert.Equal(t, 500, w.Code)
					assert.Equal(t, idempotency.Released, r.last(t).Disposition)
				}
				require.Error(t, r.last(t).Err, "it is told of")
			})
		})
	}
}

// Work that commits by itself has taken effect, whatever it answers then: it must
// never be executed again by accident.
func TestWorkThatCommitsByItself(t *testing.T) {
	byItself := fmt.Errorf("%w: committed by the work", idempotency.ErrUnknown)
	for _, row := range []struct {
		name  string
		code  int // 0: it panics; -1: it writes nothing
		rules []rule
	}{
		{name: "201", code: 201},
		{name: "402", code: 402},
		{name: "401", code: 401},
		{name: "500", code: 500},
		{name: "panic", code: 0},
		{name: "nothing written", code: -1},
		{name: "the store is away for a while", code: 201, rules: []rule{{onReserve, 1, 3, fault{before: errDown}}}},
		{name: "an answer is lost", code: 201, rules: []rule{{onReserve, 1, 0, fault{after: errLost}}}},
		{name: "another answer is lost", code: 201, rules: []rule{{onComplete, 1, 0, fault{after: errLost}}}},
		{name: "the store is away in between", code: 201, rules: []rule{{onComplete, 1, 3, fault{before: errDown}}}},
		{name: "the store hangs", code: 201, rules: []rule{{onReserve, 1, 0, fault{delay: time.Hour}}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := faultyTx(newLedger(), append(row.rules,
					rule{onCommit, 1, 0, fault{before: byItself}}, rule{onRefuse, 1, 0, fault{before: byItself}},
					rule{onRollback, 1, 0, fault{before: byItself}})...)
				r := newRig(store, func(w http.ResponseWriter, _ *http.Request) {
					switch row.code {
					case -1:
					case 0:
						panic("test")
					default:
						w.WriteHeader(row.code)
					}
				}, joined, takeover(idempotency.Reexecute))
				w, panicked := servePanicking(r, request(t))
				if panicked == nil {
					requireProblem(t, w, http.StatusConflict, "unknown")
				}
				requireRecord(t, store, theID, idempotency.Unknown)
				require.Len(t, r.unknowns(), 1)
				require.ErrorIs(t, r.unknowns()[0].Err, idempotency.ErrUnknown)
				assert.Len(t, r.dispositions(), 1)
				time.Sleep(time.Minute)
				requireUnknown(t, r)
				assert.EqualValues(t, 1, r.executions.Load())
			})
		})
	}
}

// A caller's deadline that passes in the middle of a transaction ends the work, and
// not the transaction: what was written in time counts, if the work says so.
func TestDeadlineInATransaction(t *testing.T) {
	for _, row := range []struct {
		code, sum int
		record    idempotency.Status
	}{
		{http.StatusCreated, 100, idempotency.Completed},
		{http.StatusGatewayTimeout, 0, 0},
		{http.StatusServiceUnavailable, 0, 0},
		{http.StatusNotFound, 0, idempotency.FailedFinal},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := newLedger()
			work := charge(t, row.code)
			r := newRig(store, func(w http.ResponseWriter, req *http.Request) {
				work(w, req)
				<-req.Context().Done()
			}, joined)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
			defer cancel()
			assert.Equal(t, row.code, serve(r, request(t).WithContext(ctx)).Code)
			assert.Equal(t, row.sum, store.sum("acct"))
			requireRecord(t, store, theID, row.record)
			assert.Zero(t, store.transactions())
			assert.Empty(t, r.unknowns(), "joined work is never ambiguous")
		})
	}
}

// A client that goes away in the middle of a transaction does not end it.
func TestClientGoneInATransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		work := charge(t, 201)
		ctx, cancel := context.WithCancel(t.Context())
		r := newRig(store, func(w http.ResponseWriter, req *http.Request) {
			work(w, req)
			cancel()
			time.Sleep(time.Second)
		}, joined)
		first := serve(r, request(t).WithContext(ctx))
		assert.Equal(t, http.StatusCreated, first.Code)
		assert.Equal(t, 100, store.sum("acct"))
		requireReplay(t, first, r.post(t))
	})
}

// parting is how long the store has to answer a claim when its client has left.
const parting = 500 * time.Millisecond

// The client goes while the record is being written: that goes on.
func TestClientGoneWhileTheRecordIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := faulty(new(idempotency.Memory), rule{onComplete, 1, 0, fault{delay: 3 * time.Second}},
			rule{onReserve, 1, 0, fault{delay: 3 * time.Second}})
		r := newRig(store, answer(http.StatusCreated, "made"))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second-parting/2, cancel)
		defer cancel()
		first := serve(r, request(t).WithContext(ctx))
		assert.Equal(t, http.StatusCreated, first.Code)
		assert.Equal(t, 1, store.count(onReserve))
		assert.Equal(t, 1, store.count(onComplete))
	})
}

// An Unknown that the store did not hear of is told once more than it became so,
// rather than never.
func TestUnknownThatTheStoreDidNotHear(t *testing.T) {
	for _, row := range []struct {
		name string
		work func(http.ResponseWriter, *http.Request)
	}{
		{"panic", func(http.ResponseWriter, *http.Request) { panic("test") }},
		{"policy", answer(599, "")},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := faulty(new(idempotency.Memory), rule{onComplete, 1, always, fault{before: errDown}})
				r := newRig(store, row.work, func(h *idempotency.Handler) {
					h.Settle = func(int) idempotency.Status { return idempotency.Unknown }
				})
				servePanicking(r, request(t))
				require.Len(t, r.unknowns(), 1)
				require.ErrorIs(t, r.unknowns()[0].Err, errDown)
				requireUnknown(t, r) // the claim finds an execution that died
				assert.EqualValues(t, 1, r.executions.Load())
			})
		})
	}
}

// A file for a large response that fails takes the response with it, but not the
// effect.
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

// A hundred duplicates of a running request hold nothing of the store's.
func TestDuplicatesHoldNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		var inside atomic.Int64
		r := newRig(store, func(w http.ResponseWriter, req *http.Request) {
			inside.Add(1)
			time.Sleep(time.Minute)
			w.WriteHeader(http.StatusCreated)
		}, joined, func(h *idempotency.Handler) { h.Wait = 10 * time.Second })
		for range 100 {
			r.goPost(t)
		}
		synctest.Wait()
		assert.Equal(t, 1, store.transactions())
		time.Sleep(2 * time.Minute)
		assert.EqualValues(t, 1, inside.Load())
	})
}

// A store that decides what this package does not know is not trusted to execute.
type oddStore struct{ idempotency.Store }

func (oddStore) Reserve(context.Context, idempotency.Claim) (idempotency.Reservation, error) {
	return idempotency.Reservation{Decision: 77}, nil
}

func TestStoreThatDecidesSomethingElse(t *testing.T) {
	r := newRig(oddStore{new(idempotency.Memory)}, answer(http.StatusOK, ""))
	requireUnknown(t, r)
	assert.Zero(t, r.executions.Load())
	_, err := idempotency.Do(t.Context(), oddStore{}, "", "op", "k", "", nothing)
	require.ErrorIs(t, err, idempotency.ErrUnknown)
}

// oddTransactor hands out transactions that it must not.
type oddTransactor struct{ *ledgerStore }

func (s oddTransactor) Begin(
	ctx context.Context, claim idempotency.Claim, limit time.Duration,
) (idempotency.Reservation, idempotency.Transaction, error) {
	r, tx, err := s.ledgerStore.Begin(ctx, claim, limit)
	r.Decision = 77
	return r, tx, err
}

func TestTransactorThatDecidesSomethingElse(t *testing.T) {
	r := newRig(oddTransactor{newLedger()}, answer(http.StatusOK, ""), joined)
	requireUnknown(t, r)
	assert.Zero(t, r.executions.Load())
}

// Reserve ends soon after its client has left, also if the store hangs; nothing is
// left behind, or the bubble would not end.
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
		for _, change := range []func(*idempotency.Handler){func(*idempotency.Handler) {}, joined} {
			t.Run(row.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
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
			})
		}
	}
}

// Work whose time is over before it could begin is not begun: it would only say that
// it was cut off, and be in doubt for that.
func TestWorkIsNotBegunWhenItsTimeIsOver(t *testing.T) {
	slow := fault{linger: 3 * time.Second}
	for _, row := range []struct {
		name   string
		change func(*idempotency.Handler)
		record idempotency.Status
	}{
		{"detached", func(*idempotency.Handler) {}, idempotency.FailedRetryable},
		{"joined", joined, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
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
		})
	}
}

// A store that hangs does not hold a client that stays for good either.
func TestReserveHangs(t *testing.T) {
	for _, change := range []func(*idempotency.Handler){func(*idempotency.Handler) {}, joined} {
		synctest.Test(t, func(t *testing.T) {
			hangs := fault{delay: 1000 * time.Hour}
			r := newRig(faultyTx(newLedger(), rule{onReserve, 1, always, hangs}, rule{onBegin, 1, always, hangs}),
				answer(http.StatusCreated, ""), change)
			began := time.Now()
			requireProblem(t, r.post(t), http.StatusServiceUnavailable, "store")
			assert.LessOrEqual(t, time.Since(began), 30*time.Second)
		})
	}
}

func nothing(context.Context) (idempotency.Result, error) {
	return idempotency.Result{}, errors.New("test: this was not to be executed")
}
