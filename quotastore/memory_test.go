package quotastore_test

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/quotastore"
)

// A5: 1,000 goroutines never take more than Burst + rate × time from a bucket that fills meanwhile,
// though they ask for far more.
func TestMemory_exactWithManyGoroutines(t *testing.T) {
	var store quotastore.Memory
	rule := quotastore.Rule{Limit: 100_000, Window: time.Second, Burst: 100}
	var taken atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for range 1000 {
		all.Go(func() {
			for range 200 {
				result, err := store.Take(context.Background(), "one", 3, 1, rule)
				if err == nil {
					taken.Add(int64(result.Allowed))
				}
				if result.Allowed == 3 {
					if back, err := store.Take(context.Background(), "one", -1, 0, rule); err == nil {
						taken.Add(int64(back.Allowed))
					}
				}
			}
		})
	}
	all.Wait()
	most := 100 + int64(time.Since(began)/(10*time.Microsecond)) + 1
	require.LessOrEqual(t, taken.Load(), most)
	require.Positive(t, taken.Load())
}

// A5: exact to the unit while no time passes.
func TestMemory_exactAtOneInstant(t *testing.T) {
	for _, sliding := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var store quotastore.Memory
			rule := quotastore.Rule{Limit: 1500, Window: time.Second, Sliding: sliding}
			for second := range 3 {
				var taken atomic.Int64
				var all sync.WaitGroup
				for range 1000 {
					all.Go(func() {
						for range 2 {
							result, _ := store.Take(t.Context(), "one", 1, 1, rule)
							taken.Add(int64(result.Allowed))
						}
					})
				}
				all.Wait()
				require.EqualValues(t, 1500, taken.Load(), "second %d", second)
				time.Sleep(time.Second)
			}
		})
	}
}

// A5: no more than MaxKeys keys are held.
func TestMemory_holdsMaxKeys(t *testing.T) {
	for _, most := range []int{1, 5, 100, 1000} {
		store := quotastore.Memory{MaxKeys: most}
		rule := quotastore.Rule{Limit: 10, Window: time.Hour}
		for n := range 5000 {
			_, err := store.Take(t.Context(), strconv.Itoa(n), 1, 1, rule)
			require.NoError(t, err)
		}
		require.LessOrEqual(t, store.Len(), most)
		require.GreaterOrEqual(t, store.Len(), most*3/4)
	}
}

// A5: the memory in use does not grow with a million keys.
func TestMemory_boundedWithMillionKeys(t *testing.T) {
	var store quotastore.Memory
	rule := quotastore.Rule{Limit: 10, Window: time.Hour}
	fill := func(from int) uint64 {
		for n := from; n < from+500_000; n++ {
			_, _ = store.Take(context.Background(), "key-"+strconv.Itoa(n), 1, 1, rule)
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	half := fill(0)
	whole := fill(500_000)
	require.Less(t, float64(whole), 1.1*float64(half))
	require.LessOrEqual(t, store.Len(), 65_536)
	require.Less(t, whole, uint64(64<<20))
}

// Keys with their whole quota are removed before the memory is full.
func TestMemory_removesWholeKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store quotastore.Memory
		rule := quotastore.Rule{Limit: 10, Window: time.Second}
		for n := range 20_000 {
			_, err := store.Take(t.Context(), strconv.Itoa(n), 1, 1, rule)
			require.NoError(t, err)
			time.Sleep(10 * time.Millisecond)
		}
		require.Less(t, store.Len(), 500)
	})
}

// After a change of the rule, the units that were taken count under the new one.
func TestMemory_ruleChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, sliding := range []bool{false, true} {
			var store quotastore.Memory
			take := func(limit, want int) quotastore.Result {
				result, err := store.Take(t.Context(), "k", want, min(want, 1), quotastore.Rule{Limit: limit, Window: time.Hour, Sliding: sliding})
				require.NoError(t, err)
				return result
			}
			take(100, 50)
			smaller := take(10, 1)
			require.False(t, smaller.OK)
			require.Zero(t, smaller.Remaining)
			require.LessOrEqual(t, smaller.RetryAfter, time.Hour)
			larger := take(1000, 1)
			require.True(t, larger.OK)
			require.GreaterOrEqual(t, larger.Remaining, 949)
		}
	})
}

// A Take allocates nothing.
func TestMemory_takeAllocations(t *testing.T) {
	var store quotastore.Memory
	for _, rule := range []quotastore.Rule{{Limit: 1 << 30, Window: time.Second}, {Limit: 1 << 30, Window: time.Second, Sliding: true}} {
		ctx := context.Background()
		_, err := store.Take(ctx, "key", 1, 1, rule)
		require.NoError(t, err)
		require.Zero(t, testing.AllocsPerRun(1000, func() { _, _ = store.Take(ctx, "key", 1, 1, rule) }))
	}
}
