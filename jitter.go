package resilienthttp

import (
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/outcome"
	"github.com/resilienthttp/resilienthttp/internal/retryafter"
)

// Backoff returns the wait before a retry. retry counts from 1. prev is the previous wait, and 0
// for the first retry. A negative result means no wait. A Backoff must be safe for concurrent use
// and keep no state of a call.
//
// The strategies of this package follow Marc Brooker, "Exponential Backoff And Jitter"
// (https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/). They return a wait
// in [0, max]. base doubles with each retry. If base or max is not positive, there is no wait.
// [FullJitter] spreads clients that failed together the most; [Constant] is for tests. See
// docs/backoff.md.
type Backoff func(retry int, prev time.Duration) time.Duration

// FullJitter returns a random wait from [0, base·2^(retry-1)], or from [0, max] if max is less.
func FullJitter(base, max time.Duration) Backoff {
	base, max = waitBounds(base, max)
	return func(retry int, _ time.Duration) time.Duration {
		upper := base
		for i := 1; i < retry && upper < max; i++ {
			upper += min(upper, max-upper) // doubled, without overflow
		}
		return randomUpTo(upper)
	}
}

// DecorrelatedJitter returns a random wait from [base, 3·prev], or from [base, max] if max is
// less. For the first retry, prev is base.
func DecorrelatedJitter(base, max time.Duration) Backoff {
	base, max = waitBounds(base, max)
	return func(_ int, prev time.Duration) time.Duration {
		if prev < base {
			prev = base
		}
		upper := max // a bound here, not a cap of the result: so waits differ at max too
		if prev <= max/3 {
			upper = 3 * prev
		}
		return base + randomUpTo(upper-base)
	}
}

// Constant returns d for every retry, without jitter. A negative d means 0.
func Constant(d time.Duration) Backoff {
	d = max(d, 0)
	return func(int, time.Duration) time.Duration { return d }
}

// waitBounds returns 0 <= base <= max. Both are 0 if one of the arguments is not positive.
func waitBounds(base, max time.Duration) (time.Duration, time.Duration) {
	if base <= 0 || max <= 0 {
		return 0, 0
	}
	return min(base, max), max
}

// randomUpTo returns a random duration in [0, d], both ends included, for d >= 0.
func randomUpTo(d time.Duration) time.Duration { return time.Duration(rand.Uint64N(uint64(d) + 1)) }

// earlyWaits are the upper bounds of the waits before retries, which are random from zero (full jitter). The last wait uses the
// remaining time. See docs/backoff.md.
var earlyWaits = [defaultMaxAttempts - 2]time.Duration{250 * time.Millisecond, 1250 * time.Millisecond, 3 * time.Second, 6 * time.Second} //nolint:gochecknoglobals // never written to

const (
	afterOverload = 2 // the early wait with which the series begins after overload
	afterSlow     = 3 // the early wait after the first timeout of a server that answers others, and after a 409: the other attempt needs time

	seriesTime = 10 * time.Second // sum of all waits without a near deadline, and the longest one for a circuit
)

// waitSeries is the progress of a call in its waits before retries.
type waitSeries struct {
	step     int       // the number of the latest early wait
	over     bool      // the final wait was chosen
	timedOut bool      // the short wait after a timeout was chosen
	end      time.Time // zero: a near deadline ends the series, or it has not begun
}

// endsWith reports whether there is no wait after the attempt. A 409 that may be retried comes back at
// once, while the attempt before it may have taken most of the time: then another last wait follows.
func (s *waitSeries) endsWith(last *attempt) bool {
	return s.over && last.came != http.StatusConflict
}

// backoff chooses the wait before the next attempt. The wait that the server asks for is added to
// the result of Policy.Backoff. By default it is a minimum, and up to half of it is added if the
// deadline leaves time.
func (c *call) backoff(failed *attempt, now time.Time) time.Duration {
	state, asked := c.retries, failed.report.RetryAfter
	if own := c.policy.Backoff; own != nil {
		state.wait = min(max(own(c.number, state.wait), 0), retryafter.Max)
		return state.wait + asked
	}
	wait := c.nextWait(failed, now)
	spread := wait
	if state.series.over || failed.outcome.Trouble == outcome.Busy {
		spread /= 4 // as late as possible, or the other attempt needs time
	}
	state.wait = wait - randomUpTo(spread)
	return max(state.wait, c.named(asked, now))
}

// named returns the wait that the server asks for, and up to half of it more if the deadline leaves time.
func (c *call) named(asked time.Duration, now time.Time) time.Duration {
	return asked + randomUpTo(min(asked/2, max(c.spare(now.Add(asked)), 0)))
}

// nextWait returns the upper bound of the next wait of the series.
func (c *call) nextWait(failed *attempt, now time.Time) time.Duration {
	s := &c.retries.series
	s.step++
	switch {
	case c.record.failingRoutes.onlyFailed(c.routeHash, c.start.Sub(c.origin)):
		s.over = true
	case failed.timedOut() && !s.timedOut && c.isOnlySlow(now):
		s.timedOut, s.step = true, max(s.step, afterSlow)
	case failed.timedOut():
		s.over = true
	case failed.outcome.Trouble == outcome.Busy:
		s.step = max(s.step, afterSlow)
	case failed.outcome.Trouble == outcome.Overload:
		s.step = max(s.step, afterOverload)
	}
	attempts, remaining := c.policy.MaxAttempts, c.timeLeft(failed, now)
	if attempts > defaultMaxAttempts {
		s.step = min(s.step, len(earlyWaits))
	}
	if c.failsAlone(failed, now) {
		// The server is there, so it does not help to give it time.
		s.step = min(s.step, afterOverload)
		remaining = min(remaining, earlyWaits[s.step-1])
	}
	s.over = s.over || s.step > len(earlyWaits) || c.counted() > max(attempts-2, 1)
	if s.over {
		return remaining
	}
	wait := earlyWaits[s.step-1]
	if wait > remaining {
		s.over = true
		return remaining
	}
	if s.timedOut {
		s.step = len(earlyWaits)
	}
	return wait
}

// failsAlone reports whether the failure is probably that of the request and not of the server: most requests of the scope succeed, and
// one of the route has, which was sent after the call had failed before.
func (c *call) failsAlone(failed *attempt, now time.Time) bool {
	if failed.outcome.Trouble != outcome.Passing {
		return false
	}
	return c.record.circuit.MostSucceed(now) && c.record.failingRoutes.find(c.routeHash).attempt > c.first.report.end().Sub(c.origin)
}

// isOnlySlow reports whether probably only this request was slow, and not the server: one that was sent within the wait that would
// follow has been answered. A late answer to an earlier request shows nothing, because an overloaded server gives it too.
func (c *call) isOnlySlow(now time.Time) bool {
	return c.record.circuit.AnsweredSince(now.Add(-earlyWaits[afterSlow-1]))
}

// timeLeft returns the longest wait with which a usual response still arrives in time. Without a
// near deadline it is the rest of seriesTime, which begins here.
func (c *call) timeLeft(failed *attempt, now time.Time) time.Duration {
	s := &c.retries.series
	if s.end.IsZero() && (c.deadline.IsZero() || c.deadline.Sub(now) > defaultMaxWait) {
		s.end = now.Add(seriesTime)
	}
	switch {
	case s.end.IsZero():
		return max(c.deadline.Sub(now)-c.reserve(failed.report.Latency), 0)
	case c.policy.MaxAttempts > defaultMaxAttempts:
		return seriesTime // the caller wants many attempts, so each last wait may take this long
	}
	return max(s.end.Sub(now), earlyWaits[0])
}
