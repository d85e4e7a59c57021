package latency

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestQuantile(t *testing.T) {
	type answers struct {
		at, took time.Duration
		n        int
	}
	for _, tt := range []struct {
		name    string
		answers []answers
		at      time.Duration
		q       float64
		want    time.Duration // to within a third above
		samples int
	}{
		{name: "nothing known", q: 0.5},
		{name: "one", answers: []answers{{0, 20 * time.Millisecond, 1}}, q: 0.95, want: 20 * time.Millisecond, samples: 1},
		{name: "the slow ones are beyond the quantile", answers: []answers{{0, 20 * time.Millisecond, 96}, {0, time.Second, 4}}, q: 0.95, want: 20 * time.Millisecond, samples: 100},
		{name: "and below a higher one", answers: []answers{{0, 20 * time.Millisecond, 96}, {0, time.Second, 4}}, q: 0.97, want: time.Second, samples: 100},
		{name: "the least", answers: []answers{{0, time.Millisecond, 1}, {0, time.Second, 9}}, q: -1, want: time.Millisecond, samples: 10},
		{name: "the most", answers: []answers{{0, time.Millisecond, 9}, {0, time.Second, 1}}, q: 7, want: time.Second, samples: 10},
		{name: "NaN is the most", answers: []answers{{0, time.Millisecond, 9}, {0, time.Second, 1}}, q: math.NaN(), want: time.Second, samples: 10},
		{name: "45 s later it is known", answers: []answers{{0, time.Second, 3}}, at: 59 * time.Second, q: 0.5, want: time.Second, samples: 3},
		{name: "a minute later it is not", answers: []answers{{0, time.Second, 3}}, at: time.Minute},
		{name: "a window that is used again", answers: []answers{{0, time.Second, 3}, {time.Minute, 2 * time.Second, 1}}, at: time.Minute, q: 0, want: 2 * time.Second, samples: 1},
		{name: "an answer that is a minute late", answers: []answers{{time.Minute, time.Second, 1}, {0, 2 * time.Second, 5}}, at: time.Minute, q: 1, want: time.Second, samples: 1},
		{name: "before the origin", answers: []answers{{-time.Hour, time.Second, 1}}, q: 0.5, want: time.Second, samples: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var r Window
			for _, a := range tt.answers {
				for range a.n {
					r.Add(a.at, a.took)
				}
			}
			got, samples := r.Quantile(tt.at, tt.q)
			require.Equal(t, tt.samples, samples)
			require.GreaterOrEqual(t, got, tt.want)
			require.LessOrEqual(t, float64(got), 1.31*float64(tt.want))
		})
	}
}

// Several at once are what each is by itself.
func TestQuantiles(t *testing.T) {
	var r Window
	for range 1000 {
		r.Add(0, time.Duration(rand.ExpFloat64()*float64(time.Second)))
	}
	h := r.Late(0)
	var took [4]time.Duration
	require.Equal(t, 1000, h.Quantiles(Share{-1, &took[0]}, Share{0.5, &took[1]}, Share{0.5, &took[2]}, Share{2, &took[3]}))
	for i, q := range []float64{-1, 0.5, 0.5, 2} {
		want, _ := r.Quantile(0, q)
		require.Equal(t, want, took[i])
	}
	require.True(t, slices.IsSorted(took[:]))
	require.Zero(t, (&Histogram{}).Quantiles(Share{0.5, &took[0]}))
}

func TestBuckets(t *testing.T) {
	for _, took := range []time.Duration{math.MinInt64, -1, 0, 1, 1 << lowest, math.MaxInt64} {
		require.NotPanics(t, func() { bucketOf(took) })
	}
	for range 10_000 {
		took := time.Duration(math.Exp2(10 + 34*rand.Float64()))
		b := bucketOf(took)
		if b < buckets-1 {
			require.LessOrEqual(t, took, end(b))
		}
		if b > 0 {
			require.Greater(t, took, end(b-1))
		}
	}
	require.True(t, slices.IsSorted(ends[:]))
	require.Greater(t, end(buckets-2), 10*time.Minute)
}

func TestRecordIsAKilobyte(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(Window{}), uintptr(1<<10+64))
}

// TestRecordStress checks that a window that is ready loses no sample.
func TestRecordStress(t *testing.T) {
	var r Window
	const goroutines, each = 16, 2000
	r.Add(20*time.Second, time.Millisecond) // makes the window ready: samples in between may be lost
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for range each {
				r.Add(20*time.Second, time.Millisecond)
				r.Quantile(20*time.Second, 0.5)
			}
		})
	}
	wg.Wait()
	_, samples := r.Quantile(20*time.Second, 0.5)
	require.Equal(t, goroutines*each+1, samples)
}

func BenchmarkAdd(b *testing.B) {
	var r Window
	b.ReportAllocs()
	for b.Loop() {
		r.Add(time.Second, 23*time.Millisecond)
	}
}

func BenchmarkQuantile(b *testing.B) {
	var r Window
	r.Add(time.Second, 23*time.Millisecond)
	b.ReportAllocs()
	for b.Loop() {
		r.Quantile(time.Second, 0.95)
	}
}
