package latency

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

const ms = time.Millisecond

func usual() *Rules {
	return &Rules{Multiple: 2.5, Quantile: 0.99, Min: 250 * ms, MinSamples: 200}
}

// timeouts is an Adaptive with the latencies of its responses.
type timeouts struct {
	Adaptive

	latencies Window
}

func (a *timeouts) Responded(at, took time.Duration) { a.latencies.Add(at, took) }

func (a *timeouts) Timeout(at time.Duration, r *Rules) (time.Duration, bool) {
	return a.Adaptive.Timeout(at, &a.latencies, r)
}

// healthy returns timeouts with responses of 200 ms, all of the first second.
func healthy(responses int) *timeouts {
	a := new(timeouts)
	for range responses {
		a.Sent(time.Second)
		a.Responded(time.Second, 200*ms)
	}
	return a
}

func requireTimeout(t *testing.T, want time.Duration, a *timeouts, at time.Duration, r *Rules) {
	t.Helper()
	got, ok := a.Timeout(at, r)
	require.Equal(t, want > 0, ok, "%v", got)
	require.InDelta(t, want.Seconds(), got.Seconds(), want.Seconds()*0.14+1e-9)
}

func TestAdaptive_timeout(t *testing.T) {
	for _, tt := range []struct {
		name            string
		responses, late int // the late ones: timeouts after 500 ms
		rules           func(*Rules)
		at              time.Duration
		want            time.Duration // 0: none
	}{
		{name: "multiple of the quantile", responses: 200, want: 500 * ms},
		{name: "no samples", want: 0},
		{name: "too few samples", responses: 199, want: 0},
		{name: "timeouts are samples too", responses: 198, late: 2, want: 500 * ms},
		{name: "Min", responses: 200, rules: func(r *Rules) { r.Min = time.Second }, want: time.Second},
		{name: "less than a fiftieth are late: stuck", responses: 985, late: 15, want: 500 * ms},
		{name: "a fiftieth are late: stuck", responses: 980, late: 20, want: 500 * ms},
		{name: "more are late: slow, with twice their time", responses: 970, late: 30, want: 2500 * ms},
		{name: "all are late", late: 200, want: 2500 * ms},
		{name: "no overflow", responses: 200, rules: func(r *Rules) { r.Multiple = math.MaxFloat64 }, want: 1 << 62},
		{name: "samples of a minute ago", responses: 1000, at: time.Minute + time.Second, want: 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, r := healthy(tt.responses), usual()
			for range tt.late {
				a.TimedOut(time.Second, 500*ms)
			}
			if tt.rules != nil {
				tt.rules(r)
			}
			requireTimeout(t, tt.want, a, max(tt.at, time.Second), r)
		})
	}
}

// X2: whatever the latencies, a timeout never makes the next one shorter.
func TestAdaptive_timeoutsNeverShortenIt(t *testing.T) {
	for range 300 {
		a, r := new(timeouts), usual()
		r.Quantile = 0.5 + rand.Float64()/2
		for range 200 + rand.N(2000) {
			a.Responded(time.Second, time.Duration(rand.ExpFloat64()*float64(rand.N(time.Second))))
		}
		before, ok := a.Timeout(time.Second, r)
		require.True(t, ok)
		for range rand.N(100) {
			a.TimedOut(time.Second, before)
			now, _ := a.Timeout(time.Second, r)
			require.GreaterOrEqual(t, now, before)
			before = now
		}
	}
	a := new(timeouts)
	a.TimedOut(0, math.MaxInt64)
	a.TimedOut(0, -1)
	late := a.timeouts.Histogram(0)
	require.Equal(t, 2, late.Samples())
}

// The safety limit admits some, then none for a slot. Then the timeout is twice as long, and
// longer each time, until the latencies from before are forgotten.
func TestAdaptive_safetyLimit(t *testing.T) {
	admitted := func(a *timeouts, at time.Duration) (n int) {
		for n < 1000 && a.Admit(at) {
			n++
		}
		return n
	}
	for _, tt := range []struct {
		name       string
		sent, want int
	}{{"few", 10, 5}, {"none", 0, 5}, {"a thousand", 1000, 20}, {"ten thousand", 10_000, 200}} {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, admitted(healthy(tt.sent), time.Second))
		})
	}
	a, r, at := healthy(1000), usual(), time.Second
	requireTimeout(t, 500*ms, a, at, r)
	timeout := 500 * ms
	for range 3 {
		require.Positive(t, admitted(a, at))
		requireTimeout(t, 0, a, at+length-1, r)
		require.False(t, a.Admit(at+length-1))
		at += length
		timeout *= 2
		for range 1000 {
			a.Sent(at)
			a.Responded(at, 200*ms)
		}
		requireTimeout(t, timeout, a, at, r)
	}
	for range 1000 {
		a.Responded(at+slots*length, 200*ms)
	}
	requireTimeout(t, timeout/2, a, at+slots*length, r)
	for range 1000 {
		a.Responded(at+10*slots*length, 200*ms)
	}
	requireTimeout(t, 500*ms, a, at+10*slots*length, r)
}

// The safety limit is exact under concurrent use.
func TestAdaptive_safetyLimitStress(t *testing.T) {
	a := healthy(5000)
	var wg sync.WaitGroup
	var mu sync.Mutex
	admitted := 0
	for range 16 {
		wg.Go(func() {
			for range 100 {
				a.Timeout(time.Second, usual())
				if a.Admit(time.Second) {
					mu.Lock()
					admitted++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, 100, admitted)
}

func TestAdaptive_takesAKilobyte(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(Adaptive{}), uintptr(1<<10+300))
}

func BenchmarkTimeout(b *testing.B) {
	a, r := healthy(1000), usual()
	b.ReportAllocs()
	for b.Loop() {
		a.Timeout(time.Second, r)
	}
}
