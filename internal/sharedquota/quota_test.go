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

// The usage is measured over a callInterval, and a process has tokens for one interval to two more. It takes or returns the difference.
func TestAllocation_lacks(t *testing.T) {
	a := allocation{used: 6}
	a.measure(callInterval-1, time.Minute)
	require.Zero(t, a.need)
	a.measure(2*callInterval, time.Minute)
	require.Equal(t, int64(3), a.need)
	for _, row := range []struct {
		name                  string
		tokens, waiting, want int64
	}{
		{"none", 0, 0, 6},
		{"less than for this interval", 2, 0, 4},
		{"enough for this one", 3, 0, 0},
		{"enough for both", 6, 0, 0},
		{"twice as many", 12, 0, 0},
		{"more: they are returned", 13, 0, -7},
		{"a debt", -5, 0, 11},
		{"calls wait", 0, 4, 10},
	} {
		a.tokens = row.tokens
		require.Equal(t, row.want, a.lacks(row.waiting), row.name)
	}
}

// What comes back from the store, or from a call, changes only what it is about.
func TestQuota_results(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewFixed(new(quotastore.Memory), "s", 10, 10)
		now := q.since(time.Now())
		blocked := now + time.Minute
		q.after = blocked
		q.takeTokens(-1).apply(quotastore.Result{OK: true, Remaining: 5}, now)
		require.Equal(t, blocked, q.after, "returned tokens end no block")
		q.outage = outage{down: true, next: now}
		require.False(t, q.useShare(now), "nor does an outage")
		q.after = 0

		require.True(t, q.useShare(now))
		require.False(t, q.useShare(now), "a share of ten a second")
		later, n := now+time.Hour, 0
		for q.useShare(later) {
			n++
		}
		require.Equal(t, 2, n, "a pause saves up no share, but for callInterval")

		q.countMembers().apply(quotastore.Result{Remaining: maxShared - 1}, now)
		require.Equal(t, members{1, now + heartbeat}, q.members, "at least this process")
		q.countMembers().apply(quotastore.Result{Remaining: maxShared - 20}, now)
		require.Greater(t, q.members.n, 5.)

		q.allocation = allocation{tokens: 3, inStore: -4, at: now}
		left, known := q.Remaining()
		require.Zero(t, left)
		require.True(t, known)
		q.Return(permitNone, time.Now())
		require.Equal(t, int64(3), q.allocation.tokens)
		q.Return(permitToken, time.Now())
		require.Equal(t, int64(4), q.allocation.tokens)
	})
}

// A debt counts in the store above the limit, whatever the rule is, and changes no rate.
func TestQuota_reportsAboveTheLimit(t *testing.T) {
	for _, rule := range []quotastore.Rule{serverRule(10, time.Minute), FixedRule(10, 30)} {
		for _, debt := range []int{5, 100} {
			synctest.Test(t, func(t *testing.T) {
				var store quotastore.Memory
				q := New(&store, "k")
				q.rule = rule
				q.since(time.Now())
				_, err := store.Take(t.Context(), "k", rule.Capacity(), 0, rule)
				require.NoError(t, err)
				time.Sleep(callInterval)
				q.allocation.tokens = -int64(debt)
				result, err := q.report().do(t.Context())
				require.NoError(t, err)
				require.Equal(t, debt, result.Allowed)
				result, err = store.Take(t.Context(), "k", 0, 0, rule)
				require.NoError(t, err)
				require.Zero(t, result.Remaining)
			})
		}
	}
}

// The estimate has the time that the store gave, and the time in which the rule adds what is missing.
func TestQuota_Estimate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, row := range []struct {
			name  string
			limit int // a second; 0: unknown
			after time.Duration
			ahead int64
			want  time.Duration
		}{
			{"nothing known", 0, 0, 20, 0},
			{"enough is left", 10, 0, 5, 0},
			{"as many as are left", 10, 0, 6, 0},
			{"ten more", 10, 0, 16, time.Second},
			{"the store has given a time", 10, time.Minute, 5, time.Minute},
			{"it is over", 10, -time.Minute, 16, time.Second},
			{"both", 10, time.Minute, 16, time.Minute + time.Second},
		} {
			q := New(new(quotastore.Memory), "k")
			q.rule = quotastore.Rule{Limit: row.limit, Window: time.Second, Sliding: true}
			q.after = q.since(time.Now()) + row.after
			q.allocation = allocation{tokens: 2, inStore: 4}
			at, _ := q.Estimate(time.Now(), waitqueue.Load{Calls: row.ahead}, 0)
			require.Equal(t, row.want, time.Until(at), row.name)
		}
	})
}

// isFirst enters the next request, which is sent alone.
func isFirst(t *testing.T, q *Quota) {
	t.Helper()
	p, _, rejected := q.Enter(time.Now(), limits(t.Context()))
	require.Nil(t, rejected)
	require.Equal(t, permitFirst, p)
}

// While the rule is unknown, another request is sent if the first one hangs.
func TestQuota_firstHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(new(quotastore.Memory), "k")
		for i := range 3 {
			isFirst(t, q)
			require.WithinDuration(t, q.origin.Add(waitqueue.Horizon+time.Duration(i)*hold.Hanging), time.Now(), hold.Hanging/4)
		}
		time.Sleep(time.Minute)
	})
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
			isFirst(t, q)
			q.Cancel(permitFirst, time.Now())
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
