package latency

import (
	"math"
	"math/rand/v2"
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
