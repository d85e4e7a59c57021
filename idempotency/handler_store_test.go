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
	if f.record == 0 {
		_, err := faults.Load(t.Context(), theID)
		require.ErrorIs(t, err, idempotency.ErrNotFound)
	} else {
		require.Equal(t, f.record, mustLoad(t, faults, theID).Status)
	}

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
	const failed = http.StatusBadGateway
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
	down, lost := fault{before: errDown}, fault{after: errLost}
	for _, row := range []struct {
		failure

		sum int // in the ledger, in the end
	}{
		{failure{
			name: "nothing fails", status: ok, d: idempotency.Executed, record: idempotency.Completed,
			again: ok, replay: true, runs: 1,
		}, 100},
		{failure{
			name: "Begin fails", rules: []rule{{onBegin, 1, 0, down}},
			status: 500, d: idempotency.Released, record: idempotency.FailedRetryable, again: ok, runs: 2,
		}, 100},
		{failure{
			name: "the commit fails", rules: []rule{{onCommit, 1, 0, down}},
			status: 503, kind: "store", d: idempotency.StoreFailed, record: idempotency.FailedRetryable, again: ok, runs: 2,
		}, 100},
		{failure{
			name: "the commit's answer is lost", rules: []rule{{onCommit, 1, 0, lost}},
			status: ok, d: idempotency.Executed, record: idempotency.Completed, again: ok, replay: true, runs: 1,
		}, 100},
		{failure{
			name: "the commit's answer comes too late", rules: []rule{{onCommit, 1, 0, fault{linger: time.Minute, after: errLost}}},
			status: ok, d: idempotency.Executed, record: idempotency.Completed, again: ok, replay: true, runs: 1,
		}, 100},
		{failure{
			name:   "the commit's answer is lost, and the store is away for a while",
			rules:  []rule{{onCommit, 1, 0, lost}, {onRelease, 1, 5, down}, {onLoad, 1, 5, down}},
			status: ok, d: idempotency.Executed, record: idempotency.Completed, again: ok, replay: true, runs: 1,
		}, 100},
		{failure{
			name:   "the commit fails, and the release's answer is lost",
			rules:  []rule{{onCommit, 1, 0, down}, {onRelease, 1, 0, lost}},
			status: 503, kind: "store", d: idempotency.StoreFailed, record: idempotency.FailedRetryable, again: ok, runs: 2,
		}, 100},
		{failure{
			name:   "the commit's answer is lost, and the store is gone",
			rules:  []rule{{onCommit, 1, 0, lost}, {onRelease, 1, always, down}, {onLoad, 1, always, down}},
			status: 503, kind: "store", d: idempotency.StoreFailed, record: idempotency.Completed, again: ok, replay: true, runs: 1,
		}, 100},
		{failure{
			name:   "the commit fails, and the store is gone",
			rules:  []rule{{onCommit, 1, 0, down}, {onRelease, 1, always, down}, {onLoad, 1, always, down}},
			status: 503, kind: "store", d: idempotency.StoreFailed, record: idempotency.InProgress, again: ok, runs: 2,
		}, 100},
		{failure{
			name:   "the commit fails, and somebody else has the operation",
			rules:  []rule{{onCommit, 1, 0, down}, {onRelease, 1, 0, fault{before: idempotency.ErrLeaseLost}}},
			status: 503, kind: "overtaken", d: idempotency.Overtaken, record: idempotency.InProgress, again: ok, runs: 2,
		}, 100},
		{failure{
			name: "the lease is lost at the commit", rules: []rule{{onCommit, 1, 0, fault{before: idempotency.ErrLeaseLost}}},
			status: 503, kind: "overtaken", d: idempotency.Overtaken, record: idempotency.InProgress, again: ok, runs: 2,
		}, 100},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := faultyTx(newLedger())
				ledger := store.Store.(*ledgerStore)
				row.run(t, store, store.faultyStore, charge(t, ok), joined)
				assert.Equal(t, row.sum, ledger.sum("acct"), "one effect, whatever fails")
				assert.Zero(t, ledger.transactions())
			})
		})
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

