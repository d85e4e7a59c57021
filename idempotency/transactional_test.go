package idempotency_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// This file tests transactional work: that it is one transaction, what is committed and rolled
// back, and failures of the database during the work.

// A duplicate that waits uses no connection. It gets the result, or is executed.
func TestTransactional_duplicateWaits(t *testing.T) {
	for _, row := range []struct {
		name string
		code int // of the first
		runs int64
	}{{"for the result", http.StatusCreated, 1}, {"for its turn", http.StatusServiceUnavailable, 2}} {
		bubble.Run(t, row.name, func(t *testing.T) {
			store := newLedger()
			var calls atomic.Int64
			r := newRig(store, func(w http.ResponseWriter, req *http.Request) {
				time.Sleep(10 * time.Second)
				code := http.StatusCreated
				if calls.Add(1) == 1 {
					code = row.code
				}
				charge(t, code)(w, req)
			}, transactional, func(h *idempotency.Handler) { h.DuplicateWait = time.Minute })
			first := r.goPost(t)
			time.Sleep(time.Second)
			second := r.goPost(t)
			time.Sleep(time.Second)
			assert.Equal(t, 1, store.transactions())
			assert.Equal(t, row.code, (<-first).Code)
			again := <-second
			assert.Equal(t, http.StatusCreated, again.Code)
			assert.Equal(t, row.runs == 1, again.Header().Get("Idempotency-Replayed") != "")
			assert.Equal(t, row.runs, calls.Load())
			assert.Equal(t, 100, store.sum("acct"))
		})
	}
}

// An early return rolls back, as usual in Go. A 4xx is stored without the writes, unless
// CommitOnFailure was called.
func TestTransactional_earlyReturnRollsBack(t *testing.T) {
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
		{"unknown, by policy", 409, false, idempotency.Unknown, 0, idempotency.OutcomeUnknown},
		{"unknown, by policy, and Keep", 409, true, idempotency.Unknown, 0, idempotency.OutcomeUnknown},
	} {
		t.Run(row.name, func(t *testing.T) {
			store := newLedger()
			work := charge(t, row.code)
			r := newRig(store, func(w http.ResponseWriter, req *http.Request) {
				if row.keep {
					idempotency.CommitOnFailure(req.Context())
				}
				work(w, req)
			}, transactional, func(h *idempotency.Handler) {
				h.Classify = func(code int) idempotency.Status {
					if code == http.StatusConflict {
						return idempotency.Unknown
					}
					return idempotency.ClassifyStatus(code) // is as good as 0
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

func TestStoreFails_transactionalWork(t *testing.T) {
	const ok = http.StatusCreated
	down, lost, lease := fault{before: errDown}, fault{after: errLost}, fault{before: idempotency.ErrLeaseLost}
	done := failure{status: ok, d: idempotency.Executed, record: idempotency.Completed, again: ok, replay: true, runs: 1}
	undone := failure{status: 503, kind: "store", d: idempotency.StoreFailed, again: ok, runs: 2}
	unheard := undone // it was committed, and the client learns it from its next request
	unheard.record, unheard.replay, unheard.runs, unheard.doubt = idempotency.Completed, true, 1, true
	late := unheard // it is committed even later
	late.record = 0
	before := undone // the work was not even begun
	before.runs = 1
	unresolved := undone // it was not committed, but that is not known
	unresolved.doubt = true
	never := undone
	never.status, never.kind = 500, "uncommittable"
	overtaken := undone
	overtaken.kind, overtaken.d = "lease-lost", idempotency.LeaseLost
	for _, row := range []failure{
		done.named("nothing fails"),
		done.named("Begin fails once", rule{onBegin, 1, 0, down}),
		done.named("Begin's answer is lost", rule{onBegin, 1, 0, lost}),
		before.named("Begin is down", rule{onBegin, 1, always, down}),
		before.named("Begin's answers are lost, all of them", rule{onBegin, 1, always, lost}),
		before.named("Begin hangs", rule{onBegin, 1, always, fault{delay: time.Hour}}),
		undone.named("the commit fails", rule{onCommit, 1, 0, down}),
		done.named("the commit's answer is lost", rule{onCommit, 1, 0, lost}),
		done.named("the commit's answer comes too late", rule{onCommit, 1, 0, fault{linger: time.Minute, after: errLost}}),
		undone.named("the commit hangs", rule{onCommit, 1, 0, fault{delay: time.Hour}}),
		done.named("the commit is done later than its answer was lost", rule{onCommit, 1, 0, fault{after: errLost, ghost: 9 * time.Second}}),
		undone.named("the commit is undone later than its answer was lost", rule{onCommit, 1, 0, fault{before: errLost, ghost: 9 * time.Second}}),
		late.named("the commit is done after the lease's time", rule{onCommit, 1, 0, fault{after: errLost, ghost: 40 * time.Second}}),
		done.named("the commit's answer is lost, and the store is away for a while", rule{onCommit, 1, 0, lost}, rule{onBegin, 2, 12, down}),
		undone.named("the commit fails, and the store is away for a while", rule{onCommit, 1, 0, down}, rule{onBegin, 2, 12, down}),
		done.named("the commit's answer is lost, and a Begin hangs", rule{onCommit, 1, 0, lost}, rule{onBegin, 2, 0, fault{delay: time.Hour}}),
		unheard.named("the commit's answer is lost, and the store is gone", rule{onCommit, 1, 0, lost}, rule{onBegin, 2, always, down}),
		unresolved.named("the commit fails, and the store is gone", rule{onCommit, 1, 0, down}, rule{onBegin, 2, always, down}),
		overtaken.named("another execution has the record at the commit", rule{onCommit, 1, 0, lease}),
		undone.named("the transaction has failed", rule{onCommit, 1, 0, fault{before: fmt.Errorf("%w: too many connections", idempotency.ErrTransactionFailed)}}),
		never.named("the writes can never be committed", rule{onCommit, 1, 0, fault{before: fmt.Errorf("%w: duplicate key", idempotency.ErrUncommittable)}}),
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			ledger := newLedger()
			store := faultyTx(ledger)
			r := row.run(t, store, store.faultyStore, charge(t, ok), transactional)
			assert.Equal(t, 100, ledger.sum("acct"), "one effect, whatever fails")
			assert.Zero(t, ledger.transactions())
			assert.Empty(t, r.unknowns())
			counts := store.counts()
			assert.Zero(t, counts[onReserve]+counts[onComplete]+counts[onRelease]+counts[onRenew], "transactional work has no lease")
		})
	}
}

// After a commit without an answer, the result is looked up: also after the work's deadline,
// and for some time if the lease is short.
func TestCommit_withoutAnAnswerIsLookedUp(t *testing.T) {
	for _, row := range []struct {
		name string
		rule fault
		code int
		says string
	}{
		{"committed", fault{after: errLost}, http.StatusCreated, ""},
		{"not committed", fault{before: errLost}, http.StatusServiceUnavailable, "not committed"},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			store := faultyTx(newLedger(), rule{onCommit, 1, 0, row.rule})
			work := charge(t, http.StatusCreated)
			r := newRig(store, func(w http.ResponseWriter, req *http.Request) {
				work(w, req)
				<-req.Context().Done()
				store.obey(rule{onBegin, 2, 10, fault{before: errDown}})
			}, transactional, lease(time.Second))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			assert.Equal(t, row.code, serve(r, request(t).WithContext(ctx)).Code)
			assert.Equal(t, 11, store.count(onBegin))
			if row.says != "" {
				require.ErrorContains(t, r.last(t).Err, row.says)
				require.ErrorIs(t, r.last(t).Err, errLost)
			}
		})
	}
}

// The answer to a commit is lost, and another execution has done the work before the look-up, or is at it.
// Its result is not that of the first execution.
func TestCommit_lostToAnotherExecution(t *testing.T) {
	for _, row := range []struct {
		name  string
		takes time.Duration
		kind  string
	}{
		{"done before", 0, "lease-lost"},
		{"in progress, and ends in time", 10 * time.Second, "lease-lost"},
		{"in progress, and does not", 10 * time.Minute, "store"},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			ledger := newLedger()
			store := faultyTx(ledger, rule{onCommit, 1, 0, fault{before: errDown}}, rule{onBegin, 2, 20, fault{before: errDown}})
			a := newRig(store, charge(t, http.StatusCreated), transactional)
			work := charge(t, http.StatusCreated)
			b := newRig(ledger, func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(row.takes)
				work(w, r)
			}, transactional)
			response := a.goPost(t)
			time.Sleep(time.Second)
			won := b.goPost(t)
			began := time.Now()
			requireProblem(t, <-response, http.StatusServiceUnavailable, row.kind)
			assert.Less(t, time.Since(began), time.Minute)
			first := <-won
			assert.Equal(t, http.StatusCreated, first.Code)
			requireReplay(t, first, a.post(t))
			assert.Equal(t, 100, ledger.sum("acct"))
		})
	}
}

