package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
)

// This file is the contract of Do and Executor: what work may end with, what the
// first caller gets, and what those get who ask again.

var (
	doID     = idempotency.ID{Scope: "comp1", Operation: "import", Key: theKey}
	errWork  = errors.New("test: work failed")
	doResult = idempotency.Result{Code: 7, Body: []byte("imported"), Reference: "row 7"}
)

// counted is work that counts its calls and returns the same each time.
func counted(calls *atomic.Int64, result idempotency.Result, err error) func(context.Context) (idempotency.Result, error) {
	return func(context.Context) (idempotency.Result, error) {
		calls.Add(1)
		return result, err
	}
}

func TestDoEndings(t *testing.T) {
	for _, row := range []struct {
		name   string
		result idempotency.Result
		err    error
		status idempotency.Status
		d      idempotency.Disposition

		again  error // "": the first error itself
		calls  int64 // after the second Do
		dAgain idempotency.Disposition
		told   int // calls of Unknown
	}{
		{
			name: "a result", result: doResult, status: idempotency.Completed, d: idempotency.Executed,
			calls: 1, dAgain: idempotency.Replayed,
		},
		{
			name: "an empty result", status: idempotency.Completed, d: idempotency.Executed,
			calls: 1, dAgain: idempotency.Replayed,
		},
		{
			name: "an error", result: doResult, err: errWork, status: idempotency.FailedRetryable, d: idempotency.Released,
			again: errWork, calls: 2, dAgain: idempotency.Released,
		},
		{
			name: "final", result: doResult, err: idempotency.Final(errWork), status: idempotency.FailedFinal, d: idempotency.Executed,
			calls: 1, dAgain: idempotency.Replayed,
		},
		{
			name: "final, wrapped", err: fmt.Errorf("importing: %w", idempotency.Final(errWork)), status: idempotency.FailedFinal,
			d: idempotency.Executed, calls: 1, dAgain: idempotency.Replayed,
		},
		{
			name: "unknown", err: idempotency.ErrUnknown, status: idempotency.Unknown, d: idempotency.Doubtful,
			again: idempotency.ErrUnknown, calls: 1, dAgain: idempotency.Doubtful, told: 1,
		},
		{
			name: "unknown, wrapped", err: fmt.Errorf("bank: %w: %w", errWork, idempotency.ErrUnknown), status: idempotency.Unknown,
			d: idempotency.Doubtful, again: idempotency.ErrUnknown, calls: 1, dAgain: idempotency.Doubtful, told: 1,
		},
		{
			name: "unknown for good", err: idempotency.Final(idempotency.ErrUnknown), status: idempotency.Unknown,
			d: idempotency.Doubtful, again: idempotency.ErrUnknown, calls: 1, dAgain: idempotency.Doubtful, told: 1,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			var calls atomic.Int64
			var remembered hooks
			store := new(idempotency.Memory)
			x := &idempotency.Executor{Store: store, Trace: remembered.trace()}
			do := func() (idempotency.Result, error) {
				return x.Do(t.Context(), doID, "v1:x", counted(&calls, row.result, row.err))
			}
			result, err := do()
			assert.Equal(t, row.err, err, "the first gets work's own error")
			if row.err == nil {
				assert.Equal(t, row.result, result)
			} else {
				assert.Zero(t, result)
			}
			record := mustLoad(t, store, doID)
			assert.Equal(t, row.status, record.Status)
			event := remembered.last(t)
			assert.Equal(t, row.d, event.Disposition)
			assert.Equal(t, doID, event.ID)
			assert.Equal(t, record.Owner, event.Owner)
			assert.EqualValues(t, 1, event.Generation)
			assert.Zero(t, event.Code)
			assert.Nil(t, event.Request)

			result, err = do()
			assert.Equal(t, row.calls, calls.Load())
			assert.Equal(t, []idempotency.Disposition{row.d, row.dAgain}, remembered.dispositions())
			assert.Len(t, remembered.unknowns(), row.told)
			var final *idempotency.FinalError
			switch {
			case row.err == nil:
				require.NoError(t, err)
				assert.Equal(t, row.result, result)
			case row.again != nil:
				require.ErrorIs(t, err, row.again)
			default:
				require.ErrorAs(t, err, &final)
				assert.Contains(t, err.Error(), errWork.Error())
			}
		})
	}
}

func TestFinal(t *testing.T) {
	require.NoError(t, idempotency.Final(nil))
	err := idempotency.Final(errWork)
	require.ErrorIs(t, err, errWork)
	assert.Equal(t, errWork.Error(), err.Error())
	assert.NotEmpty(t, new(idempotency.FinalError).Error())
}

