package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// This file tests heartbeats, lost leases, time limits and takeovers. Each test runs in
// virtual time, and fails if a goroutine or a timer is left behind.

// working is a handler that works for a time, ignores its context, and then responds.
func working(d time.Duration, cause *atomic.Value) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(d)
		if err := context.Cause(r.Context()); err != nil {
			cause.Store(err)
		}
		answer(http.StatusCreated, "made")(w, r)
	}
}

func TestRenewal_failsForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cause atomic.Value
		store := faulty(new(idempotency.Memory), rule{verb: onRenew, from: 1, to: 4, fault: fault{before: errDown}})
		r := newRig(store, working(time.Minute, &cause))
		began := time.Now()
		w := r.post(t)
		assert.Equal(t, http.StatusCreated, w.Code)
		assert.Nil(t, cause.Load())
		beats := store.times(onRenew)
		require.Greater(t, len(beats), 5)
		for i, want := range []float64{10, 13, 16, 19, 22, 32} {
			assert.InDelta(t, want, beats[i].Sub(began).Seconds(), 1e-6, "beat %d", i+1)
		}
		require.Len(t, r.renewals(), 4)
		for _, event := range r.renewals() {
			assert.Equal(t, theID, event.ID)
			assert.NotEmpty(t, event.Owner)
			assert.EqualValues(t, 1, event.Generation)
			assert.Equal(t, errDown, event.Err)
		}
		assert.Equal(t, []idempotency.Disposition{idempotency.Executed}, r.dispositions())
	})
}

func TestRenewal_failsUntilTheLeaseIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := faulty(new(idempotency.Memory), rule{verb: onRenew, from: 1, to: always, fault: fault{before: errDown}})
		var cause error
		began := time.Now()
		r := newRig(store, func(w http.ResponseWriter, req *http.Request) {
			<-req.Context().Done()
			cause = context.Cause(req.Context())
			assert.Equal(t, 30*time.Second, time.Since(began))
			w.WriteHeader(http.StatusCreated)
		})
		w := r.post(t)
		assert.Equal(t, idempotency.ErrLeaseLost, cause)

		// No other execution had taken over, so the result is stored.
		assert.Equal(t, http.StatusCreated, w.Code)
		synctest.Wait()
		renewals := r.renewals()
		last := renewals[len(renewals)-1]
		require.ErrorIs(t, last.Err, idempotency.ErrLeaseLost)
		for _, event := range renewals[:len(renewals)-1] {
			assert.NotErrorIs(t, event.Err, idempotency.ErrLeaseLost)
		}
		n := store.count(onRenew)
		time.Sleep(time.Hour)
		assert.Equal(t, n, store.count(onRenew))
	})
}

// The renewals of a handler fail, and another process with the same store takes over while the handler runs.
func TestTheLoserNeverAnswersSuccess(t *testing.T) {
	for _, code := range []int{200, 201, 204, 302, 400, 401, 404, 429, 500, 503} {
		synctest.Test(t, func(t *testing.T) {
			store, again := new(idempotency.Memory), takeover(idempotency.Reexecute)
			a := newRig(faulty(store, rule{verb: onRenew, from: 1, to: always, fault: fault{before: errDown}}), func(w http.ResponseWriter, _ *http.Request) {
				time.Sleep(time.Minute) // deaf
				w.Header().Set("Handler", "this")
				w.WriteHeader(code)
			}, again)
			response := a.goPost(t)
			time.Sleep(31 * time.Second)
			won := newRig(store, answer(http.StatusAccepted, "the winner's"), again).post(t)
			w := <-response
			requireReplay(t, won, a.post(t))
			record := mustLoad(t, store, theID)
			assert.EqualValues(t, 2, record.Generation)
			assert.Equal(t, http.StatusAccepted, record.Result.Code)
			requireProblem(t, w, http.StatusServiceUnavailable, "lease-lost")
			assert.Empty(t, w.Header().Get("Retry-After"), "the work may be done")
			assert.Equal(t, []idempotency.Disposition{idempotency.LeaseLost, idempotency.Replayed}, a.dispositions())
		})
	}
}

