package latency

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// scope has what a Transport knows of the latencies of a scope.
type scope struct {
	Window
	Usual
	InFlight
}

func (s *scope) answer(at, took time.Duration) {
	s.Add(at, took)
	s.Follow(at, &s.Window)
}

func (s *scope) slow(at time.Duration) bool {
	recent := s.Histogram(at)
	return s.IsSlow(&recent, s.IsOld(s.Age(at), s.Count()))
}

// call is a request of a simulated client.
type call struct{ start, took time.Duration }

// run executes calls in the order of their starts, and returns how many seconds the scope was slow
// after a time.
func (s *scope) run(calls []call, end, after time.Duration) (slow int) {
	var flying []call
	for at := time.Duration(0); at < end; at += 100 * time.Millisecond {
		for len(calls) > 0 && calls[0].start <= at {
			flying, calls = append(flying, calls[0]), calls[1:]
			s.Begin(flying[len(flying)-1].start)
		}
		kept := flying[:0]
		for _, c := range flying {
			if c.start+c.took > at {
				kept = append(kept, c)
				continue
			}
			s.End(c.start)
			s.answer(c.start+c.took, c.took)
		}
		if flying = kept; at%time.Second == 0 && at >= after && s.slow(at) {
			slow++
		}
	}
	return slow
}

func lognormal(r *rand.Rand, median time.Duration, sigma float64) time.Duration {
	return time.Duration(float64(median) * math.Exp(sigma*r.NormFloat64()))
}

// evenly returns calls at a pace with these latencies.
func evenly(end, every time.Duration, took func(at time.Duration) time.Duration) (calls []call) {
	for at := time.Duration(0); at < end; at += every {
		calls = append(calls, call{at, took(at)})
	}
	return calls
}

// T19: noise of a healthy hour is not slow; a server that is slow is, soon and as long as it is.
func TestUsual(t *testing.T) {
	const ms, s, hour = time.Millisecond, time.Second, time.Hour
	const onset = 10 * time.Minute
	r := rand.New(rand.NewPCG(1, 2))
	from := func(usual, then time.Duration, sigma float64) func(time.Duration) time.Duration {
		return func(at time.Duration) time.Duration {
			if at < onset {
				return lognormal(r, usual, sigma)
			}
			return lognormal(r, then, sigma)
		}
	}
	for _, row := range []struct {
		name  string
		calls []call
		end   time.Duration
		by    time.Duration // it is slow in 95 % of the time from onset + by to the end; zero: never
	}{
		{"10 calls a second, lognormal: not slow", evenly(hour, 100*ms, from(150*ms, 150*ms, 1)), hour, 0},
		{"a call in 10 s, lognormal: not slow", evenly(6*hour, 10*s, from(200*ms, 200*ms, 1)), 6 * hour, 0},
		{"one of 200 takes 8 s: not slow", evenly(hour, 100*ms, func(time.Duration) time.Duration {
			if r.IntN(200) == 0 {
				return 8 * s
			}
			return lognormal(r, 40*ms, 0.5)
		}), hour, 0},
		{"a burst of 300 that queues, in each minute: not slow", func() (all []call) {
			for _, c := range evenly(hour, 200*ms, from(40*ms, 40*ms, 1)) {
				all = append(all, c)
				for i := range 300 {
					if c.start%time.Minute == 0 {
						all = append(all, call{c.start, time.Duration(i/20)*40*ms + lognormal(r, 40*ms, 1)})
					}
				}
			}
			return all
		}(), hour, 0},
		{"a deploy, cold for 5 s in each minute: not slow", evenly(hour, 100*ms, func(at time.Duration) time.Duration {
			if at%time.Minute > 55*s {
				return lognormal(r, 1500*ms, 0.5)
			}
			return lognormal(r, 30*ms, 1)
		}), hour, 0},
		{"long polls among quick calls: not slow", evenly(hour, 50*ms, func(at time.Duration) time.Duration {
			if at%(5*s) == 0 {
				return 20 * s
			}
			return lognormal(r, 40*ms, 0.5)
		}), hour, 0},
		{"a process that starts with cold connections: not slow", evenly(hour, 100*ms, func(at time.Duration) time.Duration {
			return lognormal(r, 40*ms+3*s/(1+at/(10*s)), 0.3)
		}), hour, 0},
		{"twice as slow: not slow", evenly(hour, 100*ms, from(400*ms, 800*ms, 0.5)), hour, 0},
		{"40 ms, then 2.1 s: slow after half a minute, for 20 min", evenly(30*time.Minute, 100*ms, from(40*ms, 2100*ms, 0.3)), 30 * time.Minute, 40 * s},
		{"40 ms, then 20 s: slow after 12 s, by the age of attempts", evenly(30*time.Minute, 100*ms, from(40*ms, 20*s, 0.1)), 30 * time.Minute, 12 * s},
		{"no response any more: slow after 15 s", evenly(30*time.Minute, 100*ms, from(300*ms, hour, 0)), 30 * time.Minute, 15 * s},
		{"a call in 10 s, then 30 s: slow", evenly(30*time.Minute, 10*s, from(200*ms, 30*s, 0.3)), 30 * time.Minute, 2 * time.Minute},
	} {
		t.Run(row.name, func(t *testing.T) {
			var state scope
			if row.by == 0 {
				require.Zero(t, state.run(row.calls, row.end, time.Minute))
				return
			}
			want := (row.end - onset - row.by).Seconds()
			require.GreaterOrEqual(t, float64(state.run(row.calls, row.end, onset+row.by)), 0.95*want)
		})
	}
}

