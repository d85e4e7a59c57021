package circuit

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/window"
)

// closed lets everything out and counts the results: the circuit opens when the
// ratio of failures is reached, or early, when a row of failures has come that
// chance does not explain.
type closed struct {
	limit *limit // after slow failures; nil: none

	results     window.Counter // failures, successes
	lastFailure atomic.Int64   // nanoseconds since the origin; 0: none yet
	failing     atomic.Bool    // nothing has succeeded since the row began

	mu        sync.Mutex // for failures alone
	row       int        // attempts that failed, with no success since the first
	calls     int        // of how many calls
	rowSince  time.Duration
	rowShare  float64       // share of failures before it
	slowest   time.Duration // latency of the slowest failure of late
	slowestAt time.Duration
}

const (
	rowLeast = 5
	rowTime  = 2 * time.Second
	// rowChance is the logarithm of one in a million: so improbable must a row be,
	// if each of its calls had failed by the share of before.
	rowChance = -13.8
)

func (s *closed) name() State { return Closed }

func (s *closed) admit(g *generation, now time.Time, _ bool) (Ticket, time.Time, *Change, bool) {
	t := Ticket{generation: g}
	if s.limit.works() {
		if notBefore, ok := s.limit.admit(now); !ok {
			return Ticket{}, notBefore, nil, false
		}
		t.told = new(atomic.Bool)
	}
	return t, time.Time{}, nil, false
}

func (s *closed) refuses(_ *generation, at time.Time, _ bool) (time.Time, bool) {
	if s.limit.works() {
		return s.limit.refuses(at)
	}
	return time.Time{}, false
}

func (s *closed) done(t Ticket, r Result, now time.Time) *Change {
	if t.told != nil && t.told.Swap(true) {
		return nil // or there would be less than nothing in flight
	}
	g, limited := t.generation, s.limit.works()
	if limited {
		s.limit.done(now.Add(-r.Took), now, r.Outcome)
	}
	rules := &g.breaker.rules
	at := now.Sub(g.breaker.origin)
	early := false
	switch r.Outcome {
	case Success:
		s.succeeded(g, r, at, limited)
		// A success too can complete MinRequests. But where nothing failed,
		// nothing needs to be summed up: the happy path ends here. (The failure
		// that is not seen yet will see this success.)
		if last := s.lastFailure.Load(); last == 0 || at-time.Duration(last) > rules.Window {
			return nil
		}
		r.Took = 0 // it is not what the circuit opens for
	case Failure:
		s.lastFailure.Store(max(int64(at), 1))
		early = s.failed(g, r, at)
		s.results.Add(at, rules.Window, 1, 0)
	default:
		return nil
	}
	if !early && !s.tooMany(rules, at) {
		return nil
	}
	if g.circuit.current.Load() != g {
		return nil // long open: do not make a generation for each of the late failures
	}
	s.mu.Lock()
	slowest := s.slowest
	s.mu.Unlock()
	return g.become(g.openAfter(r.Took, slowest, 0, now), now)
}

func (s *closed) succeeded(g *generation, r Result, at time.Duration, limited bool) {
	s.results.Add(at, g.breaker.rules.Window, 0, 1)
	if s.failing.Load() {
		s.failing.Store(false)
	}
	if !limited {
		g.circuit.typical.sample(at, r.Took)
	}
}

// tooMany reports whether FailureRatio is reached.
func (s *closed) tooMany(rules *Rules, at time.Duration) bool {
	failures, successes := s.results.Sum(at, rules.Window)
	n := failures + successes
	return n >= uint64(rules.MinRequests) && rules.tooMany(failures, n) //nolint:gosec // positive
}

// failed notes a failure, and reports whether it is the one that opens the
// circuit early: when calls have failed in a row for two seconds, and each
// failing by itself, as often as before, would not do so once in a million. A
// client that makes a call a second need not wait for MinRequests then, and one
// whose every fourth call fails anyway does not open by bad luck. Calls count,
// not attempts, so that one call with its retries does not open the circuit; and
// those within the Window, as for the ratio.
func (s *closed) failed(g *generation, r Result, at time.Duration) (early bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rules := &g.breaker.rules
	if r.Took >= s.slowest || at-s.slowestAt > rules.Window {
		s.slowest, s.slowestAt = r.Took, at
	}
	if rules.Static {
		return false
	}
	if !s.failing.Swap(true) {
		s.row, s.calls, s.rowSince, s.rowShare = 0, 0, at, s.share(rules, at)
	} else if at-s.rowSince > rules.Window {
		s.row, s.calls, s.rowSince = 0, 0, at
	}
	s.row++
	if !r.Retry {
		s.calls++
	}
	return !r.Retry && s.row >= rowLeast && at-s.rowSince >= rowTime && float64(s.row)*math.Log(s.rowShare) <= rowChance
}

// share is the share of failures in the Window, taken with one more of each so
// that few results make no certainty; or what it was before this trouble, if that
// is less.
func (s *closed) share(rules *Rules, at time.Duration) float64 {
	failures, successes := s.results.Sum(at, rules.Window)
	share := float64(failures+1) / float64(failures+successes+2)
	return share
}

// callsFailed is how many calls have failed in a row.
func (s *closed) callsFailed() int {
	if !s.failing.Load() {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}