// Work that is not joined may have done more than what its transaction undoes. A
// commit that fails is then a death between effect and record.
func TestCommitFailsAroundDetachedWork(t *testing.T) {
	for _, row := range []struct {
		name     string
		takeover idempotency.Takeover
		rules    []rule
		status   int
		kind     string
		d        idempotency.Disposition
		record   idempotency.Status
		sum      int
	}{
		{
			"not committed", 0, []rule{{onCommit, 1, 0, fault{before: errDown}}},
			409, "unknown", idempotency.Doubtful, idempotency.Unknown, 0,
		},
		{
			"committed, unheard", 0, []rule{{onCommit, 1, 0, fault{after: errLost}}},
			201, "", idempotency.Executed, idempotency.Completed, 100,
		},
		{
			"not committed, may be executed again", idempotency.Reexecute, []rule{{onCommit, 1, 0, fault{before: errDown}}},
			503, "store", idempotency.StoreFailed, idempotency.FailedRetryable, 0,
		},
		{
			"not committed, may be resumed", idempotency.Resume, []rule{{onCommit, 1, 0, fault{before: errDown}}},
			503, "store", idempotency.StoreFailed, idempotency.InProgress, 0,
		},
		{
			"committed, unheard, may be resumed", idempotency.Resume, []rule{{onCommit, 1, 0, fault{after: errLost}}},
			201, "", idempotency.Executed, idempotency.Completed, 100,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := faultyTx(newLedger(), row.rules...)
				ledger := store.Store.(*ledgerStore)
				var resumed []bool
				work := charge(t, 201)
				r := newRig(store, func(w http.ResponseWriter, req *http.Request) {
					e, _ := idempotency.FromContext(req.Context())
					resumed = append(resumed, e.Resumed)
					work(w, req)
				}, takeover(row.takeover))
				first := r.post(t)
				if row.kind != "" {
					requireProblem(t, first, row.status, row.kind)
				} else {
					assert.Equal(t, row.status, first.Code)
				}
				assert.Equal(t, []idempotency.Disposition{row.d}, r.dispositions())
				assert.Equal(t, row.record, mustLoad(t, store, theID).Status)
				assert.Equal(t, row.sum, ledger.sum("acct"))
				time.Sleep(time.Second)
				switch row.record {
				case idempotency.Unknown:
					require.Len(t, r.unknowns(), 1)
					requireUnknown(t, r)
					assert.EqualValues(t, 1, r.executions.Load())
				case idempotency.Completed:
					requireReplay(t, first, r.post(t))
				default:
					assert.Equal(t, 201, r.post(t).Code)
					assert.Equal(t, []bool{false, row.takeover == idempotency.Resume}, resumed)
					assert.Equal(t, 100, ledger.sum("acct"))
				}
			})
		})
	}
}

// Writes of work that says it does not know are not kept, and neither are those of
// work that failed.
func TestJoinedWorkThatIsNotStoredIsRolledBack(t *testing.T) {
	for _, row := range []struct {
		code   int
		record idempotency.Status
		sum    int
	}{
		{200, idempotency.Completed, 100},
		{303, idempotency.Completed, 100},
		{402, idempotency.FailedFinal, 100},
		{401, idempotency.FailedRetryable, 0},
		{429, idempotency.FailedRetryable, 0},
		{500, idempotency.FailedRetryable, 0},
		{599, idempotency.Unknown, 0},
	} {
		store := newLedger()
		r := newRig(store, charge(t, row.code), joined, func(h *idempotency.Handler) {
			h.Settle = func(code int) idempotency.Status {
				if code == 599 {
					return idempotency.Unknown
				}
				return 0
			}
		})
		assert.Equal(t, row.code, r.post(t).Code)
		assert.Equal(t, row.sum, store.sum("acct"), row.code)
		assert.Equal(t, row.record, mustLoad(t, store, theID).Status)
		assert.Zero(t, store.transactions())
	}
}

// What cannot be rolled back must not be given back: its writes may yet stand.
func TestRollbackFails(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*idempotency.Handler)
		work   func()
		record idempotency.Status // while the transaction is still open
	}{
		{"joined, 500", joined, func() {}, idempotency.InProgress},
		{"joined, panic", joined, func() { panic("test") }, idempotency.InProgress},
		{"detached, 500", func(*idempotency.Handler) {}, func() {}, idempotency.FailedRetryable},
		{"detached, panic", func(*idempotency.Handler) {}, func() { panic("test") }, idempotency.Unknown},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := faultyTx(newLedger(), rule{onRollback, 1, 0, fault{after: errLost}})
				work := charge(t, 500)
				r := newRig(store, func(w http.ResponseWriter, req *http.Request) {
					work(w, req)
					row.work()
				}, row.change)
				servePanicking(r, request(t))
				assert.Equal(t, row.record, mustLoad(t, store, theID).Status)
				assert.Zero(t, store.Store.(*ledgerStore).sum("acct"))
				assert.Len(t, r.dispositions(), 1)
			})
		})
	}
}

