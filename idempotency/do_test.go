package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// This file is the contract of Do and Executor: the results of work, what the first caller
// gets, and what duplicates get.

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

func TestDo_endings(t *testing.T) {
	type ending struct {
		status   idempotency.Status
		d        idempotency.Disposition
		again    error // of the second Do; nil: the first error itself
		calls    int64 // after the second Do
		dAgain   idempotency.Disposition
		unknowns int // calls of Unknown
	}
	done := ending{status: idempotency.Completed, d: idempotency.Executed, calls: 1, dAgain: idempotency.Replayed}
	final := ending{status: idempotency.FailedFinal, d: idempotency.Executed, calls: 1, dAgain: idempotency.Replayed}
	harmless := ending{idempotency.FailedRetryable, idempotency.Released, errWork, 2, idempotency.Released, 0}
	unknown := ending{idempotency.Unknown, idempotency.OutcomeUnknown, idempotency.ErrUnknown, 1, idempotency.OutcomeUnknown, 1}
	for _, row := range []struct {
		name   string
		result idempotency.Result
		err    error
		ending
	}{
		{"a result", doResult, nil, done},
		{"an empty result", idempotency.Result{}, nil, done},
		{"an error", doResult, errWork, unknown},
		{"harmless", doResult, idempotency.Retryable(errWork), harmless},
		{"harmless, wrapped", idempotency.Result{}, fmt.Errorf("importing: %w", idempotency.Retryable(errWork)), harmless},
		{"harmless, and unknown", idempotency.Result{}, fmt.Errorf("%w: %w", idempotency.Retryable(errWork), idempotency.ErrUnknown), unknown},
		{"final", doResult, idempotency.Permanent(errWork), final},
		{"final, wrapped", idempotency.Result{}, fmt.Errorf("importing: %w", idempotency.Permanent(errWork)), final},
		{"unknown", idempotency.Result{}, idempotency.ErrUnknown, unknown},
		{"unknown, wrapped", idempotency.Result{}, fmt.Errorf("bank: %w: %w", errWork, idempotency.ErrUnknown), unknown},
		{"unknown for good", idempotency.Result{}, idempotency.Permanent(idempotency.ErrUnknown), unknown},
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
			switch {
			case row.err == nil:
				require.NoError(t, err)
				assert.Equal(t, row.result, result)
			case row.status == idempotency.Unknown:
				require.ErrorIs(t, err, idempotency.ErrUnknown)
				require.ErrorIs(t, err, row.err, "the cause can be found")
			default:
				assert.Equal(t, row.err, err, "the first gets work's own error")
			}
			if row.err != nil {
				assert.Zero(t, result)
			}
			record := mustLoad(t, store, doID)
			assert.Equal(t, row.status, record.Status)
			assert.Equal(t, row.status == idempotency.FailedFinal, isPermanent(err), "I1: only a stored error is a PermanentError")
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
			assert.Len(t, remembered.unknowns(), row.unknowns)
			switch {
			case row.err == nil:
				require.NoError(t, err)
				assert.Equal(t, row.result, result)
			case row.again != nil:
				require.ErrorIs(t, err, row.again)
			default:
				require.ErrorAs(t, err, new(*idempotency.PermanentError))
				assert.Contains(t, err.Error(), errWork.Error())
			}
		})
	}
}

func TestMarkedErrors(t *testing.T) {
	for _, mark := range []func(error) error{idempotency.Permanent, idempotency.Retryable} {
		require.NoError(t, mark(nil))
		err := mark(errWork)
		require.ErrorIs(t, err, errWork)
		assert.Equal(t, errWork.Error(), err.Error())
	}
	assert.NotEmpty(t, new(idempotency.PermanentError).Error())
}

