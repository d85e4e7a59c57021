package sharedquota

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/bubble"
	"github.com/resilienthttp/resilienthttp/internal/hold"
	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
	"github.com/resilienthttp/resilienthttp/quotastore"
)

func limits(ctx context.Context) waitqueue.Limits {
	return waitqueue.Limits{Ctx: ctx, MaxWait: time.Minute}
}

// faultyStore is a store that can fail.
type faultyStore struct {
	quotastore.Memory

	fails atomic.Bool
}

func (s *faultyStore) Take(ctx context.Context, key string, want, least int, r quotastore.Rule) (quotastore.Result, error) {
	if s.fails.Load() {
		return quotastore.Result{}, errors.New("the store is down")
	}
	return s.Memory.Take(ctx, key, want, least, r)
}

// send enters as often as possible for a time, and returns how often it got a permit.
func send(t *testing.T, q *Quota, during time.Duration) (n int) {
	t.Helper()
	for start := time.Now(); time.Since(start) < during; n++ {
		_, _, rejected := q.Enter(time.Now(), limits(t.Context()))
		require.Nil(t, rejected)
	}
	return n
}

// A process that starts reads the rule of the processes before it. A newer limit and a longer window
// replace the old ones.
func TestQuota_readsTheRule(t *testing.T) {
	const s = time.Second
	type seen struct {
		limit  int64
		window time.Duration
	}
	for _, row := range []struct {
		name string
		seen []seen // by one process after another
		want quotastore.Rule
	}{
		{"no process has seen a quota: no rule", []seen{{}}, quotastore.Rule{}},
		{"one process: its rule", []seen{{10, 60 * s}}, serverRule(10, 60*s)},
		{"another limit: the newer one", []seen{{10, 60 * s}, {20, 60 * s}}, serverRule(20, 60*s)},
		{"a lower limit: the newer one", []seen{{20, 60 * s}, {10, 60 * s}}, serverRule(10, 60*s)},
		{"a longer window: the longer one", []seen{{10, 5 * s}, {10, 60 * s}}, serverRule(10, 60*s)},
		{"a month: the longest window that the store keeps", []seen{{10, 30 * 24 * 3600 * s}}, serverRule(10, waitqueue.Horizon)},
		{"a shorter window: the longer one", []seen{{10, 60 * s}, {10, 5 * s}}, serverRule(10, 60*s)},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			var store quotastore.Memory
			start := func() (q *Quota, p Permit) {
				q = New(&store, "k")
				p, _, rejected := q.Enter(time.Now(), limits(t.Context()))
				require.Nil(t, rejected)
				return q, p
			}
			for _, o := range row.seen {
				q, p := start()
				q.Observe(Observation{Limit: o.limit, Window: o.window}, p, time.Now())
				time.Sleep(time.Second)
			}
			q, _ := start()
			q.mu.Lock()
			require.Equal(t, row.want, q.rule)
			q.mu.Unlock()
			time.Sleep(time.Hour)
		})
	}
}

// Each process knows how many there are, from their heartbeats in the store.
func TestQuota_countsMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store quotastore.Memory
		ctx, stop := context.WithCancel(t.Context())
		all := make([]*Quota, 8)
		var calls sync.WaitGroup
		for i := range all {
			all[i] = NewFixed(&store, "s", 100, 20)
			calls.Go(func() {
				for ctx.Err() == nil {
					_, _, _ = all[i].Enter(time.Now(), limits(ctx))
				}
			})
		}
		time.Sleep(9 * time.Second)
		for i := range all {
			all[i].mu.Lock()
			assert.InDelta(t, 8, all[i].members.n, 2.5, "process %d", i)
			all[i].mu.Unlock()
		}
		stop()
		calls.Wait()
		time.Sleep(time.Minute) // what is left is given back
	})
}

// A store that fails delays no request: the process uses its share of the limit. When the store is
// back, the share counts, so that at most the limit is used in all.
func TestQuota_storeFails(t *testing.T) {
	const limit, burst, s = 10, 30, time.Second
	synctest.Test(t, func(t *testing.T) {
		store := new(faultyStore)
		store.fails.Store(true)
		q := NewFixed(store, "s", limit, burst)
		require.InDelta(t, 100, send(t, q, 10*s), 5, "the store was never up")
		store.fails.Store(false)
		require.LessOrEqual(t, send(t, q, 10*s), 10*limit+5, "the share before counts: no burst")
		time.Sleep(10 * s)
		store.fails.Store(true)
		n := send(t, q, 10*s)
		require.Greater(t, n, 95)
		require.LessOrEqual(t, n, 10*limit+burst)
		store.fails.Store(false)
		require.InDelta(t, 100, send(t, q, 10*s), 15)
		time.Sleep(time.Minute)
	})
}

// A small burst does not reduce the limit, although a process takes tokens only ten times a second. A wait is for a
// limit of the client's own.
func TestNewFixed_smallBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewFixed(new(quotastore.Memory), "s", 100, 1)
		require.True(t, q.Fixed)
		require.InDelta(t, 1000, send(t, q, 10*time.Second), 100)
		time.Sleep(time.Minute)
	})
}

