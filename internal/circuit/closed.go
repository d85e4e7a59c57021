package circuit

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/hold"
	"github.com/resilienthttp/resilienthttp/internal/outcome"
	"github.com/resilienthttp/resilienthttp/internal/window"
)

// closed is a closed circuit until it opens. It admits all requests, except under slow
// start, and counts the results.
type closed struct {
	results   window.Window[results]
	failing   atomic.Bool               // no success since the streak began
	releasing atomic.Bool               // calls that have waited are being released
	pressed   atomic.Bool               // the last result since then was slow or a failure
	took      atomic.Int64              // latency of the last success; since then or under slow start, of a later result that took longer
	streak    failureStreak             // guarded by Circuit.mu
	answered  atomic.Int64              // when the last request that succeeded was sent, and a nanosecond: see lastAnswered
	slowStart atomic.Pointer[slowStart] // nil: none; *slowStart is guarded by Circuit.mu
}

// results are counted in a bucket of a window.
type results struct{ failures, successes atomic.Int32 }

// failureStreak describes the failures since the last success.
type failureStreak struct {
	attempts int           // attempts in the last Window
	timeouts int           // among these attempts
	sudden   int           // of them
	calls    int           // first attempts of calls in the whole streak
	since    time.Duration // time of the first of the attempts
	ratio    float64       // ratio of failures before the streak
	quickest time.Duration // lowest latency of the whole streak
	slowest  time.Duration // highest
	inFlight int           // other attempts in flight when it began
	routes   routes        // of the attempts
}

const (
	minStreak     = 5               // minimum attempts of a streak that opens the circuit
	minStreakTime = 2 * time.Second // of a streak of timeouts

	// A timeout of so many usual responses is sudden: a queue so long would have slowed down what is usual.
	suddenTimeout = 20

	// A streak of quick failures lasts at least as long as a usual response takes, because a server that rejects what it
	// cannot do still answers the others. maxQuickTime bounds that.
	maxQuickTime = 300 * time.Millisecond

	// maxStreakChance is the logarithm of one in a million. It is compared with the probability
	// of the streak, if attempts failed independently at the ratio of failures before the streak.
	maxStreakChance = -13.8
)

// overload reports whether a third of the failures were timeouts: the server may have too much work. A slow error shows none: a
// server that fails may take its time.
func (s *failureStreak) overload() bool { return 3*s.timeouts >= s.attempts }

// tally is a number of results and of their failures.
type tally struct{ results, failures int }

func (t tally) succeeded() bool { return t.results > t.failures }

func (s *closed) tally(rules *Rules, at time.Duration) (sum tally) {
	for _, n := range s.results.All(at, rules.Window, window.Buckets) {
		failures := int(n.failures.Load())
		sum.results, sum.failures = sum.results+failures+int(n.successes.Load()), sum.failures+failures
	}
	return sum
}

func (s *closed) resultsAt(rules *Rules, at time.Duration) *results {
	return s.results.At(at, rules.Window, window.Buckets)
}

// doneClosed records the result of an attempt that a closed circuit admitted. The circuit is locked if the
// attempt failed, or if slow start admitted it.
func (c *Circuit) doneClosed(p Permit, r Result, now time.Time) *Change {
	s := p.closed
	l := s.slowStart.Load()
	if l != nil && p.counted != nil {
		l.done(p.counted, now.Add(-r.Took), now, r.Server)
	}
	at := now.Sub(c.breaker.origin)
	releasing := s.releasing.Load()
	if releasing && r.Server != outcome.Silent {
		s.pressed.Store(r.Server == outcome.Fails || isSlow(c.baseline.Get(), r.Took))
	}
	held := releasing || l != nil
	if r.Server == outcome.Works || held && int64(r.Took) > s.took.Load() {
		s.took.Store(int64(r.Took))
	}
	switch r.Server {
	case outcome.Works:
		s.resultsAt(&c.breaker.rules, at).successes.Add(1)
		s.answered.Store(int64(at-r.Took) + 1)
		if s.failing.Load() {
			s.failing.Store(false)
		}
		// Otherwise the latency contains the queue.
		if !held {
			c.baseline.Follow(at, r.Took)
		}
	case outcome.Fails:
		return c.failed(s, r, now)
	case outcome.Silent, outcome.Rejects:
		// A rejection shows that the server is there, but not that it works.
	}
	return nil
}

// lastAnswered returns when the last request that succeeded was sent, since the origin. It is negative if there is none.
func (s *closed) lastAnswered() time.Duration { return time.Duration(s.answered.Load()) - 1 }