func TestDo_invalid(t *testing.T) {
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
		{"no transactions", &idempotency.Executor{Store: new(idempotency.Memory), Options: idempotency.Options{Transactional: true}}, doID, "", work, idempotency.Misconfigured},
		{"a short lease", &idempotency.Executor{Store: store, Options: idempotency.Options{Lease: 1}}, doID, "", work, idempotency.Misconfigured},
		{"a TTL below the lease", &idempotency.Executor{Store: store, Options: idempotency.Options{Lease: time.Minute, TTL: time.Second}}, doID, "", work, idempotency.Misconfigured},
		{"no key", &idempotency.Executor{Store: store}, idempotency.ID{}, "", work, idempotency.Invalid},
		{"a long key", &idempotency.Executor{Store: store}, idempotency.ID{Key: strings.Repeat("k", 1_000_000)}, "", work, idempotency.Invalid},
		{"NUL", &idempotency.Executor{Store: store}, idempotency.ID{Key: "a\x00"}, "", work, idempotency.Invalid},
		{"not UTF-8", &idempotency.Executor{Store: store}, idempotency.ID{Key: "k", Scope: "\xff"}, "", work, idempotency.Invalid},
		{"a bad fingerprint", &idempotency.Executor{Store: store}, doID, "\xff", work, idempotency.Invalid},
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

func TestDo_inProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, row := range []struct {
			name string
			wait time.Duration
			ctx  time.Duration // 0: no end
			took time.Duration
			err  error
		}{
			{name: "at once", err: idempotency.ErrInProgress},
			{name: "waits, and gets no result", wait: 5 * time.Second, took: 5 * time.Second, err: idempotency.ErrInProgress},
			{name: "waits until the context ends", wait: time.Minute, ctx: time.Second, took: time.Second, err: idempotency.ErrInProgress},
			{name: "waits, and gets the result", wait: time.Minute, took: 10 * time.Second},
		} {
			t.Log(row.name)
			var calls atomic.Int64
			store := new(idempotency.Memory)
			x := &idempotency.Executor{Store: store, Options: idempotency.Options{DuplicateWait: row.wait}}
			first := make(chan error, 1)
			go func() {
				_, err := x.Do(t.Context(), doID, "", func(context.Context) (idempotency.Result, error) {
					time.Sleep(10 * time.Second)
					return counted(&calls, doResult, nil)(t.Context())
				})
				first <- err
			}()
			synctest.Wait()
			ctx, cancel := within(t.Context(), row.ctx)
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

func TestDo_contextEndedBefore(t *testing.T) {
	store := faulty(new(idempotency.Memory))
	var remembered hooks
	x := &idempotency.Executor{Store: store, Trace: remembered.trace()}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errGone)
	_, err := x.Do(ctx, doID, "", nothing)
	assert.Equal(t, errGone, err)
	assert.Zero(t, store.count(onReserve))
	assert.Equal(t, []idempotency.Disposition{idempotency.Invalid}, remembered.dispositions(), "every Do is reported")
}

// Each unmarked failure of non-transactional work is ambiguous, for any end of the
// execution. The caller's cancellation ends the work, but not the writes of its record.
func TestDo_ambiguousEndIsUnknown(t *testing.T) {
	for _, ending := range []struct {
		name  string
		cause error // of the work's context; nil: it does not end
		prep  func(store *faultyStore, terms *idempotency.Options, cancel context.CancelCauseFunc)
	}{
		{"by itself", nil, func(*faultyStore, *idempotency.Options, context.CancelCauseFunc) {}},
		{"lease lost", idempotency.ErrLeaseLost, func(store *faultyStore, _ *idempotency.Options, _ context.CancelCauseFunc) {
			store.obey(rule{onRenew, 1, always, fault{before: errDown}})
		}},
		{"limit", idempotency.ErrTimeLimit, func(_ *faultyStore, terms *idempotency.Options, _ context.CancelCauseFunc) {
			terms.Timeout = time.Second
		}},
		{"SIGTERM", errGone, func(_ *faultyStore, _ *idempotency.Options, cancel context.CancelCauseFunc) {
			time.AfterFunc(time.Second, func() { cancel(errGone) })
		}},
	} {
		for _, policy := range []idempotency.Takeover{
			idempotency.TakeoverDefault, idempotency.MarkUnknown, idempotency.Reexecute, idempotency.Resume,
		} {
			for _, work := range []struct {
				err  error
				want idempotency.Status // 0: it is ambiguous
			}{
				{nil, idempotency.Completed},
				{errWork, 0},
				{context.Canceled, 0},
				{fmt.Errorf("%w: %w", errWork, idempotency.ErrInProgress), 0},
				{idempotency.Retryable(errWork), idempotency.FailedRetryable},
				{idempotency.Permanent(errWork), idempotency.FailedFinal},
				{idempotency.ErrUnknown, idempotency.Unknown},
			} {
				want := work.want
				if want == 0 {
					want = ambiguous(policy)
				}
				synctest.Test(t, func(t *testing.T) {
					t.Log(ending.name, policy, work.err)
					var remembered hooks
					store := faulty(new(idempotency.Memory))
					x := &idempotency.Executor{Store: store, Options: idempotency.Options{Takeover: policy}, Trace: remembered.trace()}
					ctx, cancel := context.WithCancelCause(t.Context())
					defer cancel(nil)
					ending.prep(store, &x.Options, cancel)
					_, err := x.Do(ctx, doID, "", func(ctx context.Context) (idempotency.Result, error) {
						if ending.cause != nil {
							<-ctx.Done()
							assert.Equal(t, ending.cause, context.Cause(ctx))
						}
						return doResult, work.err
					})
					require.ErrorIs(t, err, work.err)
					require.Equal(t, want == idempotency.Unknown, errors.Is(err, idempotency.ErrUnknown))
					requireRecord(t, store, doID, want)
					if want == idempotency.Unknown {
						require.Len(t, remembered.unknowns(), 1)
						require.ErrorIs(t, remembered.unknowns()[0].Err, work.err)
					} else {
						require.Empty(t, remembered.unknowns())
					}
				})
			}
		}
	}
}

func isPermanent(err error) bool {
	_, ok := errors.AsType[*idempotency.PermanentError](err)
	return ok
}

// I1: after a failed store or a lost lease, the error is no PermanentError, and its causes are found.
func TestDo_storeFails(t *testing.T) {
	down, lost, lease := fault{before: errDown}, fault{after: errLost}, fault{before: idempotency.ErrLeaseLost}
	final, harmless := idempotency.Permanent(errWork), idempotency.Retryable(errWork)
	for _, row := range []struct {
		name   string
		rule   rule
		work   error
		want   []error // empty: success
		d      idempotency.Disposition
		status idempotency.Status
	}{
		{"reserve's answer lost", rule{onReserve, 1, 0, lost}, nil, nil, idempotency.Executed, idempotency.Completed},
		{"complete's answer lost", rule{onComplete, 1, 0, lost}, nil, nil, idempotency.Executed, idempotency.Completed},
		{"reserve down", rule{onReserve, 1, always, down}, nil, []error{errDown}, idempotency.StoreFailed, 0},
		{"complete down", rule{onComplete, 1, always, down}, nil, []error{errDown}, idempotency.StoreFailed, idempotency.StatusInProgress},
		{"complete down, final", rule{onComplete, 1, always, down}, final, []error{errDown, errWork}, idempotency.StoreFailed, idempotency.StatusInProgress},
		{"complete down, final and wrapped", rule{onComplete, 1, always, down}, fmt.Errorf("importing: %w", final), []error{errDown, errWork}, idempotency.StoreFailed, idempotency.StatusInProgress},
		{"complete down, unknown", rule{onComplete, 1, always, down}, idempotency.ErrUnknown, []error{errDown, idempotency.ErrUnknown}, idempotency.StoreFailed, idempotency.StatusInProgress},
		{"release down", rule{onRelease, 1, always, down}, harmless, []error{errDown, errWork}, idempotency.StoreFailed, idempotency.StatusInProgress},
		{"lease lost", rule{onComplete, 1, 0, lease}, nil, []error{idempotency.ErrLeaseLost}, idempotency.LeaseLost, idempotency.StatusInProgress},
		{"lease lost, final", rule{onComplete, 1, 0, lease}, final, []error{idempotency.ErrLeaseLost, errWork}, idempotency.LeaseLost, idempotency.StatusInProgress},
		{"lease lost, in doubt", rule{onComplete, 1, 0, lease}, errWork, []error{idempotency.ErrLeaseLost, errWork}, idempotency.LeaseLost, idempotency.StatusInProgress},
		{"lease lost, failed", rule{onRelease, 1, 0, lease}, harmless, []error{idempotency.ErrLeaseLost, errWork}, idempotency.LeaseLost, idempotency.StatusInProgress},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			var remembered hooks
			store := faulty(new(idempotency.Memory), row.rule)
			x := &idempotency.Executor{Store: store, Trace: remembered.trace()}
			result, err := x.Do(t.Context(), doID, "", counted(new(atomic.Int64), doResult, row.work))
			for _, want := range row.want {
				require.ErrorIs(t, err, want)
			}
			assert.False(t, isPermanent(err))
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
			if row.work == idempotency.ErrUnknown {
				assert.Len(t, remembered.unknowns(), 1, "rather twice than never")
			} else {
				assert.Empty(t, remembered.unknowns())
			}
		})
	}
}

