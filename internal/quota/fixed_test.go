package quota

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
	"github.com/resilienthttp/resilienthttp/quotastore"
)

func TestStaticLimit_rejects(t *testing.T) {
	for _, row := range []struct {
		name      string
		limit     Config
		deadline  time.Duration
		reason    waitqueue.Reason
		notBefore time.Duration // for the first refused
		served    int           // of ten calls at once
	}{
		{"MaxWait", Config{Limit: 1, MaxWait: 3 * time.Second}, time.Hour, waitqueue.MaxWaitExceeded, 4 * time.Second, 4},
		{"MaxWait by default", Config{Limit: 0.1}, time.Hour, waitqueue.MaxWaitExceeded, 70 * time.Second, 7},
		{"never wait", Config{Limit: 1, MaxWait: -1}, time.Hour, waitqueue.MaxWaitExceeded, time.Second, 1},
		{"deadline", Config{Limit: 1}, 4500 * time.Millisecond, waitqueue.DeadlineExceeded, 5 * time.Second, 5},
		{"tiny", Config{Limit: math.SmallestNonzeroFloat64}, time.Hour, waitqueue.DeadlineExceeded, 24 * time.Hour, 1},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			s := newQuotaScript(t, with(row.limit), nil)
			ctx, cancel := context.WithTimeout(t.Context(), row.deadline)
			defer cancel()
			var calls sync.WaitGroup
			var served atomic.Int64
			begun := time.Now()
			for range 10 {
				calls.Go(func() {
					_, err := get(ctx, s.client, s.URL)
					if err == nil {
						served.Add(1)
						return
					}
					assert.Equal(t, row.reason, err.Reason)
					assert.InDelta(t, row.notBefore.Seconds(), err.NotBefore.Sub(begun).Seconds(), 0.001)
					assert.Zero(t, time.Since(begun))
				})
			}
			calls.Wait()
			assert.EqualValues(t, row.served, served.Load())
		})
	}
}

// A call that leaves the queue, is rejected later, or is not sent takes no token.
func TestStaticLimit_returnsTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQuotaScript(t, with(Config{Limit: 1, Burst: 1, MaxWait: time.Hour}), faulttest.Script{
			{Route: "/close", Handler: faulttest.Unavailable(20*time.Second, faulttest.Seconds)},
		})
		_, _ = s.get(t, "/")
		begun := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		for i := range 20 {
			calls.Go(func() {
				ctx := ctx
				if i%2 == 1 {
					ctx = t.Context()
				}
				_, _ = get(ctx, s.client, s.URL)
			})
			synctest.Wait() // in this order
		}
		cancel()
		calls.Wait()
		assert.InDelta(t, 10, time.Since(begun).Seconds(), 0.001, "canceled calls take no token")

		// Unused permits are returned, again and again.
		time.Sleep(30 * time.Second)
		e := newExchange(t.Context(), s.limiter)
		e.scope = "mem.test"
		for range 3 {
			begun = time.Now()
			require.Nil(t, e.enter())
			assert.Zero(t, time.Since(begun))
			e.Cancel(time.Now())
		}

		// A token that is returned to a full bucket does not exceed the burst.
		fixed := s.limiter.Set("mem.test").fixed
		fixed.Cancel(struct{}{}, time.Now())
		assert.InDelta(t, 1, fixed.tokens, 0)
		s.bucket(t)
	})
}

// Calls that a block delayed are released within the fixed limit: in any time
// T at most Burst + Limit × T.
func TestStaticLimit_afterBlock(t *testing.T) {
	for _, row := range []struct {
		name  string
		close faulttest.Reply
	}{
		{"Retry-After", exhausted(5 * time.Second)},
		{"reset", says(1000, 0, 5*time.Second)},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			s := newQuotaScript(t, with(Config{Limit: 48, Burst: 5}), faulttest.Sequence(row.close, says(1000, 900, 5*time.Second)))
			_, _ = s.get(t, "/")
			var calls sync.WaitGroup
			for range 400 {
				calls.Go(func() { _, _ = s.get(t, "/") })
				time.Sleep(10 * time.Millisecond)
			}
			calls.Wait()
			requests := s.Requests()
			require.Len(t, requests, 1+400)
			requireCeiling(t, 48, 5, 0, len(requests), func(i int) time.Time { return requests[i].ReceivedAt })
			took := requests[400].ReceivedAt.Sub(requests[1].ReceivedAt).Seconds()
			assert.Less(t, took, 1.2+(400-5)/48.0, "and no slower than that")
		})
	}
}

