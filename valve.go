package resilienthttp

import (
	"sync"
	"sync/atomic"
	"time"
)

// valve limits what a circuit lets through once it has closed again after slow
// failures, of a server with more work than it can do in time. To let everybody
// in at once would fill its queue again, and then nothing is answered in time
// although the server is busy all along; to refuse everybody would waste what it
// can do. So the valve looks for as much as the server can take, the way TCP
// looks for its window: it allows a number of requests in flight, raises it as
// answers come, and cuts it when they fail.
//
// A client with few requests has less than one in flight anyway. Below one, the
// limit is therefore kept by a pause after each request: a limit of a third is
// one request, and a pause twice as long as it took.
//
// A valve is of use until it had nothing to do for a Window; see rest.
type valve struct {
	rules   *breakerRules
	typical time.Duration // latency before the trouble; 0: unknown
	done    atomic.Bool   // it is of no more use, and never will be

	mu       sync.Mutex
	worst    time.Duration // latency of the slowest failure
	limit    float64       // of requests in flight
	flying   int
	entered  time.Time // when the last one was let in
	loaded   time.Time // when half of the limit was last in flight
	paused   time.Time // nobody enters until then
	quiet    time.Time // since when nothing was refused, and nothing has failed
	failed   time.Time // when something last did
	cut      time.Time // when the limit was last cut
	results  float64   // since then, the recent ones
	failures float64
}

const (
	valveStart  = 0.25 // the limit at first
	valveLeast  = 0.125
	valveCut    = 0.25 // of what was in flight is left by a cut
	valveBad    = 0.3  // share of failures that calls for one
	valveEnough = 20   // results that tell it, at most
	valveCalm   = 4    // Windows without a failure

	// valvePatience is the least time for which requests in flight keep others
	// out, if failures take that long.
	valvePatience = time.Second

	// valveSlow is how long a failure must take to be one of a long queue. No
	// queue is so short that this is nothing, and no refusal takes so long.
	valveSlow = 100 * time.Millisecond
)

// newValve returns the valve for a circuit that closes after trouble, whose
// slowest failure took worst, because of an answer that took so long. It is nil
// where the failures were not slow, by themselves or beside the answers: that
// server has failed, but not for want of time.
func newValve(rules *breakerRules, typical, worst, took time.Duration, now time.Time) *valve {
	if !rules.adaptive || worst < max(valveSlow, 2*typical, took) {
		return nil
	}
	return &valve{rules: rules, typical: typical, worst: worst, limit: valveStart, quiet: now, failed: now, cut: now}
}

// works reports whether requests have to enter.
func (v *valve) works() bool { return v != nil && !v.done.Load() }

// enter asks whether a request may be sent. If so, left must be called when it
// is through.
func (v *valve) enter(now time.Time) (notBefore time.Time, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.rest(now) {
		return time.Time{}, true
	}
	switch {
	case now.Before(v.paused):
		v.quiet = now
		return v.paused, false
	case v.flying > 0 && float64(v.flying+1) > v.limit && now.Sub(v.entered) < v.patience():
		// After that long one more may go: those in flight may never come back.
		v.quiet = now
		return sooner(v.entered.Add(v.patience()), now.Add(probeAnswer)), false
	}
	v.flying++
	v.entered = now
	if float64(v.flying) >= v.limit/2 {
		v.loaded = now
	}
	return time.Time{}, true
}

// patience is how long those in flight keep others out. A timeout may be half a
// minute, and so may an answer that is no sign of trouble, of a long poll say.
func (v *valve) patience() time.Duration { return min(v.worst, max(valvePatience, v.worst/8)) }

// rest ends the valve once it had nothing to do for a Window. A client whose
// calls come all at once, now and then, always gives it something to do, and with
// few answers in between it learns little: it also ends where nothing is in flight
// and nothing has failed for four.
func (v *valve) rest(now time.Time) bool {
	if now.Sub(v.quiet) <= v.rules.window && (v.flying > 0 || now.Sub(v.failed) <= valveCalm*v.rules.window) {
		return false
	}
	v.done.Store(true)
	return true
}

// wouldRefuse is until when nobody may enter, if that is after the time at.
func (v *valve) wouldRefuse(at time.Time) (notBefore time.Time, refuses bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if at.Before(v.paused) {
		return v.paused, true
	}
	return time.Time{}, false
}

// left tells what came of a request.
func (v *valve) left(sent, now time.Time, outcome breakerOutcome) {
	v.mu.Lock()
	defer v.mu.Unlock()
	flying, took := float64(v.flying), now.Sub(sent)
	v.flying--
	switch outcome {
	case outcomeNone:
		return
	case outcomeFailure:
		v.quiet, v.failed = now, now
		v.worst = max(v.worst, took)
		v.shrink(sent, now, flying)
	default:
		v.count(0)
		v.grow(sent, now)
	}
	if v.limit < 1 && (outcome == outcomeFailure || !v.quick(took)) {
		pause, most := float64(took)*(1/v.limit-1), v.rules.maxCooldown
		if outcome != outcomeFailure {
			most = min(most, v.rules.window/2) // it was slow, but it was an answer
		}
		v.paused = now.Add(time.Duration(min(pause, float64(most))))
	}
}

// quick reports whether an answer came as fast as before the trouble: nothing
// stands in the server's queue.
func (v *valve) quick(took time.Duration) bool {
	if v.typical > 0 {
		return took <= 2*v.typical
	}
	return took <= v.worst/16
}

// grow raises the limit after an answer. Where the server is not loaded, the
// limit doubles with each round; where it is, it grows by one with each, and the
// nearer the answers come to what has failed, the less. That would never find
// out that a server has become slower for good, so growth also gathers speed
// with the time that nothing has failed.
func (v *valve) grow(sent, now time.Time) {
	took := now.Sub(sent)
	calm := now.Sub(v.failed).Seconds() / (valveCalm * v.rules.window).Seconds()
	steady := calm * calm * calm
	if took < v.worst/2 {
		steady++
	}
	switch quick := v.quick(took); {
	case v.limit < 1 && quick:
		v.limit = min(v.limit+0.25, 1)
	case v.limit < 1:
		v.limit = min(v.limit+steady/50, 1)
	case v.loaded.Before(sent): // it was no limit
	case quick:
		v.limit++
	default:
		v.limit += steady / v.limit
	}
}

// shrink cuts the limit after a failure, if many fail of those that were sent
// under it: those that were sent under the one before are no news.
func (v *valve) shrink(sent, now time.Time, flying float64) {
	if sent.Before(v.cut) {
		return
	}
	v.count(1)
	if v.failures < valveBad*v.results || v.results < min(flying/2, valveEnough) {
		return
	}
	v.limit = max(valveCut*min(v.limit, flying), valveLeast)
	v.cut, v.results, v.failures = now, 0, 0
}

// count counts a result, and forgets half of them all when there are enough.
func (v *valve) count(failures float64) {
	v.results++
	v.failures += failures
	if v.results > max(valveEnough, 2*v.limit) {
		v.results /= 2
		v.failures /= 2
	}
}
