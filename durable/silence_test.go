package durable_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/durable/internal/driver"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// If the store does not answer, as on a dead connection, the verb is repeated after a lease.
// Other verbs do not wait for the kernel to notice the dead connection.
func TestEngine_silentStore(t *testing.T) {
	for _, verb := range []string{"apply", "claim", "reap", "sweep"} {
		bubble.Run(t, verb, func(t *testing.T) {
			e := through(succeeds)
			store := &shaky{Store: e.Store}
			e.Store = store
			var failed []error
			e.Trace = &durable.Trace{Failed: func(err error) { failed = append(failed, err) }}
			in := pay("comp1", "1")
			enqueue(t, e, in)
			var was atomic.Bool
			store.set(func(name string) error {
				if name != verb || was.Swap(true) {
					return nil
				}
				return errHangs
			})
			running(t, e)
			time.Sleep(35 * time.Second)
			assertState(t, e, in.ID, durable.StateDone)
			assert.Len(t, journal(t, e, in.ID), 1)
			require.Len(t, failed, 1)
			require.ErrorIs(t, failed[0], context.DeadlineExceeded)
			assert.ErrorContains(t, failed[0], "the store does not answer")
		})
	}
}

// tardy is a Store that claims at once and answers later, unless the context ends.
type tardy struct {
	durable.Store

	by time.Duration
}

func (s *tardy) Claim(ctx context.Context, claim driver.Claim) (driver.Claimed, error) {
	claimed, err := s.Store.Claim(context.WithoutCancel(ctx), claim)
	select {
	case <-time.After(s.by):
		return claimed, err
	case <-ctx.Done():
		return driver.Claimed{}, ctx.Err()
	}
}

// D10, D27: if the Engine stops during a claim, it waits for the answer, at most for DrainTimeout.
// The claimed intents are free at once. Otherwise they would be unknown, though nothing was sent.
func TestEngine_stopDuringClaim(t *testing.T) {
	for _, row := range []struct {
		name      string
		by, drain time.Duration
		want      durable.State
		longest   time.Duration
	}{
		{"it answers", 20 * time.Millisecond, 0, durable.StateWaiting, 20 * time.Millisecond},
		{"it does not", time.Hour, 0, durable.StateSending, time.Second},
		{"nothing is waited for", 20 * time.Millisecond, -1, durable.StateSending, 0},
	} {
		for name, work := range map[string]func(*durable.Engine, context.Context) error{
			"Run":  (*durable.Engine).Run,
			"Work": func(e *durable.Engine, ctx context.Context) error { _, err := e.Work(ctx, 1); return err },
			"WorkOne": func(e *durable.Engine, ctx context.Context) error {
				_, err := e.WorkOne(ctx, pay("comp1", "1").ID)
				return err
			},
		} {
			bubble.Run(t, row.name+": "+name, func(t *testing.T) {
				e := through(succeeds)
				e.Store, e.DrainTimeout = &tardy{e.Store, row.by}, row.drain
				in := pay("comp1", "1")
				enqueue(t, e, in)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				defer cancel()
				began := time.Now()
				if err := work(e, ctx); err != nil {
					require.True(t, errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded), err)
				}
				assert.LessOrEqual(t, time.Since(began), 10*time.Millisecond+row.longest)
				assertState(t, e, in.ID, row.want)
			})
		}
	}
}

// A call with a context that has ended claims nothing.
func TestEngine_endedContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := through(gatewayFunc(func(context.Context, *durable.Send) durable.Outcome { panic("sent") }))
		in := pay("comp1", "1")
		enqueue(t, e, in)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := e.WorkOne(ctx, in.ID)
		require.ErrorIs(t, err, context.Canceled)
		assertState(t, e, in.ID, durable.StatePending)
	})
}

// WorkOne returns a time by its caller's clock, not by the store's.
func TestWorkOne_byOurClock(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		bubble.Run(t, by.String(), func(t *testing.T) {
			e := through(gatewayFunc(func(context.Context, *durable.Send) durable.Outcome { panic("sent") }))
			e.Store = &skewed{e.Store, by}
			in := pay("comp1", "1")
			in.NotBefore = time.Now().Add(2 * time.Hour)
			enqueue(t, e, in)
			assert.WithinDuration(t, in.NotBefore, workOne(t, e, in.ID), time.Millisecond)
		})
	}
}

// WorkOne of an intent that is not due does not wait for more free slots.
func TestWorkOne_atOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := through(gatewayFunc(func(context.Context, *durable.Send) durable.Outcome {
			time.Sleep(time.Minute)
			return durable.Outcome{Class: durable.ClassSucceeded}
		}))
		in, later := pay("comp1", "1"), pay("comp1", "2")
		later.NotBefore = time.Now().Add(time.Hour)
		enqueue(t, e, in, later)
		go func() { _, _ = e.WorkOne(t.Context(), in.ID) }()
		synctest.Wait()
		began := time.Now()
		workOne(t, e, later.ID)
		assert.Zero(t, time.Since(began))
		time.Sleep(2 * time.Minute)
		assertState(t, e, in.ID, durable.StateDone)
	})
}

// D2: a send ends a quarter of the lease before the end that the claim returned.
func TestLeaseAsClaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var took time.Duration
		e := through(gatewayFunc(func(ctx context.Context, _ *durable.Send) durable.Outcome {
			began := time.Now()
			<-ctx.Done()
			took = time.Since(began)
			return durable.Outcome{}
		}))
		e.LeaseDuration = 20 * time.Second
		e.Store = &shaky{Store: e.Store, fail: noHeartbeat, claimed: func(claim driver.Claim, claimed *driver.Claimed) {
			claimed.Lease = claim.Lease * 9 / 10 // it was not extended after its first tenth
		}}
		enqueue(t, e, pay("comp1", "1"))
		work(t, e, 1)
		assert.Equal(t, 13*time.Second, took)
	})
}