// The endings of transactional work. With a store within the caller's transaction, work is transactional
// for any Options, the caller commits, and nothing that failed is repeated.
func TestDo_transactional(t *testing.T) {
	byItself := fmt.Errorf("%w: committed by the work", idempotency.ErrUnknown)
	failed := fmt.Errorf("%w: duplicate key", idempotency.ErrTransactionFailed)
	lost, final := fault{after: errLost}, idempotency.Permanent(errWork)
	before := func(verb string, err error) []rule { return []rule{{verb, 1, 0, fault{before: err}}} }
	type counts = map[string]int
	for _, row := range []struct {
		name   string
		rules  []rule
		work   error
		keep   bool
		panics bool
		err    error
		sum    int
		status idempotency.Status // 0: none
		d      idempotency.Disposition
		within counts // what follows Begin in a caller's transaction; nil: not tested
	}{
		{name: "done", sum: 100, status: idempotency.Completed, d: idempotency.Executed, within: counts{onCommit: 1}},
		{name: "final", work: final, err: errWork, status: idempotency.FailedFinal, d: idempotency.Executed, within: counts{onRefuse: 1}},
		{name: "final, kept", work: final, keep: true, err: errWork, sum: 100, status: idempotency.FailedFinal, d: idempotency.Executed, within: counts{onCommit: 1}},
		{name: "failed", work: errWork, err: errWork, d: idempotency.Released, within: counts{onRollback: 1}},
		{name: "failed, and Keep", work: errWork, keep: true, err: errWork, d: idempotency.Released},
		{name: "harmless", work: idempotency.Retryable(errWork), err: errWork, d: idempotency.Released},
		{name: "panics", panics: true, d: idempotency.Panicked, within: counts{onRollback: 1}},
		{name: "unknown", work: idempotency.ErrUnknown, err: idempotency.ErrUnknown, status: idempotency.Unknown, d: idempotency.OutcomeUnknown},
		{name: "not committed", rules: before(onCommit, errDown), err: errDown, d: idempotency.StoreFailed, within: counts{onCommit: 1}},
		{name: "unheard", rules: []rule{{onCommit, 1, 0, lost}}, sum: 100, status: idempotency.Completed, d: idempotency.Executed},
		{name: "a statement failed", rules: before(onCommit, failed), err: idempotency.ErrTransactionFailed, d: idempotency.StoreFailed},
		{name: "lease-lost", rules: before(onCommit, idempotency.ErrLeaseLost), err: idempotency.ErrLeaseLost, d: idempotency.LeaseLost, within: counts{onCommit: 1}},
		{name: "committed by itself", rules: before(onCommit, byItself), err: idempotency.ErrUnknown,
			status: idempotency.Unknown, d: idempotency.OutcomeUnknown, within: counts{onCommit: 1}},
		{name: "committed by itself, and failed", rules: before(onRollback, byItself), work: errWork, err: idempotency.ErrUnknown,
			status: idempotency.Unknown, d: idempotency.OutcomeUnknown},
		{name: "the rollback fails", rules: []rule{{onRollback, 1, 0, lost}}, work: errWork, err: errWork, d: idempotency.StoreFailed},
		{name: "Begin is down", rules: []rule{{onBegin, 1, always, fault{before: errDown}}}, err: errDown, d: idempotency.StoreFailed, within: counts{}},
	} {
		for _, within := range []bool{false, true} {
			if within && row.within == nil {
				continue
			}
			bubble.Run(t, fmt.Sprint(row.name, ", in the caller's: ", within), func(t *testing.T) {
				ledger := newLedger()
				ledger.within = within
				store := faultyTx(ledger, row.rules...)
				var remembered hooks
				x := &idempotency.Executor{Store: store, Options: idempotency.Options{Transactional: !within}, Trace: remembered.trace()}
				var result idempotency.Result
				var err error
				func() {
					defer func() { assert.Equal(t, row.panics, recover() != nil) }()
					result, err = x.Do(t.Context(), doID, "", func(ctx context.Context) (idempotency.Result, error) {
						time.Sleep(10 * time.Minute)
						require.NoError(t, ctx.Err())
						tx, err := idempotency.Tx[*ledgerTx](ctx)
						require.NoError(t, err)
						require.NoError(t, tx.Add("acct", 100))
						if row.keep {
							idempotency.CommitOnFailure(ctx)
						}
						if row.panics {
							panic("test")
						}
						return doResult, row.work
					})
				}()
				require.ErrorIs(t, err, row.err)
				assert.Equal(t, row.err == nil && !row.panics, assert.ObjectsAreEqual(doResult, result))
				assert.Equal(t, row.sum, ledger.sum("acct"))
				assert.Zero(t, ledger.transactions())
				assert.Equal(t, []idempotency.Disposition{row.d}, remembered.dispositions())
				unknown := row.status == idempotency.Unknown
				assert.Equal(t, unknown, errors.Is(err, idempotency.ErrUnknown))
				if within {
					row.within[onBegin] = 1
					assert.Equal(t, row.within, store.counts())
				}
				if within && unknown {
					requireRecord(t, ledger, doID, 0) // its transaction is the caller's
					return
				}
				requireRecord(t, ledger, doID, row.status)
				assert.Equal(t, unknown, len(remembered.unknowns()) == 1)
			})
		}
	}
}