// A rollback that fails leaves nothing behind: the transaction is not committed. So the response
// "nothing was done" is correct.
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
		bubble.Run(t, row.name, func(t *testing.T) {
			store := faultyTx(newLedger(), rule{onRollback, 1, 0, row.rule})
			work := charge(t, 500)
			r := newRig(store, func(w http.ResponseWriter, req *http.Request) {
				work(w, req)
				row.work()
			}, transactional)
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
			require.Error(t, r.last(t).Err, "the event has the error")
		})
	}
}

// Work that commits the transaction itself has taken effect, for any later response. It must
// not be executed again.
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
		bubble.Run(t, row.name, func(t *testing.T) {
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
			}, transactional, takeover(idempotency.Reexecute))
			began := time.Now()
			w, panicked := servePanicking(r, request(t))
			if panicked == nil {
				requireProblem(t, w, http.StatusConflict, "unknown")
			}
			assert.Less(t, time.Since(began), 20*time.Second, "an answer is an answer")
			requireRecord(t, store, theID, idempotency.Unknown)
			require.Len(t, r.unknowns(), 1)
			require.ErrorIs(t, r.unknowns()[0].Err, idempotency.ErrUnknown)
			assert.Len(t, r.dispositions(), 1)
			time.Sleep(time.Minute)
			requireUnknown(t, r)
			assert.EqualValues(t, 1, r.executions.Load())
		})
	}
}

// The store fails before it has stored all of that. The record becomes Unknown, though
// Takeover allows a repetition.
func TestWorkThatCommitsByItselfAndTheStoreIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		byItself := fmt.Errorf("%w: committed by the work", idempotency.ErrUnknown)
		store := faultyTx(newLedger(), rule{onCommit, 1, 0, fault{before: byItself}}, rule{onComplete, 1, always, fault{before: errDown}})
		r := newRig(store, answer(http.StatusCreated, ""), transactional, takeover(idempotency.Reexecute))
		requireProblem(t, r.post(t), http.StatusConflict, "unknown")
		requireRecord(t, store, theID, idempotency.StatusInProgress)
		time.Sleep(time.Minute)
		requireUnknown(t, r)
		assert.EqualValues(t, 1, r.executions.Load())
	})
}