// §4.26: if the server blocks the scope while a call waits for a token or a slot, the call is not sent and returns it.
func TestStaticLimit_blockedMeanwhile(t *testing.T) {
	for name, config := range map[string]Config{"a token": {Limit: 1, Burst: 1}, "a slot": {MaxInFlight: 1}} {
		bubble.Run(t, name, func(t *testing.T) {
			s := newQuotaScript(t, with(config), faulttest.Sequence(late(500*time.Millisecond, exhausted(5*time.Second)), faulttest.OK("")))
			var calls sync.WaitGroup
			for range 3 {
				calls.Go(func() {
					_, refused := s.get(t, "/")
					assert.Nil(t, refused)
				})
				synctest.Wait()
			}
			s.bucket(t)
			calls.Wait()
			requests := s.Requests()
			require.Len(t, requests, 3)
			require.GreaterOrEqual(t, requests[1].ReceivedAt.Sub(requests[0].ReceivedAt), 5500*time.Millisecond)
			if config.Limit > 0 {
				requireCeiling(t, 1, 1, 0, 3, func(i int) time.Time { return requests[i].ReceivedAt })
			}
		})
	}
}

// A wait for a reset reduces the maximum wait for a token.
func TestStaticLimit_MaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQuotaScript(t, with(Config{Limit: 0.5, Burst: 1, MaxWait: 12 * time.Second}), faulttest.Sequence(exhausted(8*time.Second), faulttest.OK("")))
		_, _ = s.get(t, "/")
		var calls sync.WaitGroup
		var served atomic.Int64
		for range 8 {
			calls.Go(func() {
				took, refused := s.get(t, "/")
				assert.LessOrEqual(t, took, 14*time.Second)
				if refused == nil {
					served.Add(1)
					return
				}
				assert.Equal(t, waitqueue.MaxWaitExceeded, refused.Reason)
			})
		}
		calls.Wait()
		assert.InDelta(t, 3, served.Load(), 1, "after 8 s, 10 and 12")
		s.bucket(t)
	})
}

// NotBefore is known, also if a token has returned and the timer is late.
func TestStaticLimit_lateTimerNotBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := with(Config{Limit: 1})
		first, second, third := newExchange(t.Context(), l), newExchange(t.Context(), l), newExchange(t.Context(), l)
		require.Nil(t, first.enter())
		go func() { _ = second.enter() }()
		synctest.Wait()
		third.AtOnce = true
		_, rejected := l.Set(third.scope).Admit(t.Context(), third.Request, time.Now().Add(3*time.Second))
		require.NotNil(t, rejected)
		require.NotZero(t, rejected.NotBefore)
	})
}

// A small bucket is used up although timers are late. A very late timer causes no burst.
func TestStaticLimit_lateTimers(t *testing.T) {
	for _, row := range []struct {
		name  string
		limit rate.Limit
		burst int
		late  func() time.Duration
		least float64 // of the ceiling
	}{
		{"a millisecond", 1000, 1, func() time.Duration { return time.Millisecond }, 0.99},
		{"up to ten", 5000, 1, func() time.Duration { return rand.N(10 * time.Millisecond) }, 0.99},
		{"up to ten, a bucket", 500, 50, func() time.Duration { return rand.N(10 * time.Millisecond) }, 0.99},
		{"a second", 100, 1, func() time.Duration { return time.Second }, 0},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			l := with(Config{Limit: row.limit, Burst: row.burst, MaxWait: time.Hour})
			s := l.Set("").fixed
			s.mu.Lock()
			defer s.mu.Unlock()
			now := time.Now()
			var sent []time.Time
			waiting := 0
			for now.Before(l.origin.Add(4 * time.Second)) {
				for ; s.Len() < 200; waiting++ {
					require.Nil(t, s.Join(now, &waitqueue.Entry[struct{}]{Limits: waitqueue.Limits{Ctx: t.Context(), MaxWait: time.Hour}}))
				}
				for ; waiting > int(s.Len()); waiting-- {
					sent = append(sent, now)
				}
				now = now.Add(max(s.Alarm().Sub(now), 0) + row.late())
				s.Dispatch(now)
				for ; waiting > int(s.Len()); waiting-- {
					sent = append(sent, now)
				}
			}
			s.WakeAt(time.Time{}, now)
			took := now.Sub(l.origin).Seconds()
			assert.LessOrEqual(t, float64(len(sent)), float64(row.burst)+took*float64(row.limit))
			assert.GreaterOrEqual(t, float64(len(sent)), row.least*took*float64(row.limit))
			requireCeiling(t, float64(row.limit), row.burst, timerSlack, len(sent), func(i int) time.Time { return sent[i] })
		})
	}
}

