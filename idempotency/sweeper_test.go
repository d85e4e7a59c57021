package idempotency_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// fill makes records that expire in a day.
func fill(t *testing.T, store idempotency.Store, n int) {
	t.Helper()
	for i := range n {
		_, err := idempotency.Do(t.Context(), store, "", "op", fmt.Sprint(time.Now(), i), "", func(context.Context) (idempotency.Result, error) {
			return idempotency.Result{}, nil
		})
		require.NoError(t, err)
	}
}

// running starts a Sweeper, and returns a function that ends it and returns its error.
func running(t *testing.T, s *idempotency.Sweeper) func() error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

func TestSweeper_sweeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := faulty(new(idempotency.Memory))
		fill(t, store, 1200)
		stop := running(t, &idempotency.Sweeper{Store: store})
		time.Sleep(23 * time.Hour)
		quiet := store.count(onSweep)
		assert.InDelta(t, 23*60/0.75, quiet, 60, "about once a minute, at random")

		time.Sleep(time.Hour + 2*time.Minute)
		n, err := store.Store.Sweep(t.Context(), 10_000)
		require.NoError(t, err)
		assert.Zero(t, n, "it was all swept")
		require.ErrorIs(t, stop(), context.Canceled)
		n = store.count(onSweep)
		time.Sleep(time.Hour)
		assert.Equal(t, n, store.count(onSweep))
	})
}

// die claims an operation and does not end it.
func die(t *testing.T, store idempotency.Store, key string, policy idempotency.Takeover) idempotency.Lease {
	t.Helper()
	reservation, err := store.Reserve(t.Context(), idempotency.Claim{
		ID: idempotency.ID{Scope: "comp1", Operation: "op", Key: key}, Owner: rand.Text(),
		Lease: 30 * time.Second, TTL: time.Hour, Takeover: policy,
	})
	require.NoError(t, err)
	require.Equal(t, idempotency.DecisionAcquired, reservation.Decision)
	return reservation.Record.Lease()
}

// Dead executions are found without another request of their clients. They become Unknown, and
// are not deleted.
func TestSweeperFindsTheDead(t *testing.T) {
	for _, row := range []struct {
		name    string
		policy  idempotency.Takeover
		unknown bool
	}{
		{"by default", idempotency.TakeoverDefault, true},
		{"unknown", idempotency.MarkUnknown, true},
		{"again", idempotency.Reexecute, false},
		{"resume", idempotency.Resume, false},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			store := new(idempotency.Memory)
			dead := die(t, store, "k", row.policy)
			var reports hooks
			stop := running(t, &idempotency.Sweeper{Store: store, Trace: reports.trace()})
			time.Sleep(29 * time.Second)
			synctest.Wait()
			assert.Empty(t, reports.unknowns(), "it is alive")
			requireRecord(t, store, dead.ID, idempotency.StatusInProgress)

			time.Sleep(2 * time.Minute)
			synctest.Wait()
			if !row.unknown {
				requireRecord(t, store, dead.ID, idempotency.StatusInProgress)
				time.Sleep(time.Hour)
				synctest.Wait()
				requireRecord(t, store, dead.ID, 0)
				n, err := store.Sweep(t.Context(), 10)
				require.NoError(t, err)
				assert.Zero(t, n, "it was deleted")
				assert.Empty(t, reports.unknowns())
			} else {
				requireRecord(t, store, dead.ID, idempotency.Unknown)
				require.Len(t, reports.unknowns(), 1)
				event := reports.unknowns()[0]
				assert.Equal(t, dead.ID, event.ID)
				assert.EqualValues(t, 2, event.Generation)
				require.ErrorContains(t, event.Err, "lease of an execution expired")
				require.ErrorIs(t, store.Complete(t.Context(), dead, idempotency.Outcome{Status: idempotency.Completed}), idempotency.ErrLeaseLost)

				time.Sleep(7 * 24 * time.Hour)
				synctest.Wait()
				assert.Len(t, reports.unknowns(), 1, "once")
				requireRecord(t, store, dead.ID, idempotency.Unknown)
				require.ErrorIs(t, errOf(idempotency.Do(t.Context(), store, dead.Scope, dead.Operation, dead.Key, "", nothing)), idempotency.ErrUnknown)
			}
			require.ErrorIs(t, stop(), context.Canceled)
		})
	}
}