// A fixed limit of any size has a rule that a store can keep.
func TestFixedRule(t *testing.T) {
	const most = math.MaxInt32 - maxShared
	for _, row := range []struct {
		name  string
		limit float64
		burst int
		want  quotastore.Rule
	}{
		{"a burst of three seconds", 10, 30, quotastore.Rule{Limit: 30, Window: 3*time.Second + 1, Burst: 28}},
		{"a small burst: half a second", 100, 1, quotastore.Rule{Limit: 50, Window: time.Second/2 + 1, Burst: 30}},
		{"one in a thousand years: one in a year", 1e-11, 1, quotastore.Rule{Limit: 1, Window: 366 * 24 * time.Hour, Burst: 1}},
		{"no burst is too large", most, math.MaxInt, quotastore.Rule{Limit: most, Window: time.Second + 1, Burst: most - most/5}},
		{"no limit is too large", math.MaxFloat64, math.MaxInt, quotastore.Rule{Limit: most, Window: time.Second + 1, Burst: most - most/5}},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := FixedRule(row.limit, row.burst)
			require.Equal(t, row.want, got)
			require.NoError(t, got.Validate())
		})
	}
}

// Tokens are of use for a second, or half of a short window. Those that were not used do not count when a request is sent without
// one, and when they have left the window.
func TestAllocation_oldTokens(t *testing.T) {
	for window, age := range map[time.Duration]time.Duration{time.Hour: time.Second, time.Second: time.Second / 2} {
		taken := allocation{tokens: 3}
		a := taken
		require.True(t, a.use(age-1, window))
		require.Equal(t, int64(2), a.tokens)
		a = taken
		require.False(t, a.use(age, window))
		a.measure(window-1, window)
		require.Equal(t, int64(3), a.tokens)
		a.measure(window, window)
		require.Zero(t, a.tokens)
		a = taken
		a.owe(age)
		require.Equal(t, int64(-1), a.tokens)
	}
}

// No wait is longer than the Horizon, whatever the store or the server says.
func TestQuota_longestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewFixed(new(quotastore.Memory), "s", 1e-11, 1)
		require.Equal(t, waitqueue.Horizon, q.interval(1e9))
		now := q.since(time.Now())
		q.takeTokens(1).apply(quotastore.Result{RetryAfter: math.MaxInt64}, now)
		require.Equal(t, now+waitqueue.Horizon, q.after)
		q.after = 0
		q.Observe(Observation{BlockedUntil: time.Now().AddDate(200, 0, 0)}, permitToken, time.Now())
		require.Equal(t, now+waitqueue.Horizon, q.after)
		time.Sleep(time.Minute)
	})
}

// While the rule is unknown, the next request is sent at once if the first one was not sent.
func TestQuota_firstIsCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, begun := New(new(quotastore.Memory), "k"), time.Now()
		for range 3 {
			p, _, rejected := q.Enter(time.Now(), limits(t.Context()))
			require.Nil(t, rejected)
			require.Equal(t, permitFirst, p)
			q.Cancel(p, time.Now())
		}
		require.Less(t, time.Since(begun), hold.Hanging)
		time.Sleep(time.Minute)
	})
}

// Unused tokens are returned: another process gets the whole quota.
func TestQuota_returnsTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store quotastore.Memory
		q := New(&store, "k")
		p, _, rejected := q.Enter(time.Now(), limits(t.Context()))
		require.Nil(t, rejected)
		q.Observe(Observation{Served: true, Limit: 1000, Window: time.Hour}, p, time.Now())
		used := 1
		for range 20 {
			for range 5 {
				_, _, rejected := q.Enter(time.Now(), limits(t.Context()))
				require.Nil(t, rejected)
				used++
			}
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(time.Second)
		left, err := store.Take(t.Context(), "k", 0, 0, serverRule(1000, time.Hour))
		require.NoError(t, err)
		require.Equal(t, 1000-used, left.Remaining)
		time.Sleep(time.Minute)
	})
}

// A clock that was set back, here by a second bubble, stops no request.
func TestQuota_clockSetBack(t *testing.T) {
	for _, fails := range []bool{false, true} {
		store := new(faultyStore)
		store.fails.Store(fails)
		q := NewFixed(store, "s", 10, 10)
		for range 2 {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Hour)
				require.InDelta(t, 50, send(t, q, 5*time.Second), 15, "the store fails: %v", fails)
				time.Sleep(time.Minute)
			})
		}
	}
}

// A thousand goroutines use and return permits, while the store fails and comes back.
func TestQuota_manyGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(faultyStore)
		q := New(store, "k")
		ctx, stop := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		for i := range 1000 {
			calls.Go(func() {
				for ctx.Err() == nil {
					p, _, rejected := q.Enter(time.Now(), limits(ctx))
					if rejected == nil && i%7 == 0 {
						q.Cancel(p, time.Now())
					} else if rejected == nil {
						q.Observe(Observation{Served: true, Limit: 5000, Window: time.Second}, p, time.Now())
					}
					time.Sleep(time.Duration(i%13+1) * 10 * time.Millisecond)
					q.Remaining()
				}
			})
		}
		for i := range 10 {
			time.Sleep(300 * time.Millisecond)
			store.fails.Store(i%2 == 0)
		}
		stop()
		calls.Wait()
		require.Zero(t, q.Len())
		time.Sleep(time.Minute)
	})
}
