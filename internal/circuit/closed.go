package circuit

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/window"
)

// closed admits all requests and counts the results. The circuit opens at the ratio of
// failures, or early, after a row of failures.
type closed struct {
	slowStart *slowStart // after slow failures; nil: none

	results  window.Counter // failures, successes
	inFlight atomic.Int64   // what was let out and is not back
	failing  atomic.Bool    // nothing has succeeded since the row began

	mu     sync.Mutex // for failures alone
	streak failureStreak
}

// row is what has failed since something last succeeded.
type failureStreak struct {
	attempts int           // of the last Window
	slow     int           // of these, those that tell of a long queue
	calls    int           // of all of it
	since    time.Duration // when the first of the attempts failed, since the origin,
	share    float64       // of failures before it
	slowest  time.Duration // latency
}

// mostlySlow reports whether the row tells of a long queue: one that hangs among
// many that are refused does not.
func (r *failureStreak) mostlySlow() bool { return 2*r.slow >= r.attempts }

const (
	minStreak       = 5 // attempts, of two calls,
	streakPerFlight = 4 // and so many for each attempt in flight, which may succeed yet
	minStreakTime   = 2 * time.Second

	// rowChance is the logarithm of one in a million: the probability of the row, if each
	// attempt failed independently, with the ratio of failures before the row.
	maxStreakChance = -13.8
)

func (s *closed) name() State { return Closed }

func (s *closed) describe(g *generation, now time.Time) Status {
	failures, successes := s.results.Sum(now.Sub(g.breaker.origin), g.breaker.rules.Window)
	told := Status{State: Closed, Calls: int(failures + successes), Failures: int(failures), Since: g.since}
	if s.slowStart.works() {
		told.Limit, told.NotBefore = s.slowStart.now(now)
	}
	return told
}

func (s *closed) admit(g *generation, now time.Time, _ bool) (Permit, time.Time, *Change, bool) {
	t := Permit{generation: g}
	if s.slowStart.works() {
		if notBefore, ok := s.slowStart.admit(now); !ok {
			return Permit{}, notBefore, nil, false
		}
		t.told = new(atomic.Bool)
	}
	s.inFlight.Add(1)
	return t, time.Time{}, nil, false
}

func (s *closed) refuses(_ *generation, at time.Time, _ bool) (time.Time, bool) {
	if s.slowStart.works() {
		return s.slowStart.refuses(at)
	}
	return time.Time{}, false
}

func (s *closed) done(t Permit, r Result, now time.Time) *Change {
	if t.told != nil && t.told.Swap(true) {
		return nil // or there would be less than nothing in flight
	}
	s.inFlight.Add(-1)
	g, limited := t.generation, s.slowStart.works()
	if limited {
		s.slowStart.done(now.Add(-r.Took), now, r.Outcome)
	}
	at := now.Sub(g.breaker.origin)
	switch r.Outcome {
	case Success:
		s.succeeded(g, r, at, limited)
		return nil
	case Failure:
	default:
		return nil
	}
	opens, worst := s.failed(g, r, at)
	if !opens || g.circuit.current.Load() != g { // long open: do not make a generation for each of the late failures
		return nil
	}
	next := g.openAfter(r.Took, worst, 0, now)
	failures, successes := s.results.Sum(at, g.breaker.rules.Window)
	next.opened = resultsOf(failures, failures+successes)
	return g.become(next, now)
}

func (s *closed) succeeded(g *generation, r Result, at time.Duration, limited bool) {
	s.results.Add(at, g.breaker.rules.Window, 0, 1)
	if s.failing.Load() {
		s.failing.Store(false)
	}
	if !limited {
		g.circuit.baseline.sample(at, r.Took)
	}
}

// failed notes a failure, and reports whether it is the one that opens the
// circuit, after failures of which the worst took so long.
func (s *closed) failed(g *generation, r Result, at time.Duration) (opens bool, worst time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rules, row := &g.breaker.rules, &s.streak
	if !s.failing.Swap(true) {
		*row = newFailureStreak(at, s.share(rules, at))
	} else if at-row.since > rules.Window {
		row.attempts, row.slow, row.since = 0, 0, at
	}
	row.attempts++
	row.slowest = max(row.slowest, r.Took)
	if g.circuit.isSlowFailure(r) {
		row.slow++
	}
	if !r.Retry {
		row.calls++
	}
	s.results.Add(at, rules.Window, 1, 0)
	if worst = r.Took; row.mostlySlow() {
		worst = row.slowest
	}
	return s.tooMany(rules, r, at), worst
}

func newFailureStreak(at time.Duration, share float64) failureStreak {
	return failureStreak{since: at, share: share}
}

// tooMany reports whether the failure opens the circuit. It is locked.
//
// The ratio of failures opens it. Attempts in flight count as successes, unless the rules
// are static: of a burst of calls, those that fail may end first. A row of failures that
// lasts two seconds opens it too, if neither chance nor the attempts in flight explain it:
// a client with a call a second need not wait for MinRequests results. The retries of one
// call alone never open the circuit.
func (s *closed) tooMany(rules *Rules, r Result, at time.Duration) bool {
	if rules.off() {
		return false
	}
	failures, successes := s.results.Sum(at, rules.Window)
	n := failures + successes
	enough := n >= uint64(rules.MinRequests)
	if rules.Static {
		return enough && rules.tooMany(failures, n)
	}
	if enough && rules.tooMany(failures, n+uint64(max(s.inFlight.Load(), 0))) {
		return true
	}
	row := &s.streak
	if r.Retry || row.calls < 2 || at-row.since < minStreakTime {
		return false
	}
	explained := minStreak + streakPerFlight*max(s.inFlight.Load(), 0)
	return int64(row.attempts) >= explained && float64(row.attempts)*math.Log(row.share) <= maxStreakChance
}

// share is the share of failures in the Window, taken with one more of each so
// that few results make no certainty.
func (s *closed) share(rules *Rules, at time.Duration) float64 {
	failures, successes := s.results.Sum(at, rules.Window)
	return float64(failures+1) / float64(failures+successes+2)
}
