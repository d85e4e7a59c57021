package resilienthttp

import (
	"math"
	"math/rand/v2"
	"time"
)

// Backoff returns the wait before a retry. The retry counts from 1, so 1 is the
// wait between the first attempt and the second; prev is the wait before the
// previous retry, and 0 for the first.
//
// A Backoff is called by many calls at once, so it must be safe for concurrent
// use, and it must keep no state of one call: all of that is in its arguments.
// What a server asks for comes first: see Policy.Backoff. A negative result means
// no wait.
//
// All strategies of this package are safe for concurrent use, allocate nothing,
// and return a wait in [0, max] whatever the arguments are. For those with a
// base and a max these rules hold:
//
//   - base is the scale of the first wait, max the bound of all waits. A base
//     above max counts as max.
//   - base doubles with each retry, to max at most, and never overflows.
//   - With a base or a max of zero or less there is no wait at all. There are no
//     defaults here.
//   - A retry below 1 counts as 1, a negative prev as 0.
//
// Which to take? The default, a nil Policy.Backoff, is none of these: it knows the
// deadline and the kind of failure. Clients that failed together come back together, and
// fail together again, unless their waits differ. [FullJitter] spreads them the most, and
// serves many clients with few calls in little time.
// [EqualJitter] and [DecorrelatedJitter] never retry at once, but under
// contention the former takes longer and the latter makes more calls.
// [Exponential] and [Constant] spread nothing; they are for tests, and for when
// there is but one client.
//
// The names and the formulas are those of Marc Brooker, "Exponential Backoff
// And Jitter", AWS Architecture Blog, 2015:
// https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/.
// TestJitterPaper repeats its simulation.
type Backoff func(retry int, prev time.Duration) time.Duration

// FullJitter waits a time drawn evenly from [0, base·2^(retry-1)], or from
// [0, max] where that is less.
func FullJitter(base, max time.Duration) Backoff {
	base, max = waitBounds(base, max)
	return func(retry int, _ time.Duration) time.Duration {
		return randomUpTo(doubled(base, max, retry))
	}
}

// EqualJitter waits half of base·2^(retry-1), or of max where that is less, and
// a time drawn evenly from [0, that half] on top.
func EqualJitter(base, max time.Duration) Backoff {
	base, max = waitBounds(base, max)
	return func(retry int, _ time.Duration) time.Duration {
		whole := doubled(base, max, retry)
		half := whole / 2
		return whole - half + randomUpTo(half)
	}
}

// DecorrelatedJitter waits a time drawn evenly from [base, 3·prev], or from
// [base, max] where that is less; for the first retry, from [base, 3·base]. The
// bound follows the waits that were drawn and not the number of the retry, so a
// call whose waits were short may wait shortly again.
//
// In the paper's formula, min(cap, random(base, 3·prev)), a call at the cap
// stays there with two waits out of three, and all such calls retry in step.
// Here the bound is cut instead of the result, so that waits differ at max too;
// in the paper's own simulation that saves time and costs no calls.
func DecorrelatedJitter(base, max time.Duration) Backoff {
	base, max = waitBounds(base, max)
	return func(_ int, prev time.Duration) time.Duration {
		if prev < base {
			prev = base
		}
		upper := max
		if prev <= max/3 {
			upper = 3 * prev
		}
		return base + randomUpTo(upper-base)
	}
}

// Exponential waits base·2^(retry-1), or max where that is less, without any
// jitter. Clients that failed at one moment all come back at one moment; prefer
// [FullJitter].
func Exponential(base, max time.Duration) Backoff {
	base, max = waitBounds(base, max)
	return func(retry int, _ time.Duration) time.Duration {
		return doubled(base, max, retry)
	}
}

// Constant waits d before every retry, without any jitter; a negative d is 0.
func Constant(d time.Duration) Backoff {
	if d < 0 {
		d = 0
	}
	return func(int, time.Duration) time.Duration { return d }
}

// waitBounds brings the arguments of a strategy into 0 <= base <= max, and base
// 0 only where both are.
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
	// Shifting max right instead of base left cannot overflow; a shift by 63 or
	// more leaves 0, which every base but 0 exceeds, and a shifted 0 is 0.
	doublings := uint(retry - 1)
	if base > max>>doublings {
		return max
	}
	return base << doublings
}

// randomUpTo draws evenly from [0, d], both ends included, for d >= 0. The
// source is the runtime's, seeded at random and safe for concurrent use.
func randomUpTo(d time.Duration) time.Duration {
	if d == math.MaxInt64 {
		return time.Duration(rand.Int64())
	}
	return time.Duration(rand.Int64N(int64(d) + 1))
}
