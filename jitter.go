package resilienthttp

import (
	"math"
	"math/rand/v2"
	"time"
)

// Backoff returns the wait before a retry. retry counts from 1. prev is the previous wait, and 0
// for the first retry. A negative result means no wait. A Backoff must be safe for concurrent use
// and keep no state of a call.
//
// The strategies of this package follow Marc Brooker, "Exponential Backoff And Jitter"
// (https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/). They return a wait
// in [0, max]. base doubles with each retry. If base or max is not positive, there is no wait.
// [FullJitter] spreads clients that failed together the most; [Exponential] and [Constant] are
// for tests. See docs/backoff.md.
type Backoff func(retry int, prev time.Duration) time.Duration

// FullJitter returns a random wait from [0, base·2^(retry-1)], or from [0, max] if max is less.
func FullJitter(base, max time.Duration) Backoff {
	base, max = waitBounds(base, max)
	return func(retry int, _ time.Duration) time.Duration {
		return randomUpTo(doubled(base, max, retry))
	}
}

// EqualJitter returns a random wait from [w/2, w], for w = base·2^(retry-1), or w = max if max is
// less.
func EqualJitter(base, max time.Duration) Backoff {
	base, max = waitBounds(base, max)
	return func(retry int, _ time.Duration) time.Duration {
		whole := doubled(base, max, retry)
		half := whole / 2
		return whole - half + randomUpTo(half)
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

// Exponential returns base·2^(retry-1), or max if that is less, without jitter. Clients that
// failed together retry together: prefer [FullJitter].
func Exponential(base, max time.Duration) Backoff {
	base, max = waitBounds(base, max)
	return func(retry int, _ time.Duration) time.Duration {
		return doubled(base, max, retry)
	}
}

// Constant returns d for every retry, without jitter. A negative d means 0.
func Constant(d time.Duration) Backoff {
	if d < 0 {
		d = 0
	}
	return func(int, time.Duration) time.Duration { return d }
}

// waitBounds returns 0 <= base <= max. Both are 0 if one of the arguments is not positive.
func waitBounds(base, max time.Duration) (time.Duration, time.Duration) {
	if base <= 0 || max <= 0 {
		return 0, 0
	}
	return min(base, max), max
}

// doubled returns min(max, base·2^(retry-1)) without overflow, for the result
// of waitBounds.
func doubled(base, max time.Duration, retry int) time.Duration {
	if retry <= 1 {
		return base
	}
	// Shifting max right cannot overflow. A shift by 63 or more leaves 0, and every base is more
	// than that, unless both are 0.
	doublings := uint(retry - 1)
	if base > max>>doublings {
		return max
	}
	return base << doublings
}

// randomUpTo returns a random duration in [0, d], both ends included, for d >= 0.
func randomUpTo(d time.Duration) time.Duration {
	if d == math.MaxInt64 {
		return time.Duration(rand.Int64())
	}
	return time.Duration(rand.Int64N(int64(d) + 1))
}