// requireCeiling requires that in any time T there are at most Burst + Limit × (T + late)
// requests.
func requireCeiling(t *testing.T, limit float64, burst int, late time.Duration, n int, at func(int) time.Time) {
	t.Helper()
	for from := range n {
		for to := from; to < min(n, from+200); to++ {
			took := at(to).Sub(at(from))
			if most := float64(burst) + limit*(took+late).Seconds() + 1e-3; float64(to-from+1) > most {
				t.Fatalf("%d in %v", to-from+1, took)
			}
		}
	}
}

func (l *Limiter) freeSlots(scope string) int {
	s := l.Set(scope).slots
	s.mu.Lock()
	defer s.mu.Unlock()
	return int(s.tokens)
}

// storeIf returns a new store, or nil.
func storeIf(shared bool) quotastore.Store {
	if shared {
		return &quotastore.Memory{}
	}
	return nil
}

// §4.26: a request takes its slot before its token of the fixed limit: tokens are not saved up while a
// slow server holds all slots. In any time T at most Burst + Limit × T.
func TestSlots_fixedLimit(t *testing.T) {
	for _, row := range []struct {
		name   string
		shared bool
		took   time.Duration // for 98 calls; a process asks the store only for the tokens of calls with a slot
	}{
		{"of this process", false, 11 * time.Second},
		{"of many processes", true, 22 * time.Second},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			l := with(Config{Limit: 10, Burst: 2, MaxInFlight: 2, MaxWait: time.Hour, Shared: storeIf(row.shared)})
			s := newQuotaScript(t, l, faulttest.Sequence(late(20*time.Second, says(1000, 900, time.Minute)), late(20*time.Second, says(1000, 900, time.Minute)), says(1000, 900, time.Minute)))
			var calls sync.WaitGroup
			for range 100 {
				calls.Go(func() {
					_, refused := s.get(t, "/")
					assert.Nil(t, refused)
				})
			}
			calls.Wait()
			requests := s.Requests()
			require.Len(t, requests, 100)
			requireCeiling(t, 10, 2, time.Second/2, len(requests), func(i int) time.Time { return requests[i].ReceivedAt })
			require.Less(t, requests[99].ReceivedAt.Sub(requests[2].ReceivedAt), row.took, "and no slower than that")
		})
	}
}

// A call does not wait for a slot if calls that wait for tokens would make it too late.
func TestSlots_tokensTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := with(Config{Limit: 1, MaxInFlight: 2, MaxWait: 1500 * time.Millisecond})
		first, second, third := newExchange(t.Context(), l), newExchange(t.Context(), l), newExchange(t.Context(), l)
		require.Nil(t, first.enter())
		go func() { _ = second.enter() }()
		synctest.Wait()
		begun := time.Now()
		require.Equal(t, waitqueue.Rejection{Reason: waitqueue.MaxWaitExceeded, NotBefore: begun.Add(2 * time.Second)}, *third.enter())
		require.Zero(t, time.Since(begun))
	})
}

// When a slot is free is unknown, also if there are tokens.
func TestSlots_notBeforeIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := with(Config{Limit: 10, MaxInFlight: 1, MaxWait: -1})
		require.Nil(t, newExchange(t.Context(), l).enter())
		require.Equal(t, waitqueue.Rejection{Reason: waitqueue.MaxWaitExceeded}, *newExchange(t.Context(), l).enter())
	})
}

// §4.26: a call that waits for the server's quota holds no slot: a call with another credential uses it.
func TestSlots_quotaOfAnother(t *testing.T) {
	for name, shared := range map[string]bool{"of this process": false, "of many processes": true} {
		bubble.Run(t, name, func(t *testing.T) {
			l := with(Config{MaxInFlight: 1, Shared: storeIf(shared)})
			first, second, other := newExchange(t.Context(), l), newExchange(t.Context(), l), newExchange(t.Context(), l)
			other.Credential = l.Hash("another")
			require.Nil(t, first.enter())
			first.shows(10, 0, 30)
			begun := time.Now()
			go func() {
				if second.enter() == nil {
					second.done()
				}
			}()
			synctest.Wait()
			require.Equal(t, 1, l.freeSlots(first.scope))
			require.Nil(t, other.enter())
			require.Less(t, time.Since(begun), time.Second)
			other.done()
			time.Sleep(time.Minute)
			require.Equal(t, 1, l.freeSlots(first.scope))
		})
	}
}