func TestDoFunction(t *testing.T) {
	var calls atomic.Int64
	store := new(idempotency.Memory)
	do := func(scope, operation string, fingerprint idempotency.Fingerprint) (idempotency.Result, error) {
		return idempotency.Do(t.Context(), store, scope, operation, theKey, fingerprint, counted(&calls, doResult, nil))
	}
	for range 2 {
		result, err := do("comp1", "import", "v1:a")
		require.NoError(t, err)
		assert.Equal(t, doResult, result)
	}
	assert.EqualValues(t, 1, calls.Load())

	_, err := do("comp1", "import", "v1:b")
	require.ErrorIs(t, err, idempotency.ErrMismatch)
	assert.EqualValues(t, 1, calls.Load())

	for _, other := range [][2]string{{"comp2", "import"}, {"comp1", "export"}} {
		_, err = do(other[0], other[1], "v1:a")
		require.NoError(t, err)
	}
	assert.EqualValues(t, 3, calls.Load())
}

func TestDoInvalid(t *testing.T) {
	var calls atomic.Int64
	store := faulty(new(idempotency.Memory))
	work := counted(&calls, doResult, nil)
	for _, row := range []struct {
		name string
		x    *idempotency.Executor
		id   idempotency.ID
		fp   idempotency.Fingerprint
		work func(context.Context) (idempotency.Result, error)
		d    idempotency.Disposition
	}{
		{"no store", &idempotency.Executor{}, doID, "", work, idempotency.Misconfigured},
		{"no work", &idempotency.Executor{Store: store}, doID, "", nil, idempotency.Misconfigured},
		{"no transactions", &idempotency.Executor{Store: new(idempotency.Memory), Terms: idempotency.Terms{Joined: true}}, doID, "", work, idempotency.Misconfigured},
		{"a short lease", &idempotency.Executor{Store: store, Terms: idempotency.Terms{Lease: 1}}, doID, "", work, idempotency.Misconfigured},
		{"no key", &idempotency.Executor{Store: store}, idempotency.ID{}, "", work, idempotency.Refused},
		{"a long key", &idempotency.Executor{Store: store}, idempotency.ID{Key: strings.Repeat("k", 1_000_000)}, "", work, idempotency.Refused},
		{"NUL", &idempotency.Executor{Store: store}, idempotency.ID{Key: "a\x00"}, "", work, idempotency.Refused},
		{"not UTF-8", &idempotency.Executor{Store: store}, idempotency.ID{Key: "k", Scope: "\xff"}, "", work, idempotency.Refused},
		{"a bad fingerprint", &idempotency.Executor{Store: store}, doID, "\xff", work, idempotency.Refused},
	} {
		t.Run(row.name, func(t *testing.T) {
			var remembered hooks
			row.x.Trace = remembered.trace()
			result, err := row.x.Do(t.Context(), row.id, row.fp, row.work)
			require.ErrorIs(t, err, idempotency.ErrInvalid)
			assert.Zero(t, result)
			assert.Zero(t, calls.Load())
			assert.Equal(t, []idempotency.Disposition{row.d}, remembered.dispositions())
		})
	}
}

func TestDoPanics(t *testing.T) {
	for _, row := range []struct {
		name   string
		work   func()
		terms  idempotency.Terms
		status idempotency.Status
	}{
		{"panic", func() { panic("test") }, idempotency.Terms{}, idempotency.Unknown},
		{"Goexit", runtime.Goexit, idempotency.Terms{}, idempotency.Unknown},
		{"panic, again", func() { panic("test") }, idempotency.Terms{Takeover: idempotency.Reexecute}, idempotency.FailedRetryable},
		{"panic, joined", func() { panic("test") }, idempotency.Terms{Joined: true}, idempotency.FailedRetryable},
	} {
		t.Run(row.name, func(t *testing.T) {
			var remembered hooks
			store := newLedger()
			x := &idempotency.Executor{Store: store, Terms: row.terms, Trace: remembered.trace()}
			over := make(chan any)
			go func() {
				defer func() { over <- recover() }()
				x.Do(t.Context(), doID, "", func(ctx context.Context) (idempotency.Result, error) { //nolint:errcheck // panics
					tx, err := idempotency.Tx[*ledgerTx](ctx)
					assert.NoError(t, err)
					assert.NoError(t, tx.Add("acct", 100))
					row.work()
					return doResult, nil
				})
			}()
			if got := <-over; row.name != "Goexit" {
				assert.Equal(t, "test", got)
			}
			assert.Equal(t, row.status, mustLoad(t, store, doID).Status)
			assert.Zero(t, store.sum("acct"))
			assert.Equal(t, []idempotency.Disposition{idempotency.Panicked}, remembered.dispositions())
			if row.status == idempotency.Unknown {
				require.Len(t, remembered.unknowns(), 1)
				_, err := x.Do(t.Context(), doID, "", nothing)
				require.ErrorIs(t, err, idempotency.ErrUnknown)
			}
		})
	}
}

func TestDoInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, row := range []struct {
			name string
			wait time.Duration
			ctx  time.Duration // 0: no end
			took time.Duration
			err  error
		}{
			{name: "at once", err: idempotency.ErrInProgress},
			{name: "waits in vain", wait: 5 * time.Second, took: 5 * time.Second, err: idempotency.ErrInProgress},
			{name: "waits until the context ends", wait: time.Minute, ctx: time.Second, took: time.Second, err: idempotency.ErrInProgress},
			{name: "waits, and gets the result", wait: time.Minute, took: 10 * time.Second},
		} {
			t.Log(row.name)
			var calls atomic.Int64
			store := new(idempotency.Memory)
			x := &idempotency.Executor{Store: store, Terms: idempotency.Terms{Wait: row.wait}}
			first := make(chan error, 1)
			go func() {
				_, err := x.Do(t.Context(), doID, "", func(context.Context) (idempotency.Result, error) {
					time.Sleep(10 * time.Second)
					return counted(&calls, doResult, nil)(t.Context())
				})
				first <- err
			}()
			synctest.Wait()
			ctx, cancel := t.Context(), func() {}
			if row.ctx > 0 {
				ctx, cancel = context.WithTimeout(ctx, row.ctx)
			}
			began := time.Now()
			result, err := x.Do(ctx, doID, "", nothing)
			cancel()
			require.ErrorIs(t, err, row.err)
			assert.InDelta(t, row.took.Seconds(), time.Since(began).Seconds(), 0.3)
			if row.err == nil {
				assert.Equal(t, doResult, result)
			}
			require.NoError(t, <-first)
			assert.EqualValues(t, 1, calls.Load())
		}
	})
}

func TestDoContextEndedBefore(t *testing.T) {
	store := faulty(new(idempotency.Memory))
	var remembered hooks
	x := &idempotency.Executor{Store: store, Trace: remembered.trace()}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errGone)
	_, err := x.Do(ctx, doID, "", nothing)
	assert.Equal(t, errGone, err)
	assert.Zero(t, store.count(onReserve))
	assert.Equal(t, []idempotency.Disposition{idempotency.Refused}, remembered.dispositions(), "every Do is reported")
}

// The caller's cancellation ends work, but not the bookkeeping.
func TestDoContextEndsDuringWork(t *testing.T) {
	for _, row := range []struct {
		name   string
		deaf   bool
		status idempotency.Status
	}{
		{"work heeds it", false, idempotency.FailedRetryable},
		{"work is deaf", true, idempotency.Completed},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := faulty(new(idempotency.Memory), rule{onComplete, 1, 0, fault{delay: time.Second}},
					rule{onRelease, 1, 0, fault{delay: time.Second}})
				x := &idempotency.Executor{Store: store}
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errGone)
				defer cancel()
				_, err := x.Do(ctx, doID, "", func(ctx context.Context) (idempotency.Result, error) {
					<-ctx.Done()
					assert.Equal(t, errGone, context.Cause(ctx))
					if row.deaf {
						return doResult, nil
					}
					return idempotency.Result{}, ctx.Err()
				})
				if row.deaf {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, context.DeadlineExceeded)
				}
				assert.Equal(t, row.status, mustLoad(t, store, doID).Status)
			})
		})
	}
}