// A goroutine that work leaves behind gets no transaction while the record is being written.
func TestDo_txAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &idempotency.Executor{
			Store: faultyTx(newLedger(), rule{onCommit, 1, 0, fault{delay: time.Second}}), Options: idempotency.Options{Transactional: true},
		}
		late := make(chan error, 1)
		_, err := x.Do(t.Context(), doID, "", func(ctx context.Context) (idempotency.Result, error) {
			time.AfterFunc(time.Second/2, func() { late <- txOf[*ledgerTx](ctx) })
			return doResult, nil
		})
		require.NoError(t, err)
		require.ErrorIs(t, <-late, idempotency.ErrNoTransaction)
	})
}

func TestDo_returnsAResultThatIsNotStored(t *testing.T) {
	store := new(idempotency.Memory)
	reservation, err := store.Reserve(t.Context(), idempotency.Claim{ID: doID, Owner: "o", Lease: time.Second, TTL: time.Hour})
	require.NoError(t, err)
	require.NoError(t, store.Complete(t.Context(), reservation.Record.Lease(),
		idempotency.Outcome{Status: idempotency.CompletedUnreplayable}))
	var remembered hooks
	x := &idempotency.Executor{Store: store, Trace: remembered.trace()}
	require.ErrorIs(t, errOf(x.Do(t.Context(), doID, "", nothing)), idempotency.ErrUnreplayable)
	assert.Equal(t, []idempotency.Disposition{idempotency.Unreplayable}, remembered.dispositions())
}