// The usual latency adapts to a change that stays: after an hour it is the usual one.
func TestUsual_adapts(t *testing.T) {
	var state scope
	for at := time.Duration(0); at < 3*time.Hour; at += time.Second {
		took := 40 * time.Millisecond
		if at > time.Hour {
			took = 2 * time.Second
		}
		state.answer(at, took)
	}
	require.False(t, state.slow(3*time.Hour))
	p50, p99, slowest := state.Get()
	require.InDelta(t, 2, p50.Seconds(), 0.7)
	require.InDelta(t, 2, p99.Seconds(), 0.7)
	require.Equal(t, 2*time.Second, slowest)
}

// The slowest sample bounds the quantiles, which are the ends of bins.
func TestHistogram_Slowest(t *testing.T) {
	var w Window
	require.Zero(t, new(Histogram).Slowest)
	w.Add(time.Second, 43*time.Millisecond)
	w.Add(20*time.Second, 20*time.Millisecond)
	h := w.Histogram(50 * time.Second)
	require.Equal(t, 43*time.Millisecond, h.Slowest)
	require.Greater(t, h.Quantile(1), h.Slowest)
	h = w.Histogram(61 * time.Second)
	require.Equal(t, 20*time.Millisecond, h.Slowest, "that of the first slot has expired")
	h = w.Histogram(10 * time.Minute)
	require.Zero(t, h.Slowest)
}

// The mean age is exact for any starts, also after years, and for many goroutines.
func TestInFlight(t *testing.T) {
	t.Parallel()
	const years = 10 * 365 * 24 * time.Hour
	for _, origin := range []time.Duration{0, years} {
		var f InFlight
		var begin, end sync.WaitGroup
		for i := range 1000 {
			begin.Go(func() { f.Begin(origin + time.Duration(i)*time.Millisecond) })
		}
		begin.Wait()
		require.Equal(t, 1000, f.Count())
		require.InDelta(t, 1.5, f.Age(origin+2*time.Second).Seconds(), 0.001, "the mean of 1 to 2 s")
		require.Zero(t, f.Age(origin), "a clock that was read earlier")
		for i := range 1000 {
			end.Go(func() { f.End(origin + time.Duration(i)*time.Millisecond) })
		}
		end.Wait()
		require.Zero(t, f.Count())
		require.Zero(t, f.Age(origin+time.Hour))
	}
}

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
		{name: "a clock that goes back", responses: []responses{{time.Minute, time.Second, 1}, {0, 2 * time.Second, 5}}, at: time.Minute, q: 1, want: 2 * time.Second, samples: 6},
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

// TestWindow_stress checks that no sample is lost.
func TestWindow_stress(t *testing.T) {
	var r Window
	const goroutines, each = 16, 2000
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
	require.Equal(t, goroutines*each, samples)
}

// quantile returns a quantile of the Window, and the number of its samples.
func quantile(w *Window, at time.Duration, q float64) (time.Duration, int) {
	h := w.Histogram(at)
	return h.Quantile(q), h.Samples
}

// A second of slow responses before an outage must not make its failures look usual. Ten seconds of them are the new baseline.
func TestMedian_follows(t *testing.T) {
	const before = 100 * time.Millisecond
	for _, tt := range []struct {
		name      string
		took, now time.Duration // later latency, and for how long
		every     time.Duration // between the responses
		min, max  time.Duration // of the result
	}{
		{"slow for a second: less than doubled", time.Minute, time.Second, time.Millisecond, 3 * before / 2, 2 * before},
		{"slow for ten seconds: hundreds of times", time.Minute, 10 * time.Second, time.Millisecond, 200 * before, time.Minute},
		{"a little slower for ten seconds: reached", before * 6 / 5, 10 * time.Second, time.Millisecond, before * 11 / 10, before * 13 / 10},
		{"quick for a second: about half", time.Millisecond, time.Second, time.Millisecond, before / 2, 3 * before / 5},
		{"quick for ten seconds: reached", time.Millisecond, 10 * time.Second, time.Millisecond, time.Millisecond * 9 / 10, time.Millisecond * 11 / 10},
		{"as before", before, 10 * time.Second, time.Millisecond, before, before},
		{"few and slow: each counts", time.Minute, 10 * time.Second, time.Second, 3 * before / 2, 2 * before},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var l Median
			require.Zero(t, l.Get(), "unknown")
			l.Follow(0, before)
			require.Equal(t, before, l.Get(), "the first sample")
			for at := 100 * time.Millisecond; at < 100*time.Millisecond+tt.now; at += tt.every {
				l.Follow(at, tt.took)
			}
			require.GreaterOrEqual(t, l.Get(), tt.min)
			require.LessOrEqual(t, l.Get(), tt.max)
		})
	}
	t.Run("a response without latency is known", func(t *testing.T) {
		var l Median
		l.Follow(0, 0)
		require.Positive(t, l.Get())
	})
}