func TestDoStoreFails(t *testing.T) {
	for _, row := range []struct {
		name   string
		rules  []rule
		work   error
		want   []error // empty: success
		d      idempotency.Disposition
		status idempotency.Status
	}{
		{"reserve's answer lost", []rule{{onReserve, 1, 0, fault{after: errLost}}}, nil, nil, idempotency.Executed, idempotency.Completed},
		{"complete's answer lost", []rule{{onComplete, 1, 0, fault{after: errLost}}}, nil, nil, idempotency.Executed, idempotency.Completed},
		{"reserve down", []rule{{onReserve, 1, always, fault{before: errDown}}}, nil, []error{errDown}, idempotency.StoreFailed, 0},
		{"complete down", []rule{{onComplete, 1, always, fault{before: errDown}}}, nil, []error{errDown}, idempotency.StoreFailed, idempotency.InProgress},
		{
			"complete down, final", []rule{{onComplete, 1, always, fault{before: errDown}}}, idempotency.Final(errWork),
			[]error{errDown, errWork}, idempotency.StoreFailed, idempotency.InProgress,
		},
		{
			"complete down, unknown", []rule{{onComplete, 1, always, fault{before: errDown}}}, idempotency.ErrUnknown,
			[]error{errDown, idempotency.ErrUnknown}, idempotency.StoreFailed, idempotency.InProgress,
		},
		{
			"release down", []rule{{onRelease, 1, always, fault{before: errDown}}}, errWork,
			[]error{errDown, errWork}, idempotency.StoreFailed, idempotency.InProgress,
		},
		{"lease lost", []rule{{onComplete, 1, 0, fault{before: idempotency.ErrLeaseLost}}}, nil, []error{idempotency.ErrLeaseLost}, idempotency.Overtaken, idempotency.InProgress},
		{
			"lease lost, failed", []rule{{onRelease, 1, 0, fault{before: idempotency.ErrLeaseLost}}}, errWork,
			[]error{idempotency.ErrLeaseLost, errWork}, idempotency.Overtaken, idempotency.InProgress,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls atomic.Int64
				var remembered hooks
				store := faulty(new(idempotency.Memory), row.rules...)
				x := &idempotency.Executor{Store: store, Trace: remembered.trace()}
				result, err := x.Do(t.Context(), doID, "", counted(&calls, doResult, row.work))
				for _, want := range row.want {
					require.ErrorIs(t, err, want)
				}
				if row.want == nil {
					require.NoError(t, err)
					assert.Equal(t, doResult, result)
				} else {
					assert.Zero(t, result, "a result that does not count")
				}
				assert.Equal(t, []idempotency.Disposition{row.d}, remembered.dispositions())
				store.heal()
				if row.status != 0 {
					assert.Equal(t, row.status, mustLoad(t, store, doID).Status)
				}
				for _, event := range remembered.unknowns() {
					assert.Equal(t, idempotency.ErrUnknown, row.work, "%v", event.Err)
				}
			})
		})
	}
}

func TestDoJoined(t *testing.T) {
	for _, row := range []struct {
		name   string
		rules  []rule
		terms  idempotency.Terms
		work   error
		err    error
		sum    int
		status idempotency.Status
		d      idempotency.Disposition
	}{
		{"done", nil, idempotency.Terms{Joined: true}, nil, nil, 100, idempotency.Completed, idempotency.Executed},
		{"final", nil, idempotency.Terms{Joined: true}, idempotency.Final(errWork), errWork, 100, idempotency.FailedFinal, idempotency.Executed},
		{"failed", nil, idempotency.Terms{Joined: true}, errWork, errWork, 0, idempotency.FailedRetryable, idempotency.Released},
		{"unknown", nil, idempotency.Terms{Joined: true}, idempotency.ErrUnknown, idempotency.ErrUnknown, 0, idempotency.Unknown, idempotency.Doubtful},
		{
			"not committed", []rule{{onCommit, 1, 0, fault{before: errDown}}}, idempotency.Terms{Joined: true}, nil,
			errDown, 0, idempotency.FailedRetryable, idempotency.StoreFailed,
		},
		{"unheard", []rule{{onCommit, 1, 0, fault{after: errLost}}}, idempotency.Terms{Joined: true}, nil, nil, 100, idempotency.Completed, idempotency.Executed},
		{
			"not committed, detached", []rule{{onCommit, 1, 0, fault{before: errDown}}}, idempotency.Terms{}, nil,
			idempotency.ErrUnknown, 0, idempotency.Unknown, idempotency.Doubtful,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ledger := newLedger()
				var remembered hooks
				x := &idempotency.Executor{Store: faultyTx(ledger, row.rules...), Terms: row.terms, Trace: remembered.trace()}
				_, err := x.Do(t.Context(), doID, "", func(ctx context.Context) (idempotency.Result, error) {
					tx, err := idempotency.Tx[*ledgerTx](ctx)
					require.NoError(t, err)
					require.NoError(t, tx.Add("acct", 100))
					return doResult, row.work
				})
				require.ErrorIs(t, err, row.err)
				assert.Equal(t, row.sum, ledger.sum("acct"))
				assert.Equal(t, row.status, mustLoad(t, ledger, doID).Status)
				assert.Equal(t, []idempotency.Disposition{row.d}, remembered.dispositions())
				want := 0
				if row.status == idempotency.Unknown {
					want = 1
				}
				assert.Len(t, remembered.unknowns(), want)
			})
		})
	}
}

