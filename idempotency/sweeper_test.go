package idempotency_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/idempotency"
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

// running starts a sweeper, and returns what ends it and tells how it ended.
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

func TestSweeperSweeps(t *testing.T) {
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

// Full batches follow each other closely, but leave the database alone for longer
// than they took.
func TestSweeperPausesBetweenBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := faulty(new(idempotency.Memory), rule{onSweep, 1, always, fault{linger: 50 * time.Millisecond}})
		fill(t, store, 100)
		time.Sleep(25 * time.Hour)
		stop := running(t, &idempotency.Sweeper{Store: store, Batch: 10, Every: time.Hour})
		time.Sleep(time.Minute)
		require.ErrorIs(t, stop(), context.Canceled)
		calls := store.times(onSweep)
		require.Len(t, calls, 11, "ten full ones and an empty one")
		for i := range 10 {
			pause := calls[i+1].Sub(calls[i]) - 50*time.Millisecond
			assert.GreaterOrEqual(t, pause, 100*time.Millisecond)
			assert.LessOrEqual(t, pause, 200*time.Millisecond)
		}
	})
}

func TestSweeperGoesOnAfterAnError(t *testing.T) {
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

// Its end is no error.
func TestSweeperEndsInASweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := faulty(new(idempotency.Memory), rule{onSweep, 1, always, fault{delay: time.Hour}})
		stop := running(t, &idempotency.Sweeper{Store: store, OnError: func(err error) { t.Error(err) }})
		time.Sleep(time.Second)
		require.ErrorIs(t, stop(), context.Canceled)
	})
}

func TestSweeperMisconfigured(t *testing.T) {
	for name, s := range map[string]*idempotency.Sweeper{
		"no store":         {},
		"a negative batch": {Store: new(idempotency.Memory), Batch: -1},
		"a negative time":  {Store: new(idempotency.Memory), Every: -1},
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

// A store that meets a writer returns early: what is left is not left for a minute.
func TestSweeperComesBackSoonAfterPartOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &partial{swept: []int{3, 7, 0, 0}}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		require.ErrorIs(t, (&idempotency.Sweeper{Store: store}).Run(ctx), context.DeadlineExceeded)
		assert.Equal(t, []int{0}, store.swept, "sweeps that were not made")
	})
}