// A renewal finds that another execution has taken over.
func TestRenewal_afterTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(idempotency.Memory)
		var cause atomic.Value
		a := newRig(store, working(time.Hour/20, &cause), takeover(idempotency.Reexecute))
		response := a.goPost(t)
		synctest.Wait()

		// As if the process had slept: its lease is over, by the database's clock.
		record := mustLoad(t, store, theID)
		require.NoError(t, store.Renew(t.Context(), record.Lease(), time.Nanosecond))
		time.Sleep(time.Millisecond)
		b := newRig(store, answer(http.StatusAccepted, "the winner's"))
		won := b.post(t)
		assert.Equal(t, http.StatusAccepted, won.Code)

		requireProblem(t, <-response, http.StatusServiceUnavailable, "lease-lost")
		assert.Equal(t, idempotency.ErrLeaseLost, cause.Load())
		require.Len(t, a.renewals(), 1)
		require.ErrorIs(t, a.renewals()[0].Err, idempotency.ErrLeaseLost)
		requireReplay(t, won, a.post(t))
	})
}

func TestTakeoverAfterACrash(t *testing.T) {
	for _, row := range []struct {
		name    string
		change  func(*idempotency.Handler)
		unknown bool
		resumed bool
	}{
		{name: "non-transactional, by default", unknown: true},
		{name: "non-transactional, unknown", change: takeover(idempotency.MarkUnknown), unknown: true},
		{name: "non-transactional, again", change: takeover(idempotency.Reexecute)},
		{name: "non-transactional, resume", change: takeover(idempotency.Resume), resumed: true},
		{name: "non-transactional, found by transactional work", change: transactional, unknown: true},
		{name: "non-transactional, again, found by transactional work", change: func(h *idempotency.Handler) {
			h.Transactional, h.Takeover = true, idempotency.Reexecute
		}},
		{name: "non-transactional, resume, found by transactional work", change: func(h *idempotency.Handler) {
			h.Transactional, h.Takeover = true, idempotency.Resume
		}, resumed: true},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			store := newLedger()
			var seen idempotency.Execution
			r := newRig(store, func(w http.ResponseWriter, req *http.Request) {
				seen, _ = idempotency.FromContext(req.Context())
				w.WriteHeader(http.StatusCreated)
			}, row.change)
			dead := crash(t, r.Handler, store, request(t))
			time.Sleep(29 * time.Second)
			requireProblem(t, r.post(t), http.StatusConflict, "in-progress")
			assert.Empty(t, r.unknowns())
			time.Sleep(2 * time.Second)
			if row.unknown {
				requireUnknown(t, r)
				require.Len(t, r.unknowns(), 1)
				event := r.unknowns()[0]
				assert.Equal(t, theID, event.ID)
				require.ErrorContains(t, event.Err, "lease of an execution expired")
				requireUnknown(t, r)
				assert.Len(t, r.unknowns(), 1, "it has become unknown once")
				assert.Zero(t, r.executions.Load())
			} else {
				assert.Equal(t, http.StatusCreated, r.post(t).Code)
				assert.Equal(t, row.resumed, seen.Resumed)
				assert.EqualValues(t, 2, seen.Generation)
			}
			// The execution was only slow, and ends after the takeover.
			err := store.Complete(t.Context(), dead, idempotency.Outcome{Status: idempotency.Completed})
			assert.ErrorIs(t, err, idempotency.ErrLeaseLost)
		})
	}
}

func TestLimit(t *testing.T) {
	for _, row := range []struct {
		name  string
		limit time.Duration
		want  time.Duration // 0: none
	}{
		{"default", 0, 15 * time.Minute},
		{"a minute", time.Minute, time.Minute},
		{"shorter than a heartbeat", time.Second, time.Second},
		{"none", -1, 0},
	} {
		for _, transactional := range []bool{false, true} {
			bubble.Run(t, fmt.Sprint(row.name, ", transactional ", transactional), func(t *testing.T) {
				began := time.Now()
				r := newRig(newLedger(), func(w http.ResponseWriter, req *http.Request) {
					if tx, err := idempotency.Tx[*ledgerTx](req.Context()); assert.Equal(t, transactional, err == nil) && transactional {
						assert.Equal(t, row.want, tx.limit)
					}
					if row.want == 0 {
						time.Sleep(24 * time.Hour)
						assert.NoError(t, req.Context().Err())
						w.WriteHeader(http.StatusOK)
						return
					}
					<-req.Context().Done()
					assert.Equal(t, row.want, time.Since(began))
					assert.Equal(t, idempotency.ErrTimeLimit, context.Cause(req.Context()))
					assert.Equal(t, context.DeadlineExceeded, req.Context().Err())
					w.WriteHeader(http.StatusServiceUnavailable)
				}, func(h *idempotency.Handler) {
					h.Timeout, h.TTL, h.Transactional = row.limit, 7*24*time.Hour, transactional
				})
				w := r.post(t)
				if row.want == 0 {
					assert.Equal(t, http.StatusOK, w.Code)
					return
				}
				assert.Equal(t, http.StatusServiceUnavailable, w.Code)
				want := idempotency.OutcomeUnknown // it says that it did nothing, but it was cut off
				if transactional {
					want = idempotency.Released
				}
				assert.Equal(t, []idempotency.Disposition{want}, r.dispositions())
			})
		}
	}
}