// failed counts a failure, and opens the circuit if there are too many. The circuit is locked.
func (c *Circuit) failed(s *closed, r Result, now time.Time) *Change {
	if c.closed.Load() != s {
		// The circuit has changed since the attempt was admitted, so its result speaks of an earlier time.
		return nil
	}
	rules, at, streak := &c.breaker.rules, now.Sub(c.breaker.origin), &s.streak
	s.resultsAt(rules, at).failures.Add(1)
	if answered := s.lastAnswered(); !rules.Static && at-r.Took < answered && answered <= at {
		// The server has answered a later request, so this failure is its own and not that of the server.
		return nil
	}
	sum := s.tally(rules, at)
	if !s.failing.Swap(true) {
		// That before this failure, with one more success and failure, because few results prove little.
		ratio := float64(sum.failures) / float64(sum.results+1)
		if sum.results <= minStreak && c.outage.ratio > 0 {
			ratio = min(ratio, c.outage.ratio) // it has just closed
		}
		*streak = failureStreak{since: at, ratio: ratio, inFlight: r.InFlight, quickest: r.Took}
	} else if at-streak.since > rules.Window {
		streak.attempts, streak.timeouts, streak.since = 0, 0, at
	}
	streak.attempts++
	streak.routes.add(r.Route)
	streak.quickest, streak.slowest = min(streak.quickest, r.Took), max(streak.slowest, r.Took)
	if r.TimeOut {
		streak.timeouts++
		if usual := c.baseline.Get(); usual > 0 && r.Took >= suddenTimeout*usual {
			streak.sudden++
		}
	}
	// A streak of retries of one call would say no more than that call.
	if !r.Retry {
		streak.calls++
	}
	if !c.tooMany(s, sum, r, at) {
		return nil
	}
	took := r.Took
	if !streak.overload() {
		took = 0 // without timeouts there is no queue
	}
	c.noteOutage(streak, sum, now)
	c.opening = &opening{opened: sum, quickest: streak.quickest, slowest: streak.slowest, failed: now, failing: streak.routes}
	c.opening.hold.Begin(now, rules.firstCooldown(took, c.outage.usual))
	// State shows the results that opened the circuit: those of the streak, if all results together would not have done so.
	if !rules.tooMany(sum.failures, sum.results, 0) {
		c.opening.opened = tally{streak.attempts, streak.attempts}
	}
	c.closed.Store(nil)
	return c.changed(Closed, Open, now)
}

// noteOutage notes what was usual before the failures that open the circuit. A circuit that closed less than a Window ago
// does not know it better than before.
func (c *Circuit) noteOutage(streak *failureStreak, sum tally, now time.Time) {
	o := &c.outage
	if o.usual == 0 || c.settled(now) {
		o.usual, o.ratio = c.interval(sum, now), streak.ratio
	}
	o.since, o.slow = c.breaker.origin.Add(streak.since), streak.overload()
}

// settled reports whether the circuit has not changed for a Window. It is locked.
func (c *Circuit) settled(now time.Time) bool { return now.Sub(c.since) >= c.breaker.rules.Window }

// interval returns the mean time between two results. The circuit is locked.
func (c *Circuit) interval(sum tally, now time.Time) time.Duration {
	return max(min(c.breaker.rules.Window, now.Sub(c.since))/time.Duration(sum.results), 1)
}

// tooMany reports whether the failure opens the circuit: because of MinRequests results as many are failures as FailureRatio says
// (by default all), or by the streak. A streak opens it if chance does not explain it, and not all are retries of one call. So a
// client with a call a second need not wait for MinRequests results, and of many calls at once few use up retries. Attempts in flight count as successes, because many
// servers reject at once and answer late. Of a streak older than an answer takes, there must be fewer than failures, and those
// from before do not count: they may be long polls. In a streak of timeouts they hang too.
func (c *Circuit) tooMany(s *closed, sum tally, r Result, at time.Duration) bool {
	rules, streak := &c.breaker.rules, &s.streak
	if !(rules.FailureRatio > 0) { // or NaN
		return false
	}
	enough := sum.results >= rules.MinRequests
	if rules.Static {
		return enough && rules.tooMany(sum.failures, sum.results, 0)
	}
	if enough && rules.tooMany(sum.failures, sum.results, r.InFlight) {
		return true
	}
	usual, lasted, pending := c.baseline.Get(), at-streak.since, max(r.InFlight-streak.inFlight, 0)
	few, least := streak.attempts < r.InFlight || !rules.tooMany(streak.attempts, streak.attempts, pending), min(usual, maxQuickTime, rules.Window/2)
	switch {
	case streak.overload():
		// What is in flight hangs too, so it does not count as successes.
		few, least = false, minStreakTime
	case isSlow(max(usual, time.Duration(s.took.Load())), lasted): // some of those that were sent since hang
		few = streak.attempts < pending
	}
	// As long as several results take: some would be successes.
	if 3*streak.sudden >= streak.attempts {
		least = min(least, minStreak*c.interval(sum, c.breaker.origin.Add(at)))
	}
	if streak.calls < 2 || streak.attempts < minStreak || few || lasted < least {
		return false
	}
	byChance := float64(streak.attempts)*math.Log(streak.ratio) > maxStreakChance
	return !byChance
}

// slowFailure is the minimum latency of a failure that indicates a long queue. A rejected
// connection takes less, and a shorter queue is no problem.
const slowFailure = 100 * time.Millisecond

// MinSlow is the minimum latency of a slow failure.
func MinSlow(baseline time.Duration) time.Duration { return max(slowFailure, 2*baseline) }

// isSlow reports whether a result indicates a long queue. Without a baseline nothing is slow.
func isSlow(baseline, took time.Duration) bool { return baseline > 0 && took >= MinSlow(baseline) }

// minTimeout is the minimum latency of an attempt without a response that is a failure when
// the deadline of the call ends it.
func minTimeout(baseline time.Duration) time.Duration { return max(hold.Hanging, 4*baseline) }
