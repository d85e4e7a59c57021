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

func TestWindow_quantile(t *testing.T) {
	type responses struct {
		at, took time.Duration
		n        int
	}
	for _, tt := range []struct {
		name      string
		responses []responses
		at        time.Duration
		q         float64
		want      time.Duration // to within a third above
		samples   int
	}{
		{name: "no samples", q: 0.5},
		{name: "one", responses: []responses{{0, 20 * time.Millisecond, 1}}, q: 0.95, want: 20 * time.Millisecond, samples: 1},
		{name: "the slow ones are above the quantile", responses: []responses{{0, 20 * time.Millisecond, 96}, {0, time.Second, 4}}, q: 0.95, want: 20 * time.Millisecond, samples: 100},
		{name: "and below a higher one", responses: []responses{{0, 20 * time.Millisecond, 96}, {0, time.Second, 4}}, q: 0.97, want: time.Second, samples: 100},
		{name: "below 0: the minimum", responses: []responses{{0, time.Millisecond, 1}, {0, time.Second, 9}}, q: -1, want: time.Millisecond, samples: 10},
		{name: "above 1: the maximum", responses: []responses{{0, time.Millisecond, 9}, {0, time.Second, 1}}, q: 7, want: time.Second, samples: 10},
		{name: "NaN: the maximum", responses: []responses{{0, time.Millisecond, 9}, {0, time.Second, 1}}, q: math.NaN(), want: time.Second, samples: 10},
		{name: "59 s later: still there", responses: []responses{{0, time.Second, 3}}, at: 59 * time.Second, q: 0.5, want: time.Second, samples: 3},
		{name: "a minute later: gone", responses: []responses{{0, time.Second, 3}}, at: time.Minute},
		{name: "a slot that is used again", responses: []responses{{0, time.Second, 3}, {time.Minute, 2 * time.Second, 1}}, at: time.Minute, q: 0, want: 2 * time.Second, samples: 1},
		{name: "a response that is a minute late", responses: []responses{{time.Minute, time.Second, 1}, {0, 2 * time.Second, 5}}, at: time.Minute, q: 1, want: time.Second, samples: 1},
		{name: "before the origin", responses: []responses{{-time.Hour, time.Second, 1}}, q: 0.5, want: time.Second, samples: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var r Window
			for _, a := range tt.responses {
				for range a.n {
					r.Add(a.at, a.took)
				}
			}
			got, samples := quantile(&r, tt.at, tt.q)
			require.Equal(t, tt.samples, samples)
			require.GreaterOrEqual(t, got, tt.want)
			require.LessOrEqual(t, float64(got), 1.31*float64(tt.want))
		})
	}
}

func TestBins(t *testing.T) {
	for _, took := range []time.Duration{math.MinInt64, -1, 0, 1, 1 << lowest, math.MaxInt64} {
		require.NotPanics(t, func() { binOf(took) })
	}
	for range 10_000 {
		took := time.Duration(math.Exp2(10 + 34*rand.Float64()))
		b := binOf(took)
		if b < bins-1 {
			require.LessOrEqual(t, took, ends[b])
		}
		if b > 0 {
			require.Greater(t, took, ends[b-1])
		}
	}
	require.True(t, slices.IsSorted(ends[:]))
	require.Greater(t, ends[bins-2], 10*time.Minute)
}

// The twentieth sample of a minute makes the histograms.
func TestWindow_takesAKilobyteWithManySamples(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(Window{}), uintptr(120))
	require.LessOrEqual(t, unsafe.Sizeof(histograms{}), uintptr(1<<10+64))
	var w Window
	at := time.Duration(0)
	for range 100 {
		at += 4 * time.Second
		w.Add(at, time.Millisecond)
	}
	require.Nil(t, w.many.Load(), "15 a minute")
	_, samples := quantile(&w, at, 0.5)
	require.Equal(t, 14, samples, "of 45 s and the current slot")
	for range 20 {
		w.Add(at, time.Second)
	}
	require.NotNil(t, w.many.Load())
	slow, samples := quantile(&w, at, 0.9)
	require.Equal(t, 34, samples)
	require.GreaterOrEqual(t, slow, time.Second)
	slow, samples = quantile(&w, at+time.Minute, 0.9)
	require.Zero(t, slow)
	require.Zero(t, samples)
}

// The first samples of many goroutines are all counted, except those that come while a slot is
// cleared.
func TestWindow_stressFewSamples(t *testing.T) {
	for range 200 {
		var w Window
		var wg sync.WaitGroup
		for range maxFew {
			wg.Go(func() { w.Add(time.Second, time.Millisecond) })
		}
		wg.Wait()
		_, samples := quantile(&w, time.Second, 0.5)
		require.Equal(t, maxFew, samples)
	}
}

// TestWindow_stress checks that a slot that is ready loses no sample.
func TestWindow_stress(t *testing.T) {
	var r Window
	const goroutines, each = 16, 2000
	for range maxFew + 1 { // the last makes the histogram's slot ready: samples in between may be lost
		r.Add(20*time.Second, time.Millisecond)
	}
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for range each {
				r.Add(20*time.Second, time.Millisecond)
				quantile(&r, 20*time.Second, 0.5)
			}
		})
	}
	wg.Wait()
	_, samples := quantile(&r, 20*time.Second, 0.5)
	require.Equal(t, maxFew+1+goroutines*each, samples)
}

// quantile returns a quantile of the Window, and the number of its samples.
func quantile(w *Window, at time.Duration, q float64) (time.Duration, int) {
	h := w.Histogram(at)
	return h.Quantile(q), h.Samples
}
