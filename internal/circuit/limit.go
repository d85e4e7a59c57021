package circuit

import (
	"sync"
	"sync/atomic"
	"time"
)

// limit is how many requests may be in flight to a scope whose circuit has closed after
// slow failures (slow start). All requests at once would fill the server's queue again.
// The limit grows as responses succeed, and shrinks when too many fail, like TCP's
// congestion window. Below one it is a pause after each request: a limit of a third is one
// request, and a pause twice as long as it took.
//
// A limit ends when it rejected nothing for a Window, or was not cut for six.
type slowStart struct {
	rules    *Rules
	baseline time.Duration // latency before the trouble; 0: unknown
	over     atomic.Bool   // it is of no more use, and never will be

	mu             sync.Mutex
	size           float64       // of requests in flight
	inFlight       int           // requests that were admitted under it
	slowestFailure time.Duration // latency of the slowest failure
	entered        time.Time     // when the last one was admitted
	loaded         time.Time     // when half of the limit was last in flight
	paused         time.Time     // nobody is admitted until then
	quiet          time.Time     // since when nothing was refused, and nothing has failed
	cut            time.Time     // when the limit was last cut
	results        float64       // since then, the recent ones
	failures       float64
}

const (
	limitStart  = 0.25 // the limit at first
	limitMin    = 0.125
	limitCut    = 0.25 // of what was in flight is left by a cut
	limitBad    = 0.2  // share of failures that calls for one
	limitEnough = 20   // results that tell it, at most
	limitCalm   = 6    // Windows without a cut that end it

	// limitPatience is the least time for which requests in flight keep others
	// out, if failures take that long.
	minMaxWait = time.Second

	// slowFailure is how long a failure must take to be one of a long queue. No
	// queue is so short that this is nothing, and no refusal takes so long.
	slowFailure = 100 * time.Millisecond
)

// slowLeast is the least that a slow failure takes, by itself and beside the
// answers.
func minSlow(typical time.Duration) time.Duration { return max(slowFailure, 2*typical) }

// newLimit returns the limit of a circuit that closes after trouble whose slowest
// failure took worst, with an answer that took so long. It is nil where the
// failures were not slow, by themselves or beside the answers: that server has
// failed, but not for want of time.
func newSlowStart(rules *Rules, typical, worst, took time.Duration, now time.Time) *slowStart {
	if rules.Static || worst < max(minSlow(typical), took) {
		return nil
	}
	return &slowStart{rules: rules, baseline: typical, slowestFailure: worst, size: limitStart, quiet: now, cut: now}
}

// works reports whether requests have to be admitted.
func (l *slowStart) works() bool { return l != nil && !l.over.Load() }

// admit asks whether a request may be sent. If so, done must be called when it is
// through.
func (l *slowStart) admit(now time.Time) (notBefore time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.expire(now) {
		return time.Time{}, true
	}
	switch {
	case now.Before(l.paused):
		l.quiet = now
		return l.paused, false
	case l.inFlight > 0 && float64(l.inFlight+1) > l.size && now.Sub(l.entered) < l.maxWait():
		// After that long one more may go: those in flight may never come back.
		l.quiet = now
		return now.Add(min(l.entered.Add(l.maxWait()).Sub(now), probeAnswer)), false
	}
	l.inFlight++
	l.entered = now
	if float64(l.inFlight) >= l.size/2 {
		l.loaded = now
	}
	return time.Time{}, true
}

// patience is how long those in flight keep others out. A timeout may be half a
// minute, and so may an answer that is no sign of trouble, of a long poll say.
func (l *slowStart) maxWait() time.Duration {
	return min(l.slowestFailure, max(minMaxWait, l.slowestFailure/8))
}

// rest ends the limit where it is of no more use.
func (l *slowStart) expire(now time.Time) bool {
	if now.Sub(l.quiet) <= l.rules.Window && now.Sub(l.cut) <= limitCalm*l.rules.Window {
		return false
	}
	l.over.Store(true)
	return true
}

// refuses is until when nobody is admitted, if that is after the time at.
func (l *slowStart) refuses(at time.Time) (notBefore time.Time, refuses bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.paused, at.Before(l.paused)
}

// now is the limit, and until when nobody is admitted: the zero time if somebody is.
func (l *slowStart) now(now time.Time) (size float64, notBefore time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.paused) {
		notBefore = l.paused
	}
	return l.size, notBefore
}

// done tells what came of a request that was admitted.
func (l *slowStart) done(sent, now time.Time, outcome Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	inFlight, took := float64(l.inFlight), now.Sub(sent)
	l.inFlight--
	most := l.rules.MaxCooldown
	switch {
	case outcome == None:
		return
	case outcome == Failure:
		l.quiet = now
		l.slowestFailure = max(l.slowestFailure, took)
		l.shrink(sent, now, inFlight)
	case l.quick(took):
		l.count(0)
		l.grow(sent, now)
		return
	default:
		l.count(0)
		l.grow(sent, now)
		most = min(most, l.rules.Window/2) // it was slow, but it was an answer
	}
	if l.size < 1 {
		pause := float64(took) * (1/l.size - 1)
		l.paused = now.Add(time.Duration(min(pause, float64(most))))
	}
}

// quick reports whether an answer came as fast as before the trouble: nothing
// stands in the server's queue.
func (l *slowStart) quick(took time.Duration) bool {
	if l.baseline > 0 {
		return took <= 2*l.baseline
	}
	return took <= l.slowestFailure/16
}

// grow raises the limit after a response. While responses are quick, it doubles with each
// round trip; then it grows by one with each, and no more once responses take half as long
// as the slowest failure.
func (l *slowStart) grow(sent, now time.Time) {
	took := now.Sub(sent)
	quick, slow := l.quick(took), took >= l.slowestFailure/2
	switch {
	case l.size < 1 && quick:
		l.size = min(l.size+0.25, 1)
	case l.size < 1 && !slow:
		l.size = min(l.size+0.02, 1)
	case l.size < 1 || l.loaded.Before(sent): // the limit was not reached
	case quick:
		l.size++
	case !slow:
		l.size += 1 / l.size
	}
}

// shrink cuts the limit after a failure, if many fail of those that were sent
// under it: those that were sent under the one before are no news.
func (l *slowStart) shrink(sent, now time.Time, inFlight float64) {
	if sent.Before(l.cut) {
		return
	}
	l.count(1)
	if l.failures < limitBad*l.results || l.results < min(inFlight/2, limitEnough) {
		return
	}
	l.size = max(limitCut*min(l.size, inFlight), limitMin)
	l.cut, l.results, l.failures = now, 0, 0
}

// count counts a result, and forgets half of them all when there are enough.
func (l *slowStart) count(failures float64) {
	l.results++
	l.failures += failures
	if l.results > max(limitEnough, 2*l.size) {
		l.results /= 2
		l.failures /= 2
	}
}
