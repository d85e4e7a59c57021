package durable_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/durable"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// slowBank does the work of each first request late, and answers nothing. It declines what it does not know yet.
type slowBank struct {
	late time.Duration

	mu   sync.Mutex
	sent map[string]bool
	done map[string]int
}

func (b *slowBank) Send(_ context.Context, s *durable.Send) durable.Outcome {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.sent[s.ID.Key] {
		b.sent[s.ID.Key] = true
		time.AfterFunc(b.late, func() { b.pay(s.ID.Key) })
		return durable.Outcome{}
	}
	if b.done[s.ID.Key] == 0 && s.Epoch == 1 {
		return durable.Outcome{Class: durable.ClassDeclined, Code: "24", Status: 402}
	}
	if s.Epoch > 1 {
		b.done[s.ID.Key]++ // a new key: it is paid again
	}
	return durable.Outcome{Class: durable.ClassSucceeded}
}

func (b *slowBank) pay(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done[key]++
}

// queriedBank is a slowBank that knows no keys, and can be queried.
type queriedBank struct{ *slowBank }

func (queriedBank) KeyPolicy() (keyTTL, visibilityDelay time.Duration) { return -1, 0 }

func (b queriedBank) Find(_ context.Context, s *durable.Send) durable.Outcome {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done[s.ID.Key] > 0 {
		return durable.Outcome{Class: durable.ClassSucceeded}
	}
	return durable.Outcome{Class: durable.ClassNotFound}
}

// watchedPolicy sees what the Policy is asked.
type watchedPolicy struct {
	durable.Policy

	asked func(*durable.History)
}

func (p watchedPolicy) Next(h *durable.History, now time.Time) durable.Decision {
	p.asked(h)
	return p.Policy.Next(h, now)
}

// D30: a clock that is set shows nothing about earlier sends. They may take effect for VisibilityDelay of the Engine's own time,
// so nothing is paid twice. The move is reported once.
func TestClock_inDoubt(t *testing.T) {
	for _, queried := range []bool{false, true} {
		for _, by := range []time.Duration{20 * time.Minute, -20 * time.Minute, 500 * time.Hour} {
			bubble.Run(t, fmt.Sprintf("can be queried %v, moved by %v", queried, by), func(t *testing.T) {
				const payments = 20
				bank := &slowBank{late: 10 * time.Minute, sent: map[string]bool{}, done: map[string]int{}}
				var gateway durable.Gateway = bank
				if queried {
					gateway = queriedBank{bank}
				}
				e := through(gateway)
				var moved time.Time
				e.Policy = watchedPolicy{durable.Declines{
					Schedule: durable.Schedule{Backoff: resilienthttp.Constant(30 * time.Second), MaxAge: -1, MaxAttempts: -1},
					Default:  durable.Rule{After: []time.Duration{30 * time.Second}},
				}, func(h *durable.History) {
					assert.True(t, h.InDoubt || time.Since(moved) >= 15*time.Minute, "a Policy learns that the work was not done")
				}}
				e.KeyTTL, e.Retention = 1000*time.Hour, -1
				var moves []error
				e.Trace = &durable.Trace{Failed: func(err error) { moves = append(moves, err) }}
				store := e.Store.(*durable.Memory)
				enqueue(t, e, several("comp1", payments)...)
				running(t, e)
				time.Sleep(45 * time.Second)
				durable.MoveClock(store, by)
				moved = time.Now()
				time.Sleep(time.Minute)
				synctest.Wait()
				record := find(t, e, pay("comp1", "0").ID)
				if from := e.DeclineCountsFrom(&record); !queried && assert.False(t, from.IsZero()) {
					assert.WithinDuration(t, moved.Add(by+15*time.Minute), from, 3*time.Second)
				}
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				for i := range payments {
					assertState(t, e, pay("comp1", fmt.Sprint(i)).ID, durable.StateDone)
					assert.Equal(t, 1, bank.done[fmt.Sprint(i)], "payment %d", i)
				}
				require.Len(t, moves, 1)
				require.ErrorIs(t, moves[0], durable.ErrClockMoved)
				assert.Contains(t, moves[0].Error(), by.Abs().Truncate(time.Minute).String()[:3], "how far")
			})
		}
	}
}