// heldStore is one within the caller's own transaction.
type heldStore struct{ *faultyStore }

func (s heldStore) Reserve(ctx context.Context, claim idempotency.Claim) (idempotency.Reservation, error) {
	r, err := s.faultyStore.Reserve(ctx, claim)
	r.Held = r.Decision == idempotency.Acquired
	return r, err
}

func TestDoWithinACallersTransaction(t *testing.T) {
	for _, row := range []struct {
		name   string
		rules  []rule
		fails  error
		panics bool
		err    error
		status idempotency.Status
	}{
		{name: "done", status: idempotency.Completed},
		{name: "failed", fails: errWork, err: errWork, status: idempotency.FailedRetryable},
		{name: "panics", panics: true, status: idempotency.FailedRetryable},
		{
			// The transaction has failed, and will not be any better next time.
			name: "complete fails", rules: []rule{{onComplete, 1, 0, fault{before: errDown}}}, err: errDown, status: idempotency.InProgress,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := heldStore{faulty(new(idempotency.Memory), row.rules...)}
				var err error
				func() {
					defer func() { assert.Equal(t, row.panics, recover() != nil) }()
					_, err = idempotency.Do(t.Context(), store, doID.Scope, doID.Operation, doID.Key, "",
						func(ctx context.Context) (idempotency.Result, error) {
							time.Sleep(10 * time.Minute)
							require.NoError(t, ctx.Err())
							require.NoError(t, idempotency.Discard(ctx))
							if row.panics {
								panic("test")
							}
							return doResult, row.fails
						})
				}()
				require.ErrorIs(t, err, row.err)
				assert.Zero(t, store.count(onRenew), "it must not be renewed")
				assert.LessOrEqual(t, store.count(onComplete), 1)
				assert.Equal(t, row.status, mustLoad(t, store, doID).Status)
			})
		})
	}
}

func TestDoLimitAndHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := faulty(new(idempotency.Memory))
		x := &idempotency.Executor{Store: store, Terms: idempotency.Terms{Limit: time.Minute}}
		began := time.Now()
		_, err := x.Do(t.Context(), doID, "", func(ctx context.Context) (idempotency.Result, error) {
			<-ctx.Done()
			return idempotency.Result{}, context.Cause(ctx)
		})
		assert.Equal(t, idempotency.ErrOverrun, err)
		assert.Equal(t, time.Minute, time.Since(began))
		assert.Equal(t, 5, store.count(onRenew))
	})
}

func TestDoAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, policy := range []idempotency.Takeover{idempotency.TakeoverDefault, idempotency.Reexecute, idempotency.Resume} {
			store := new(idempotency.Memory)
			_, err := store.Reserve(t.Context(), idempotency.Claim{ID: doID, Owner: "the dead", Lease: time.Second, TTL: time.Hour})
			require.NoError(t, err)
			time.Sleep(2 * time.Second)
			var remembered hooks
			x := &idempotency.Executor{Store: store, Terms: idempotency.Terms{Takeover: policy}, Trace: remembered.trace()}
			var got idempotency.Execution
			_, err = x.Do(t.Context(), doID, "", func(ctx context.Context) (idempotency.Result, error) {
				got, _ = idempotency.FromContext(ctx)
				return doResult, nil
			})
			if policy == idempotency.TakeoverDefault {
				require.ErrorIs(t, err, idempotency.ErrUnknown)
				assert.Len(t, remembered.unknowns(), 1)
				continue
			}
			require.NoError(t, err)
			assert.EqualValues(t, 2, got.Generation)
			assert.Equal(t, policy == idempotency.Resume, got.Resumed)
		}
	})
}

func TestDoGivesWhatIsNotKept(t *testing.T) {
	store := new(idempotency.Memory)
	reservation, err := store.Reserve(t.Context(), idempotency.Claim{ID: doID, Owner: "o", Lease: time.Second, TTL: time.Hour})
	require.NoError(t, err)
	require.NoError(t, store.Complete(t.Context(), reservation.Record.Lease(),
		idempotency.Outcome{Status: idempotency.CompletedUnreplayable}))
	var remembered hooks
	x := &idempotency.Executor{Store: store, Trace: remembered.trace()}
	_, err = x.Do(t.Context(), doID, "", nothing)
	require.ErrorIs(t, err, idempotency.ErrUnreplayable)
	assert.Equal(t, []idempotency.Disposition{idempotency.Unreplayable}, remembered.dispositions())
}
