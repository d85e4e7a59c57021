package admission

import (
	"math"
	"time"
)

const (
	// A window of samples lasts at least windowTime and has as many samples as there are
	// slots, between minSamples and maxSamples. If the latency varies, a window is extended
	// up to longerWindow times, until its mean is known to precision.
	windowTime   = 100 * time.Millisecond
	minSamples   = 16
	maxSamples   = 100
	longerWindow = 4
	precision    = 0.1

	// zScore is the number of standard errors by which a mean must exceed a bound.
	zScore = 3

	// maxGrowth is the largest factor by which one window raises the limit. While a window
	// raises it by largeStep, a probe can wait.
	maxGrowth = 1.5
	largeStep = 1.1

	// saturatedRatio is the average number of requests in flight, as a ratio of the limit,
	// from which a window is saturated.
	saturatedRatio = 0.9

	// slowWindows is the number of saturated windows in a row after which a latency that is
	// too high is not a short peak any more. baselineProbeInterval is the number after which
	// the baseline is measured again in any case. An extended window counts as several.
	slowWindows           = 5
	baselineProbeInterval = 40

	// A probe reduces the number in flight to a ratio r. Then the throughput falls to r if
	// requests do not wait for each other, and not at all if they do. Below r^slowdownExponent
	// they do not wait; above sameThroughputRatio nothing was lost.
	slowdownExponent    = 0.5
	sameThroughputRatio = 0.9

	// minTolerance is the lowest accepted multiple of the baseline, for any client timeouts.
	minTolerance = 1.25

	// startupWindows is the number of windows that set the first baseline: in the first one,
	// quick requests finish first.
	startupWindows = 2
)

// limiter decides how many requests may be in flight. It has no clock and no lock.
//
// The baseline is the latency of requests that do not wait for each other. While the limit
// is reached and the latency is near the baseline, the limit grows. When all slots stay
// taken and the latency is too high, or the baseline is old, the limiter probes: it halves
// the limit. If half as many serve as much, the limit was too high. If they serve less, the
// latency is the new baseline, and the old limit returns.
//
// A load that leaves slots free on average is never probed, so it is never limited below
// the number that is in flight on average.
type limiter struct {
	min, max  float64
	tolerance float64 // negative: the limit does not change

	limit         float64
	inflight      int
	base          float64 // the baseline in seconds; zero means unknown
	clientTimeout float64 // the average time in seconds that clients allow; zero means unknown
	saturated     int     // saturated windows since the last probe, or since the limit was not reached
	startup       int     // windows seen, at most startupWindows

	windowStart time.Duration
	full        bool // the limit was reached in the window
	crowded     bool // a request of the window had too little time for the number in flight
	window      window
	late        float64 // requests of the window that missed their deadline; took is a lower bound

	probe struct {
		limit      float64 // the limit before the probe; zero means no probe is running
		throughput float64 // before the probe, per second
		flight     float64 // average number in flight before the probe
	}
}

// window has the latencies of a window's requests in seconds, and the number in flight.
type window struct {
	n, sum, squares, flight float64
	regular                 float64 // n when the window could end, had it been precise
}

func (w *window) add(seconds, flight float64) {
	w.n++
	w.sum += seconds
	w.squares += seconds * seconds
	w.flight += flight
}

// mean returns the mean latency and its possible error.
func (w *window) mean() (seconds, possibleError float64) {
	seconds = w.sum / w.n
	return seconds, zScore * math.Sqrt(max(w.squares/w.n-seconds*seconds, 0)/max(w.n-1, 1))
}

func newLimiter(initial, minLimit, maxLimit int, tolerance float64) limiter {
	return limiter{min: float64(minLimit), max: float64(maxLimit), tolerance: tolerance, limit: float64(initial)}
}

// slots returns how many requests may be in flight.
func (l *limiter) slots() int { return int(l.limit) }

// admit takes a slot if one is free.
func (l *limiter) admit() bool {
	if l.inflight >= l.slots() {
		l.full = true
		return false
	}
	l.inflight++
	return true
}

// observeTimeout notes how long a client waits for its response.
func (l *limiter) observeTimeout(seconds float64) {
	if l.clientTimeout == 0 {
		l.clientTimeout = seconds
	}
	l.clientTimeout += (seconds - l.clientTimeout) / 64
}

// sample is the latency of one request.
type sample struct {
	took   time.Duration // negative: the request says nothing about latency
	flight int           // how many were in flight when it got its slot, itself included
	late   bool          // its deadline passed before it was served
}

// seconds is Duration.Seconds without its divisions.
func seconds(d time.Duration) float64 { return float64(d) * 1e-9 }