func TestDo_afterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, policy := range []idempotency.Takeover{idempotency.TakeoverDefault, idempotency.Reexecute, idempotency.Resume} {
			store := new(idempotency.Memory)
			_, err := store.Reserve(t.Context(), idempotency.Claim{
				ID: doID, Owner: "the dead", Lease: time.Second, TTL: time.Hour, Takeover: policy,
			})
			require.NoError(t, err)
			time.Sleep(2 * time.Second)
			var remembered hooks
			x := &idempotency.Executor{Store: store, Trace: remembered.trace()}
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

// The record of long work must be kept for the TTL from the end of the work.
func TestTTLOfLongWorkCountsFromItsEnd(t *testing.T) {
	for _, row := range []struct {
		name  string
		takes time.Duration
		kept  time.Duration // from the end of the work
	}{
		{"short work: from its start, and the expiry is not written again", time.Minute, time.Hour - time.Minute},
		{"long work: from its end", 59 * time.Minute, time.Hour},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			store := &idempotency.Memory{}
			x := idempotency.Executor{Store: store, Options: idempotency.Options{TTL: time.Hour, Timeout: -1}}
			id := idempotency.ID{Scope: "comp1", Operation: "import", Key: "1"}
			_, err := x.Do(t.Context(), id, "", func(context.Context) (idempotency.Result, error) {
				time.Sleep(row.takes)
				return idempotency.Result{}, nil
			})
			require.NoError(t, err)
			record, err := store.Load(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, row.kept, time.Until(record.Expires))
		})
	}
}