// A statement that fails may take the transaction with it, in PostgreSQL. A refusal
// is stored then, without the writes; a success is not one.
func TestWorkWhoseTransactionFailed(t *testing.T) {
	failed := fmt.Errorf("%w: duplicate key", idempotency.ErrTransactionFailed)
	for _, row := range []struct {
		name   string
		change func(*idempotency.Handler)
		code   int
		want   int // the answer
		status idempotency.Status
	}{
		{"joined, 409", joined, 409, 409, idempotency.FailedFinal},
		{"joined, 201", joined, 201, 503, idempotency.FailedRetryable},
		{"detached, 409", takeover(idempotency.MarkUnknown), 409, 409, idempotency.FailedFinal},
		{"detached, 201", takeover(idempotency.MarkUnknown), 201, 409, idempotency.Unknown},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ledger := newLedger()
				store := faultyTx(ledger, rule{onCommit, 1, 0, fault{before: failed}})
				r := newRig(store, charge(t, row.code), row.change)
				assert.Equal(t, row.want, serve(r, request(t)).Code)
				assert.Equal(t, row.status, mustLoad(t, store, theID).Status)
				assert.Empty(t, ledger.ledger, "writes")
			})
		})
	}
}

// Work that commits by itself has taken effect, whatever it answers then: it must
// never be executed again by accident.
func TestWorkThatCommitsByItself(t *testing.T) {
	byItself := fmt.Errorf("%w: committed by the work", idempotency.ErrUnknown)
	for _, row := range []struct {
		name   string
		change func(*idempotency.Handler)
		code   int // 0: it panics
	}{
		{"joined, 201", joined, 201},
		{"joined, 402", joined, 402},
		{"joined, 500", joined, 500},
		{"joined, panic", joined, 0},
		{"detached, 201", takeover(idempotency.Reexecute), 201},
		{"detached, 500", takeover(idempotency.Reexecute), 500},
		{"detached, panic", takeover(idempotency.Reexecute), 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := faultyTx(newLedger(), rule{onCommit, 1, 0, fault{before: byItself}}, rule{onRollback, 1, 0, fault{after: byItself}})
				work := charge(t, max(row.code, 200))
				r := newRig(store, func(w http.ResponseWriter, req *http.Request) {
					work(w, req)
					if row.code == 0 {
						panic("test")
					}
				}, row.change)
				servePanicking(r, request(t))
				assert.Equal(t, idempotency.Unknown, mustLoad(t, store, theID).Status)
				require.Len(t, r.unknowns(), 1)
				require.ErrorIs(t, r.unknowns()[0].Err, idempotency.ErrUnknown)
				time.Sleep(time.Minute)
				requireUnknown(t, r)
				assert.EqualValues(t, 1, r.executions.Load())
			})
		})
	}
}

// A caller's deadline that passes in the middle of a transaction ends it, as it
// does with database/sql. Then nothing was written, and the client learns it.
func TestDeadlineInATransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		work := charge(t, 201)
		r := newRig(store, func(w http.ResponseWriter, req *http.Request) {
			work(w, req)
			time.Sleep(time.Second) // deaf
		}, joined)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		requireProblem(t, serve(r, request(t).WithContext(ctx)), http.StatusServiceUnavailable, "store")
		assert.Zero(t, store.sum("acct"))
		assert.Equal(t, http.StatusCreated, r.post(t).Code)
		assert.Equal(t, 100, store.sum("acct"))
	})
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

// The client goes while the record is being written: that goes on.
func TestClientGoneWhileTheRecordIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := faulty(new(idempotency.Memory), rule{onComplete, 1, 0, fault{delay: 3 * time.Second}},
			rule{onReserve, 1, 0, fault{delay: 3 * time.Second}})
		r := newRig(store, answer(http.StatusCreated, "made"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
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
			_, err := idempotency.Tx[*ledgerTx](req.Context())
			assert.NoError(t, err)
			inside.Add(1)
			time.Sleep(time.Minute)
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

func nothing(context.Context) (idempotency.Result, error) {
	return idempotency.Result{}, errors.New("test: this was not to be executed")
}