// D30: after the clock was set back by an hour, what is due is sent soon, retries wait no longer than planned, and the rate of
// retries is as before.
func TestClock_setBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var mu sync.Mutex
		sends := map[string][]time.Duration{}
		e := through(gatewayFunc(func(_ context.Context, s *durable.Send) durable.Outcome {
			mu.Lock()
			sends[s.ID.Key] = append(sends[s.ID.Key], time.Since(began))
			mu.Unlock()
			if s.ID.Key != "due" {
				time.Sleep(2 * time.Second)
				return durable.Outcome{Class: durable.ClassFailed, Err: errors.New("no"), Code: "busy"}
			}
			return durable.Outcome{Class: durable.ClassSucceeded}
		}))
		e.Policy = durable.Schedule{Backoff: resilienthttp.Constant(5 * time.Minute)}
		store := e.Store.(*durable.Memory)
		running(t, e)
		enqueue(t, e, pay("comp1", "waiting"))
		time.Sleep(2 * time.Minute)
		enqueue(t, e, pay("comp1", "in flight"))
		time.Sleep(2*time.Second - time.Millisecond)
		require.NoError(t, errOf(store.Apply(t.Context(), []durable.Event{{Kind: durable.EventEnqueue, Intent: pay("comp1", "due")}})))
		durable.MoveClock(store, -time.Hour)
		moved := time.Since(began)
		time.Sleep(40 * time.Minute)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		require.Len(t, sends["due"], 1)
		assert.Less(t, sends["due"][0], moved+2*time.Second)
		for _, key := range []string{"waiting", "in flight"} {
			require.Greater(t, len(sends[key]), 2)
			for i := 1; i < len(sends[key]); i++ {
				gap := sends[key][i] - sends[key][i-1]
				assert.GreaterOrEqual(t, gap, 5*time.Minute)
				longest := 5*time.Minute + 5*time.Second
				if i == 1 {
					longest += 2*time.Minute + 2*time.Second // the wait began anew
				}
				assert.Less(t, gap, longest, "%s, send %d", key, i)
			}
		}
	})
}

// D30: a verb that has read the clock before it was set back may write after that. The wait of its intent begins anew, too.
func TestClock_setBackDuringVerb(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, calls := shakyStore(succeeds)
		store := calls.Store.(*durable.Memory)
		running(t, e)
		time.Sleep(time.Second)
		durable.MoveClock(store, -time.Hour)
		time.Sleep(10 * time.Second) // the Engine has noticed it

		durable.MoveClock(store, time.Hour) // for another process, which does not know yet
		require.NoError(t, errOf(store.Apply(t.Context(), []durable.Event{{Kind: durable.EventEnqueue, Intent: pay("comp1", "late")}})))
		claimed, err := store.Claim(t.Context(), durable.Claim{
			Worker: "w", Lease: time.Hour, Limit: 1, Gateways: map[string]durable.Allowance{"psp": {Limit: 1, PerScope: 1}},
		})
		require.NoError(t, err)
		require.Len(t, claimed.Changes, 1)
		r := &claimed.Changes[0].Record
		require.NoError(t, errOf(store.Apply(t.Context(), []durable.Event{{
			Kind: durable.EventFinish, Intent: r.Intent, Worker: "w", Generation: r.Generation, Terms: &durable.Terms{},
			Outcome: durable.Outcome{Class: durable.ClassFailed}, Decision: durable.Decision{At: claimed.Now.Add(time.Minute)},
		}})))
		durable.MoveClock(store, -time.Hour)
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		assertState(t, e, r.ID, durable.StateDone)
		assert.Equal(t, 2, calls.called("rebase"))
	})
}

// D30: neither a slow answer of the store nor its drift is a clock that was set.
func TestClock_latency(t *testing.T) {
	for _, row := range []struct {
		name string
		poll time.Duration
		last time.Duration
	}{
		{"claims each second, every second of them slow", time.Second, 5 * time.Minute},
		{"claims each day", 24 * time.Hour, 240 * time.Hour},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			store := &shaky{Store: new(durable.Memory)}
			began := time.Now()
			n := 0
			store.claimed = func(_ durable.Claim, claimed *durable.Claimed) {
				if n++; n%2 == 0 {
					time.Sleep(10 * time.Second)
				}
				claimed.Now = claimed.Now.Add(time.Since(began) / 2000)
			}
			e := through(succeeds)
			e.Store, e.PollInterval = store, row.poll
			e.Trace = &durable.Trace{Failed: func(err error) { assert.NoError(t, err) }}
			enqueue(t, e, several("comp1", 50)...)
			runFor(t, e, row.last)
			assert.Greater(t, n, 10)
		})
	}
}