// release returns a slot.
func (l *limiter) release(now time.Duration, s sample) {
	inflight := l.inflight
	l.inflight--
	if s.took < 0 || now < l.windowStart {
		return
	}
	if s.late {
		if seconds(s.took) <= l.tolerance*l.base {
			return // its deadline was short
		}
		l.late++
	}
	l.window.add(seconds(s.took), float64(inflight))
	enough := min(max(l.limit, minSamples), maxSamples)
	if l.window.n < enough || now-l.windowStart < windowTime {
		return
	}
	if l.window.regular == 0 {
		l.window.regular = l.window.n
	}
	limit, took := l.limit, seconds(s.took)
	if l.late > l.window.n/2 {
		l.judgeLate()
	} else {
		mean, possibleError := l.window.mean()
		precise := possibleError <= zScore*precision*mean || l.window.n >= longerWindow*enough
		if !precise && l.startup == startupWindows && !l.mayGrowEarly(mean) {
			return
		}
		took = mean
		l.judge(mean, possibleError, l.window.n/seconds(now-l.windowStart))
	}
	l.windowStart = now
	if l.limit != limit {
		// Requests that began before the change do not show its effect.
		l.windowStart += time.Duration(took * float64(time.Second))
	}
	l.full, l.crowded, l.late, l.window = false, false, 0, window{}
}

// judgeLate ends a window in which most requests missed their deadline. A handler may have
// stopped early, so their latency is unknown, but too high.
func (l *limiter) judgeLate() {
	l.probe.limit = 0
	if l.full && l.tolerance >= 0 {
		l.limit = max(l.limit/2, l.min)
	}
}

// judge ends a window with a known mean latency.
func (l *limiter) judge(mean, possibleError, throughput float64) {
	if l.startup < startupWindows {
		// A server may be overloaded from the start, so this baseline is due for a probe.
		l.startup++
		l.base, l.saturated = mean, baselineProbeInterval
		return
	}
	l.base = min(l.base, mean+possibleError)
	if l.tolerance < 0 {
		return
	}
	if !l.isSaturated() {
		l.endSaturation(mean)
		return
	}
	l.saturated += int(l.window.n / l.window.regular)
	if l.probe.limit > 0 {
		if l.compare(mean, throughput) {
			l.probeBaseline(mean, throughput) // until a lower limit serves less
		}
		return
	}
	before := l.limit
	l.grow(mean)
	tooSlow := mean-possibleError > l.healthy() && l.saturated > slowWindows
	if tooSlow || l.saturated > baselineProbeInterval && l.limit < largeStep*before {
		l.limit = before
		l.probeBaseline(mean, throughput)
	}
}

// isSaturated reports whether nearly all slots were taken during the window, or as many as
// deadlines allowed.
func (l *limiter) isSaturated() bool {
	return l.crowded || l.full && l.window.flight > saturatedRatio*float64(l.slots())*l.window.n
}

// endSaturation ends a window in which slots were free on average. There is nothing to
// probe.
func (l *limiter) endSaturation(mean float64) {
	if !l.full {
		if l.saturated >= baselineProbeInterval {
			l.base = mean // instead of a probe that was due
		}
		l.saturated = 0
	}
	l.limit = max(l.limit, l.probe.limit)
	l.probe.limit = 0
	l.grow(mean)
}

// mayGrow reports whether the limit is too low: it was reached, and the latency is near the
// baseline.
func (l *limiter) mayGrow(mean float64) bool {
	return l.full && l.probe.limit == 0 && mean < (l.base+l.healthy())/2
}

// mayGrowEarly is mayGrow for a window with an imprecise mean. After many such windows, a
// mean above the baseline would be too low by chance once, and the limit would drift.
func (l *limiter) mayGrowEarly(mean float64) bool {
	return l.mayGrow(mean) && (mean <= l.base || l.saturated >= baselineProbeInterval)
}

// grow raises the limit if it is too low.
func (l *limiter) grow(mean float64) {
	if l.mayGrow(mean) {
		l.limit = min(l.limit*min((l.base+l.healthy())/2/mean, maxGrowth), l.max)
	}
}

// healthy returns the highest latency that is not too high. Requests should spend at most
// half of their clients' timeout in the handler, because only the queue knows priorities.
func (l *limiter) healthy() float64 {
	healthy := l.tolerance * l.base
	if l.clientTimeout > 0 {
		healthy = min(healthy, max(l.clientTimeout/2, minTolerance*l.base))
	}
	return healthy
}

// probeBaseline halves the limit for the next window.
func (l *limiter) probeBaseline(mean, throughput float64) {
	if l.limit <= l.min {
		l.setBaseline(mean) // a lower limit is not allowed
		return
	}
	l.probe.limit, l.probe.throughput, l.probe.flight = l.limit, throughput, l.window.flight/l.window.n
	l.limit = max(l.limit/2, l.min)
}

// compare ends a probe. It reports whether the lower limit serves as much.
func (l *limiter) compare(mean, throughput float64) bool {
	flight, served := l.window.flight/l.window.n/l.probe.flight, throughput/l.probe.throughput
	before := l.probe.limit
	l.probe.limit = 0
	switch {
	case served < math.Pow(flight, slowdownExponent):
		l.setBaseline(mean)
		l.limit = before
	case served < sameThroughputRatio:
		l.setBaseline(mean)
		l.limit = max(l.limit, before*served)
	default:
		l.base = min(l.base, mean)
		return true
	}
	return false
}

// setBaseline sets a baseline that a probe has confirmed.
func (l *limiter) setBaseline(mean float64) { l.base, l.saturated = mean, 0 }
