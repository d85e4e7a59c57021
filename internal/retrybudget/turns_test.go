package retrybudget

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// §4.16: one retry without tokens is in flight, and one more for each that is served. After a rejection none is sent for as long as it asks.
func TestAwaitTurn(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	var (
		served   = Result{Succeeded: true}
		failed   = Result{}
		rejected = Result{Pause: 10 * s}
	)
	for _, tt := range []struct {
		name   string
		ends   []Result      // of the first retries, each after its time; the others are served
		took   time.Duration // of a retry, and a millisecond more for each before it
		cancel bool          // the first retry is not sent
		sent   []time.Duration
	}{
		{"each that is served lets one more go", nil, 100 * ms, false, []time.Duration{0, 100 * ms, 100 * ms, 201 * ms, 201 * ms, 202 * ms, 202 * ms}},
		{"after a failure: one", []Result{served, failed}, 100 * ms, false, []time.Duration{0, 100 * ms, 100 * ms, 202 * ms, 202 * ms}},
		{"after a rejection: as long as it asks", []Result{rejected}, 100 * ms, false, []time.Duration{0, 10*s + 100*ms, 10*s + 201*ms, 10*s + 201*ms}},
		{"after each rejection", []Result{rejected, rejected}, 100 * ms, false, []time.Duration{0, 10*s + 100*ms, 20*s + 201*ms}},
		{"served after one that is rejected", []Result{served, rejected, served}, 100 * ms, false, []time.Duration{0, 100 * ms, 100 * ms, 10*s + 201*ms, 10*s + 304*ms}},
		{"served before one that is rejected", []Result{served, served, rejected}, 100 * ms, false, []time.Duration{0, 100 * ms, 100 * ms, 201 * ms, 201 * ms, 10*s + 202*ms}},
		{"beside one that hangs: after a second", nil, time.Minute, false, []time.Duration{0, s, 2 * s}},
		{"not sent: the next at once", nil, 100 * ms, true, []time.Duration{0, 0, 101 * ms}},
	} {
		bubble.Run(t, tt.name, func(t *testing.T) {
			b, begun := with(Rules{}), time.Now()
			var mu sync.Mutex
			var sent []time.Duration
			for range tt.sent {
				go func() {
					p, ok := b.AwaitTurn(time.Now(), waitqueue.Limits{Ctx: t.Context(), MaxWait: time.Hour})
					if !ok {
						return
					}
					mu.Lock()
					i := len(sent)
					sent = append(sent, time.Since(begun))
					mu.Unlock()
					if i == 0 && tt.cancel {
						p.Cancel()
						return
					}
					time.Sleep(tt.took + time.Duration(i)*ms) // one after the other
					result := served
					if i < len(tt.ends) {
						result = tt.ends[i]
					}
					p.Done(result)
				}()
				synctest.Wait()
			}
			time.Sleep(time.Hour)
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, tt.sent, sent)
		})
	}
}

// A call that leaves the queue, also in the instant of its turn, keeps no other back.
func TestAwaitTurn_ends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := with(Rules{})
		limits := waitqueue.Limits{Ctx: t.Context(), MaxWait: time.Hour}
		first, ok := b.AwaitTurn(time.Now(), limits)
		require.True(t, ok)
		for _, left := range []time.Duration{0, time.Second / 2} {
			_, ok = b.AwaitTurn(time.Now(), waitqueue.Limits{Ctx: t.Context(), MaxWait: left})
			require.False(t, ok)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		_, ok = b.AwaitTurn(time.Now(), waitqueue.Limits{Ctx: gone, MaxWait: time.Hour})
		require.False(t, ok)
		first.Done(Result{})
		begun := time.Now()
		_, ok = b.AwaitTurn(begun, limits)
		require.True(t, ok)
		require.Zero(t, time.Since(begun))
	})
}

// In another testing/synctest bubble the clock is set back.
func TestAwaitTurn_clockThatGoesBack(t *testing.T) {
	b := with(Rules{})
	for _, after := range []time.Duration{time.Hour, 0} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(after)
			begun := time.Now()
			p, ok := b.AwaitTurn(begun, waitqueue.Limits{Ctx: t.Context(), MaxWait: time.Minute})
			require.True(t, ok)
			require.Zero(t, time.Since(begun))
			p.Done(Result{Pause: time.Minute})
		})
	}
}

func TestAwaitTurn_thousandGoroutines(t *testing.T) {
	b := with(Rules{Tokens: 5})
	var done sync.WaitGroup
	for i := range 1000 {
		done.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i%3 == 0 {
				time.AfterFunc(time.Duration(i)*time.Microsecond, cancel)
			}
			p, ok := b.AwaitTurn(time.Now(), waitqueue.Limits{Ctx: ctx, MaxWait: time.Minute})
			if ok && i%5 == 0 {
				p.Cancel()
			}
			p.Done(Result{Succeeded: i%2 == 0})
		})
	}
	done.Wait()
	require.Zero(t, b.turns.queue.Len())
	require.InDelta(t, 5, b.Status(&b.rules, time.Now()).Remaining, 1e-6)
}
