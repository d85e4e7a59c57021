package circuit

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/window"
)

// closed is a closed circuit until it opens. It admits all requests, except under slow
// start, and counts the results.
type closed struct {
	results   window.Counter            // failures, successes
	sent      atomic.Int64              // attempts admitted
	ended     atomic.Int64              // attempts with a result or canceled
	failing   atomic.Bool               // no success since the streak began
	streak    failureStreak             // guarded by Circuit.mu
	slowStart atomic.Pointer[slowStart] // nil: none; *slowStart is guarded by Circuit.mu
}

// failureStreak describes the failures since the last success.
type failureStreak struct {
	attempts int           // attempts in the last Window
	slow     int           // slow ones among these attempts
	calls    int           // first attempts of calls in the whole streak
	since    time.Duration // time of the first of the attempts
	ratio    float64       // ratio of failures before the streak
	slowest  time.Duration // highest latency of the whole streak
}

const (
	minStreak       = 5 // minimum attempts of a streak that opens the circuit
	streakPerFlight = 4 // additional attempts for each older one in flight, because it may still succeed
	minStreakTime   = 2 * time.Second

	// maxStreakChance is the logarithm of one in a million. It is compared with the probability
	// of the streak, if attempts failed independently at the ratio of failures before the streak.
	maxStreakChance = -13.8
)

// tally is a number of results and of their failures.
type tally struct{ results, failures int }

func (s *closed) tally(rules *Rules, at time.Duration) tally {
	failures, successes := s.results.Sum(at, rules.Window)
	return tally{results: int(failures + successes), failures: int(failures)}
}

// doneClosed records the result of an attempt that s admitted. The circuit is locked if the
// attempt failed, or if slow start admitted it.
func (c *Circuit) doneClosed(p Permit, r Result, now time.Time) *Change {
	s := p.closed
	s.ended.Add(1)
	l := s.slowStart.Load()
	if l != nil {
		l.done(now.Add(-r.Took), now, r.Outcome)
	}
	at := now.Sub(c.breaker.origin)
	switch r.Outcome {
	case Success:
		s.results.Add(at, c.breaker.rules.Window, 0, 1)
		if s.failing.Load() {
			s.failing.Store(false)
		}
		if l == nil { // under slow start the latency contains the queue
			c.baseline.Follow(at, r.Took)
		}
	case Failure:
		return c.failed(p, r, now)
	case None, Responded, Timeout:
	}
	return nil
}

// failed counts a failure, and opens the circuit if there are too many. The circuit is locked.
func (c *Circuit) failed(p Permit, r Result, now time.Time) *Change {
	s := p.closed
	if c.closed.Load() != s {
		return nil // the circuit has changed since the attempt was admitted
	}
	rules, at, streak := &c.breaker.rules, now.Sub(c.breaker.origin), &s.streak
	sum := s.tally(rules, at)
	if !s.failing.Swap(true) {
		// One more success and failure, because few results prove little.
		ratio := float64(sum.failures+1) / float64(sum.results+2)
		*streak = failureStreak{since: at, ratio: ratio}
	} else if at-streak.since > rules.Window {
		streak.attempts, streak.slow, streak.since = 0, 0, at
	}
	streak.attempts++
	streak.slowest = max(streak.slowest, r.Took)
	slow := isSlowFailure(c.baseline.Get(), r)
	if slow {
		streak.slow++
	}
	if !r.Retry {
		streak.calls++
	}
	s.results.Add(at, rules.Window, 1, 0)
	sum.results++
	sum.failures++
	if !p.tooMany(sum, r, at) {
		return nil
	}
	took, slowest := r.Took, r.Took
	switch {
	case 2*streak.slow >= streak.attempts:
		slowest = streak.slowest
	case slow: // among many quick ones it does not indicate a queue
		took, slowest = 0, 0
	}
	c.opening = newOpening(rules, 0, took, slowest, now)
	c.opening.opened = sum
	c.closed.Store(nil)
	return c.changed(Closed, Open, now)
}

// tooMany reports whether the failure opens the circuit, by the ratio of failures or by the
// streak. Attempts in flight count as successes, because in a burst of calls the failures may end
// first. A streak of two seconds opens the circuit if neither chance nor the attempts in flight
// explain it; those that were sent after the failed one do not, or a server that only hangs would
// never open it. So a client with a call a second need not wait for MinRequests results. The
// retries of one call alone never open the circuit.
func (p Permit) tooMany(sum tally, r Result, at time.Duration) bool {
	s, rules := p.closed, &p.circuit.breaker.rules
	if rules.off() {
		return false
	}
	enough, ended := sum.results >= rules.MinRequests, s.ended.Load()
	if rules.Static {
		return enough && rules.tooMany(sum.failures, sum.results)
	}
	if enough && rules.tooMany(sum.failures, sum.results+int(max(s.sent.Load()-ended, 0))) {
		return true
	}
	streak := &s.streak
	if r.Retry || streak.calls < 2 || at-streak.since < minStreakTime {
		return false
	}
	byChance := float64(streak.attempts)*math.Log(streak.ratio) > maxStreakChance
	older := int(max(p.number-ended, 0)) // in flight, and sent before this attempt
	return !byChance && streak.attempts >= minStreak+streakPerFlight*older
}