// A handler that does not return loses its lease a lease after its time limit. Its later
// response has no effect.
func TestHandler_thatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := faulty(new(idempotency.Memory))
		var cause atomic.Value
		limit := func(h *idempotency.Handler) { h.Timeout, h.Takeover = time.Minute, idempotency.Reexecute }
		r := newRig(store, working(24*time.Hour, &cause), limit)
		response := r.goPost(t)
		time.Sleep(time.Minute + 20*time.Second)
		renewed := store.count(onRenew)
		assert.Equal(t, 5, renewed, "at 10 s to 50 s, and no more")
		again := newRig(store, answer(http.StatusAccepted, "the winner's"), limit)
		won := again.post(t)
		assert.Equal(t, http.StatusAccepted, won.Code)

		requireProblem(t, <-response, http.StatusServiceUnavailable, "lease-lost")
		assert.Equal(t, idempotency.ErrTimeLimit, cause.Load())
		assert.Equal(t, renewed, store.count(onRenew))
		require.Len(t, r.renewals(), 1)
		require.ErrorIs(t, r.renewals()[0].Err, idempotency.ErrLeaseLost)
		require.ErrorIs(t, r.renewals()[0].Err, idempotency.ErrTimeLimit)
		requireReplay(t, won, r.post(t))
	})
}

// I2: the time limit ends the work, and the caller's deadline only if it is transactional.
func TestLimitAndDeadline(t *testing.T) {
	for _, row := range []struct {
		name            string
		change          func(*idempotency.Handler)
		limit, deadline time.Duration
		want            time.Duration
		cause           error
	}{
		{"limit first", nil, time.Second, time.Minute, time.Second, idempotency.ErrTimeLimit},
		{"deadline first", nil, time.Minute, time.Second, time.Minute, idempotency.ErrTimeLimit},
		{"limit first, transactional", transactional, time.Second, time.Minute, time.Second, idempotency.ErrTimeLimit},
		{"deadline first, transactional", transactional, time.Minute, time.Second, time.Second, context.DeadlineExceeded},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			type name struct{}
			began := time.Now()
			r := newRig(newLedger(), func(_ http.ResponseWriter, req *http.Request) {
				assert.Equal(t, "x", req.Context().Value(name{}))
				<-req.Context().Done()
				assert.Equal(t, row.want, time.Since(began))
				assert.Equal(t, row.cause, context.Cause(req.Context()))
			}, row.change, func(h *idempotency.Handler) { h.Timeout = row.limit })
			ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), name{}, "x"), row.deadline)
			defer cancel()
			serve(r, request(t).WithContext(ctx))
		})
	}
}

// A lease that cannot be renewed ends at its time, also if the claim was slow or the last
// renewal hangs.
func TestLeaseIsOverInTime(t *testing.T) {
	for _, row := range []struct {
		name  string
		rules []rule
	}{
		{"the claim was slow", []rule{{onReserve, 1, 0, fault{linger: 4 * time.Second}}, {onRenew, 1, always, fault{before: errDown}}}},
		{"the last renewal hangs", []rule{{onRenew, 1, 6, fault{before: errDown}}, {onRenew, 7, always, fault{delay: time.Hour}}}},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			began := time.Now()
			r := newRig(faulty(new(idempotency.Memory), row.rules...), func(w http.ResponseWriter, req *http.Request) {
				<-req.Context().Done()
				assert.Equal(t, 30*time.Second, time.Since(began))
				assert.Equal(t, idempotency.ErrLeaseLost, context.Cause(req.Context()))
				w.WriteHeader(http.StatusCreated)
			})
			assert.Equal(t, http.StatusCreated, r.post(t).Code)
		})
	}
}

