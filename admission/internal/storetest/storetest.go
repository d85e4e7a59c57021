// Package storetest tests that a quotastore.Store does what its documentation says.
package storetest

import (
	"context"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/sleep"
	"github.com/resilienthttp/resilienthttp/quotastore"
)

// Run tests the stores that open returns. Each call must return a store without the keys
// of the other stores. The tests use the store's own clock and take a few seconds.
func Run(t *testing.T, open func(*testing.T) quotastore.Store) {
	for name, test := range map[string]func(*testing.T, quotastore.Store){
		"Burst": burst, "Wait": wait, "Partial": partial, "Peek": peek, "GiveBack": giveBack, "Keys": keys,
		"Block": block, "Invalid": invalid, "Canceled": canceled, "Exact": exact, "Obeyed": obeyed, "Steady": steady,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// each tests a rule of each algorithm with the same numbers.
func each(t *testing.T, limit int, window time.Duration, test func(t *testing.T, r quotastore.Rule)) {
	for name, sliding := range map[string]bool{"bucket": false, "sliding": true} {
		t.Run(name, func(t *testing.T) { test(t, quotastore.Rule{Limit: limit, Window: window, Sliding: sliding}) })
	}
}

// take takes units, and checks that the result is consistent. Testify's messages have the lines of all callers.
func take(t *testing.T, s quotastore.Store, key string, want, minUnits int, r quotastore.Rule) quotastore.Result {
	result, err := s.Take(context.Background(), key, want, minUnits, r)
	require.NoError(t, err, "Take(%q, %d, %d)", key, want, minUnits)
	require.True(t, result.Remaining >= 0 && result.Remaining <= r.Capacity() && result.ResetAfter >= 0, "%+v", result)
	if result.OK {
		require.Zero(t, result.RetryAfter, "%+v", result)
	} else {
		require.True(t, result.RetryAfter > 0 && result.Allowed == 0, "%+v", result)
	}
	return result
}

func want(t *testing.T, got quotastore.Result, ok bool, taken, remaining int) {
	require.Equal(t, quotastore.Result{OK: ok, Allowed: taken, Remaining: remaining, RetryAfter: got.RetryAfter, ResetAfter: got.ResetAfter}, got)
}

// pass waits for d.
func pass(d time.Duration) { _ = sleep.Context(context.Background(), d) }

func burst(t *testing.T, s quotastore.Store) {
	each(t, 3, time.Hour, func(t *testing.T, r quotastore.Rule) {
		key := t.Name()
		want(t, take(t, s, key, 1, 1, r), true, 1, 2)
		want(t, take(t, s, key, 2, 2, r), true, 2, 0)
		rejected := take(t, s, key, 1, 1, r)
		want(t, rejected, false, 0, 0)
		require.LessOrEqual(t, rejected.ResetAfter, time.Hour)
		require.LessOrEqual(t, rejected.RetryAfter, rejected.ResetAfter)
	})
	t.Run("larger than the limit", func(t *testing.T) {
		r := quotastore.Rule{Limit: 1, Window: time.Hour, Burst: 5}
		want(t, take(t, s, t.Name(), 5, 5, r), true, 5, 0)
		want(t, take(t, s, t.Name(), 1, 1, r), false, 0, 0)
	})
	t.Run("smaller than the limit", func(t *testing.T) {
		r := quotastore.Rule{Limit: 10, Window: time.Hour, Burst: 2}
		want(t, take(t, s, t.Name(), 9, 1, r), true, 2, 0)
		want(t, take(t, s, t.Name(), 1, 1, r), false, 0, 0)
	})
}

// wait checks that RetryAfter and ResetAfter are long enough.
func wait(t *testing.T, s quotastore.Store) {
	each(t, 4, 400*time.Millisecond, func(t *testing.T, r quotastore.Rule) {
		for n := 1; n <= 4; n++ {
			take(t, s, t.Name(), 4, 0, r)
			rejected := take(t, s, t.Name(), n, n, r)
			if rejected.OK {
				continue // on a slow machine the units are back already
			}
			pass(rejected.RetryAfter)
			require.True(t, take(t, s, t.Name(), n, n, r).OK, "%d units are not available after %v", n, rejected.RetryAfter)
		}
		pass(take(t, s, t.Name(), 0, 0, r).ResetAfter)
		want(t, take(t, s, t.Name(), 0, 0, r), true, 0, 4)
	})
}

func partial(t *testing.T, s quotastore.Store) {
	each(t, 10, time.Hour, func(t *testing.T, r quotastore.Rule) {
		key := t.Name()
		want(t, take(t, s, key, 7, 3, r), true, 7, 3)
		want(t, take(t, s, key, 7, 4, r), false, 0, 3)
		want(t, take(t, s, key, 7, 3, r), true, 3, 0)
		want(t, take(t, s, key, 7, 0, r), true, 0, 0)
		want(t, take(t, s, key, 7, -5, r), true, 0, 0)
		want(t, take(t, s, key, math.MaxInt, 1, r), false, 0, 0)
	})
}

func peek(t *testing.T, s quotastore.Store) {
	each(t, 10, time.Hour, func(t *testing.T, r quotastore.Rule) {
		key := t.Name()
		fresh := take(t, s, key, 0, 0, r)
		want(t, fresh, true, 0, 10)
		require.Zero(t, fresh.ResetAfter, "of an unused key")
		take(t, s, key, 4, 4, r)
		want(t, take(t, s, key, 0, 0, r), true, 0, 6)
		want(t, take(t, s, key, 0, 9, r), true, 0, 6) // min is limited by want
	})
}

func giveBack(t *testing.T, s quotastore.Store) {
	each(t, 10, time.Hour, func(t *testing.T, r quotastore.Rule) {
		key := t.Name()
		want(t, take(t, s, key, -3, 0, r), true, 0, 10) // nothing was taken
		take(t, s, key, 10, 10, r)
		want(t, take(t, s, key, -4, 0, r), true, -4, 4)
		want(t, take(t, s, key, 4, 4, r), true, 4, 0)
		back := take(t, s, key, math.MinInt, 0, r)
		require.True(t, back.Remaining == 10 && back.Allowed <= -9, "not all units were returned: %+v", back)
		want(t, take(t, s, key, 10, 10, r), true, 10, 0)
	})
}

func keys(t *testing.T, s quotastore.Store) {
	each(t, 1, time.Hour, func(t *testing.T, r quotastore.Rule) {
		long := strings.Repeat("k", 10_000)
		for _, key := range []string{"", "a", "A", "a ", "a\x00", "a\xff", "a:b", "{a}b", "ключ", long, long + "2"} {
			key += t.Name()
			want(t, take(t, s, key, 1, 1, r), true, 1, 0)
			want(t, take(t, s, key, 1, 1, r), false, 0, 0)
		}
	})
	want(t, take(t, s, "", 1, 1, quotastore.Rule{Limit: 1, Window: time.Hour}), true, 1, 0)
}

func block(t *testing.T, s quotastore.Store) {
	each(t, 5, time.Hour, func(t *testing.T, r quotastore.Rule) {
		for d := 300 * time.Millisecond; !blockFor(t, s, t.Name()+d.String(), r, d); d *= 2 {
			t.Logf("the test was paused for %v", d)
		}
	})
}

// blockFor blocks a key for d and checks its takes. It returns false if the block may have
// ended before the checks.
func blockFor(t *testing.T, s quotastore.Store, key string, r quotastore.Rule, d time.Duration) bool {
	set := func(d time.Duration) { require.NoError(t, s.Block(context.Background(), key, time.Now().Add(d))) }
	take(t, s, key, 1, 1, r)
	set(-time.Hour)
	want(t, take(t, s, key, 0, 0, r), true, 0, 4)
	began := time.Now()
	set(d)
	set(d / 3) // the latest counts
	blocked, asked, back := take(t, s, key, 1, 1, r), take(t, s, key, 0, 0, r), take(t, s, key, -1, 0, r)
	if time.Since(began) >= d {
		return false
	}
	want(t, blocked, false, 0, 0)
	want(t, asked, true, 0, 0)
	want(t, back, true, -1, 0)
	require.LessOrEqual(t, blocked.RetryAfter, d+100*time.Millisecond)
	require.GreaterOrEqual(t, blocked.ResetAfter, blocked.RetryAfter)
	pass(blocked.RetryAfter)
	want(t, take(t, s, key, 5, 5, r), true, 5, 0)
	return true
}

func invalid(t *testing.T, s quotastore.Store) {
	for name, r := range map[string]quotastore.Rule{
		"zero": {}, "no limit": {Window: time.Second}, "no window": {Limit: 1}, "negative limit": {Limit: -1, Window: time.Second},
		"negative window": {Limit: 1, Window: -1}, "negative burst": {Limit: 1, Window: 1, Burst: -1},
		"huge": {Limit: math.MaxInt, Window: time.Second}, "endless": {Limit: 1, Window: math.MaxInt64},
	} {
		result, err := s.Take(context.Background(), t.Name(), 1, 1, r)
		assert.True(t, err != nil && !result.OK, "%s: %+v", name, result)
	}
	each(t, 5, time.Hour, func(t *testing.T, r quotastore.Rule) {
		result, err := s.Take(context.Background(), t.Name(), 6, 6, r)
		assert.Equal(t, quotastore.ErrExceedsBurst, err, "it must not be wrapped")
		assert.False(t, result.OK, "more than Capacity")
		want(t, take(t, s, t.Name(), 6, 5, r), true, 5, 0)
	})
}

func canceled(t *testing.T, s quotastore.Store) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r := quotastore.Rule{Limit: 1, Window: time.Hour}
	result, err := s.Take(ctx, t.Name(), 1, 1, r)
	assert.True(t, err != nil && !result.OK, "%+v", result)
	assert.Error(t, s.Block(ctx, t.Name(), time.Now().Add(time.Hour)))
	want(t, take(t, s, t.Name(), 1, 1, r), true, 1, 0)
}

// exact checks that concurrent takes get exactly the limit (A5).
func exact(t *testing.T, s quotastore.Store) {
	each(t, 100, time.Hour, func(t *testing.T, r quotastore.Rule) {
		key, began := t.Name(), time.Now()
		var taken, failed atomic.Int64
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				for range 5 {
					result, err := s.Take(context.Background(), key, 1, 1, r)
					if err != nil {
						failed.Add(1)
					}
					taken.Add(int64(result.Allowed))
				}
			})
		}
		all.Wait()
		most := int64(100 + time.Since(began)/(36*time.Second))
		require.Zero(t, failed.Load(), "errors")
		require.True(t, taken.Load() >= 100 && taken.Load() <= most, "got %d units, want 100", taken.Load())
	})
}

// obeyed checks that a client which follows Remaining and ResetAfter, and shares its key
// with no other client, is never rejected (A3).
func obeyed(t *testing.T, s quotastore.Store) {
	each(t, 20, 200*time.Millisecond, func(t *testing.T, r quotastore.Rule) {
		var got quotastore.Result
		for n := range 60 {
			if n > 0 && got.Remaining == 0 {
				pass(got.ResetAfter)
			}
			got = take(t, s, t.Name(), 1, 1, r)
			require.True(t, got.OK, "take %d was rejected: %+v", n, got)
		}
	})
}

// steady checks that over several windows no more is taken than the rule allows.
func steady(t *testing.T, s quotastore.Store) {
	const windows = 6
	window := 100 * time.Millisecond
	each(t, 50, window, func(t *testing.T, r quotastore.Rule) {
		began, taken := time.Now(), 0
		for time.Since(began) < windows*window {
			if result := take(t, s, t.Name(), 1, 1, r); result.OK {
				taken++
			} else {
				pass(result.RetryAfter)
			}
		}
		most := 50 + int(50*(time.Since(began)/time.Microsecond+1)/(window/time.Microsecond))
		require.LessOrEqual(t, taken, most)
	})
}