// brokenReap is a store with a Reap that fails after some records.
type brokenReap struct{ idempotency.Memory }

func (s *brokenReap) Reap(ctx context.Context, limit int) ([]idempotency.Record, error) {
	abandoned, _ := s.Memory.Reap(ctx, limit)
	return abandoned, errDown
}

// Records that were found before an error are reported, because no later sweep finds them.
func TestSweeper_reportsRecordsBeforeAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(brokenReap)
		die(t, store, "k", idempotency.TakeoverDefault)
		time.Sleep(time.Minute)
		var reports hooks
		var errs []error
		stop := running(t, &idempotency.Sweeper{Store: store, Trace: reports.trace(), OnError: func(err error) { errs = append(errs, err) }})
		synctest.Wait()
		require.ErrorIs(t, stop(), context.Canceled)
		assert.Len(t, reports.unknowns(), 1)
		assert.Equal(t, []error{errDown}, errs)
	})
}

func TestSweeper_goesOnAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := faulty(new(idempotency.Memory), rule{onSweep, 1, 3, fault{before: errDown}})
		fill(t, store, 5)
		time.Sleep(25 * time.Hour)
		var mu sync.Mutex
		var errs []error
		stop := running(t, &idempotency.Sweeper{Store: store, OnError: func(err error) {
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		}})
		quiet := running(t, &idempotency.Sweeper{Store: faulty(store.Store, rule{onSweep, 1, always, fault{before: errDown}})})
		time.Sleep(10 * time.Minute)
		require.ErrorIs(t, stop(), context.Canceled)
		require.ErrorIs(t, quiet(), context.Canceled)
		assert.Equal(t, []error{errDown, errDown, errDown}, errs)
		n, err := store.Store.Sweep(t.Context(), 100)
		require.NoError(t, err)
		assert.Zero(t, n)
	})
}

// An operation that gets no answer is an error after a minute, and the next sweep comes.
func TestSweeper_storeHangs(t *testing.T) {
	for _, verb := range []string{onAbandon, onSweep} {
		bubble.Run(t, verb, func(t *testing.T) {
			store := faulty(new(idempotency.Memory), rule{verb, 1, 0, fault{delay: 24 * time.Hour}})
			die(t, store, "k", idempotency.TakeoverDefault)
			var reports hooks
			errs := make(chan error, 10)
			stop := running(t, &idempotency.Sweeper{Store: store, Trace: reports.trace(), OnError: func(err error) { errs <- err }})
			time.Sleep(10 * time.Minute)
			require.ErrorIs(t, stop(), context.Canceled)
			require.Len(t, errs, 1)
			require.ErrorIs(t, <-errs, context.DeadlineExceeded)
			assert.Len(t, reports.unknowns(), 1)
		})
	}
}

func TestSweeper_misconfigured(t *testing.T) {
	for name, s := range map[string]*idempotency.Sweeper{
		"no store":        {},
		"a negative time": {Store: new(idempotency.Memory), Every: -1},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, s.Run(t.Context()), idempotency.ErrInvalid)
		})
	}
}

// partial is a store that is interrupted in its first sweep.
type partial struct {
	idempotency.Memory
	swept []int
}

func (p *partial) Sweep(context.Context, int) (int, error) {
	n := p.swept[0]
	p.swept = p.swept[1:]
	return n, nil
}

// A store that meets a writer returns early. The next sweep comes soon, not after a minute.
func TestSweeper_comesBackSoonAfterPartOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &partial{swept: []int{3, 7, 0, 0}}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		require.ErrorIs(t, (&idempotency.Sweeper{Store: store}).Run(ctx), context.DeadlineExceeded)
		assert.Equal(t, []int{0}, store.swept, "sweeps that were not made")
	})
}