// I2: work does not begin after its lease is over, for example if the process was suspended while it waited for the claim's
// answer: another execution may have begun.
func TestHandler_doesNotBeginWorkAfterItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(faulty(new(idempotency.Memory), rule{onReserve, 1, 0, fault{linger: time.Minute}}), answer(http.StatusCreated, ""))
		requireProblem(t, r.post(t), http.StatusServiceUnavailable, "store")
		require.ErrorIs(t, r.last(t).Err, idempotency.ErrLeaseLost)
		assert.Zero(t, r.executions.Load())
		assert.Equal(t, http.StatusCreated, r.post(t).Code)
	})
}

// renewing is a store with renewals that take as long as they may.
type renewing struct {
	idempotency.Memory
	ended chan time.Time
}

func (s *renewing) Renew(ctx context.Context, _ idempotency.Lease, _ time.Duration) error {
	<-ctx.Done()
	s.ended <- time.Now()
	return ctx.Err()
}

// A renewal in flight at the end ends with the execution, and releases its connection. It does not delay the response, and its
// failure is not reported.
func TestRenewal_endsWithTheExecution(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &renewing{ended: make(chan time.Time, 1)}
		r := newRig(store, working(11*time.Second, new(atomic.Value)))
		began := time.Now()
		r.post(t)
		assert.Equal(t, 11*time.Second, time.Since(began))
		assert.Equal(t, began.Add(11*time.Second), <-store.ended)
		time.Sleep(time.Minute)
		assert.Empty(t, r.renewals())
	})
}

// Two slow claims fit into one lease. Otherwise the second claim would find the lease of the
// first one expired.
func TestClaimsFitIntoTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := faulty(new(idempotency.Memory), rule{verb: onReserve, from: 1, fault: fault{delay: time.Hour}})
		r := newRig(store, answer(http.StatusCreated, "made"), lease(time.Second))
		began := time.Now()
		assert.Equal(t, http.StatusCreated, r.post(t).Code)
		assert.Less(t, time.Since(began), 500*time.Millisecond)
	})
}

var errGone = errors.New("test: the client has gone")

// An execution leaves no timer behind: it would keep the request in memory until the time
// limit.
func TestNothingIsKeptOfAnExecution(t *testing.T) {
	type name struct{}
	for _, code := range []int{http.StatusOK, http.StatusServiceUnavailable} {
		r := newRig(new(idempotency.Memory), answer(code, "made"))
		r.Trace = nil
		var large weak.Pointer[[1 << 16]byte]
		func() {
			value := new([1 << 16]byte)
			large = weak.Make(value)
			serve(r, request(t).WithContext(context.WithValue(t.Context(), name{}, value)))
		}()
		for i := 0; i < 100 && large.Value() != nil; i++ { // a stack that the collector scans may still have a copy
			runtime.GC()
			time.Sleep(time.Millisecond)
		}
		assert.Nil(t, large.Value(), "the request of an execution that has ended is still held, %d", code)
	}
}

// The context of the work ends with the execution, with all timers.
func TestContextsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		contexts := make(chan context.Context, 3)
		work := func(w http.ResponseWriter, req *http.Request) {
			contexts <- req.Context()
			if req.Header.Get("Panic") != "" {
				panic("test")
			}
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		r := newRig(new(idempotency.Memory), work)
		parent, cancel := context.WithCancelCause(t.Context())
		serve(r, request(t).WithContext(parent))
		req := request(t).WithContext(parent)
		req.Header.Set("Panic", "yes")
		servePanicking(r, req)
		cancel(errGone)
		for range 2 {
			ctx := <-contexts
			assert.Equal(t, context.Canceled, ctx.Err())
			assert.NotErrorIs(t, context.Cause(ctx), errGone)
			assert.ErrorContains(t, context.Cause(ctx), "ended")
		}
	})
}

// The context of an execution ends if its lease is lost, and after its time limit. A response that means "nothing was done" does not count after that:
// often it only means that the handler was interrupted.
var endings = []struct {
	name string
	ends bool
	prep func(*faultyStore, *idempotency.Handler, *http.Request) *http.Request
}{
	{name: "by itself"},
	{name: "lease lost", ends: true, prep: func(store *faultyStore, _ *idempotency.Handler, req *http.Request) *http.Request {
		store.obey(rule{onRenew, 1, always, fault{before: errDown}})
		return req
	}},
	{name: "renewals without a connection, for 1.5 leases", ends: true, prep: func(store *faultyStore, _ *idempotency.Handler, req *http.Request) *http.Request {
		store.obey(rule{onRenew, 1, always, fault{delay: 45 * time.Second}})
		return req
	}},
	{name: "limit", ends: true, prep: func(_ *faultyStore, h *idempotency.Handler, req *http.Request) *http.Request {
		h.Timeout = time.Minute
		return req
	}},
}

// ambiguous is the status of an execution with an unknown effect.
func ambiguous(policy idempotency.Takeover) idempotency.Status {
	if policy == idempotency.Reexecute || policy == idempotency.Resume {
		return idempotency.FailedRetryable
	}
	return idempotency.Unknown
}

// An ambiguous end does not mean that nothing was done. The result depends on the status, the
// way in which the execution ended, and Options.Takeover.
func TestAmbiguousEndIsUnknown(t *testing.T) {
	harmless := map[int]bool{401: true, 408: true, 425: true, 429: true, 503: true}
	for _, ending := range endings {
		for _, policy := range []idempotency.Takeover{
			idempotency.TakeoverDefault, idempotency.MarkUnknown, idempotency.Reexecute, idempotency.Resume,
		} {
			for _, code := range []int{201, 302, 400, 401, 404, 408, 409, 422, 425, 429, 499, 500, 501, 502, 503, 504, 599} {
				want := idempotency.Completed
				switch {
				case harmless[code] && !ending.ends:
					want = idempotency.FailedRetryable
				case harmless[code] || code == 499 || code >= 500:
					want = ambiguous(policy)
				case code >= 400:
					want = idempotency.FailedFinal
				}
				synctest.Test(t, func(t *testing.T) {
					t.Log(ending.name, policy, code)
					store := faulty(new(idempotency.Memory))
					r := newRig(store, func(w http.ResponseWriter, req *http.Request) {
						if ending.ends {
							<-req.Context().Done()
						}
						answer(code, "")(w, req)
					}, takeover(policy))
					req := request(t)
					if ending.prep != nil {
						req = ending.prep(store, r.Handler, req)
					}
					w := serve(r, req)
					require.Equal(t, code, w.Code, "the first client gets the handler's answer")
					require.Equal(t, "this", w.Header().Get("Handler"))
					requireRecord(t, store, theID, want)
					if want != idempotency.Unknown {
						require.Empty(t, r.unknowns())
						return
					}
					require.Equal(t, idempotency.OutcomeUnknown, r.last(t).Disposition)
					require.Error(t, r.last(t).Err)
					require.Len(t, r.unknowns(), 1)
					requireUnknown(t, r)
					require.Len(t, r.unknowns(), 1)
					require.EqualValues(t, 1, r.executions.Load())
				})
			}
		}
	}
}

// I2: a client that leaves, and a deadline that passes, do not end the work, so the response of
// the work counts.
func TestClientGoneIsNoAmbiguousEnd(t *testing.T) {
	for _, row := range []struct {
		name  string
		end   func(context.Context) (context.Context, context.CancelFunc)
		code  int
		want  idempotency.Status
		store idempotency.Store
	}{
		{"leaves: released", leaving(nil), http.StatusServiceUnavailable, idempotency.FailedRetryable, new(idempotency.Memory)},
		{"leaves: completed", leaving(nil), http.StatusCreated, idempotency.Completed, new(idempotency.Memory)},
		{"leaves a transaction: completed", leaving(nil), http.StatusCreated, idempotency.Completed, newLedger()},
		{"its deadline passes: released", expiring, http.StatusServiceUnavailable, idempotency.FailedRetryable, new(idempotency.Memory)},
		{"its deadline passes: completed", expiring, http.StatusCreated, idempotency.Completed, new(idempotency.Memory)},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			store := row.store
			r := newRig(store, func(w http.ResponseWriter, req *http.Request) {
				select {
				case <-time.After(2 * time.Second): // the bank
					w.WriteHeader(row.code)
				case <-req.Context().Done():
					w.WriteHeader(http.StatusGatewayTimeout)
				}
			}, func(h *idempotency.Handler) { _, h.Transactional = store.(idempotency.Transactor) })
			ctx, cancel := row.end(t.Context())
			defer cancel()
			assert.Equal(t, row.code, serve(r, request(t).WithContext(ctx)).Code)
			requireRecord(t, store, theID, row.want)
			assert.Empty(t, r.unknowns())
		})
	}
}

// expiring is a context with a deadline of a second.
func expiring(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, time.Second)
}
