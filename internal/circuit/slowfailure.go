package circuit

import "time"

// slowFailure is the minimum latency of a failure that indicates a long queue. A rejected
// connection takes less, and a shorter queue is no problem.
const slowFailure = 100 * time.Millisecond

// minSlow is the minimum latency of a slow failure.
func minSlow(baseline time.Duration) time.Duration { return max(slowFailure, 2*baseline) }

// isSlowFailure reports whether a failure indicates a long queue. Without a baseline only a
// timeout does.
func isSlowFailure(baseline time.Duration, r Result) bool {
	return r.TimeOut || baseline > 0 && r.Took >= minSlow(baseline)
}

// minTimeout is the minimum latency of an attempt without a response that is a failure when
// the deadline of the call ends it.
func minTimeout(baseline time.Duration) time.Duration {
	if baseline == 0 {
		return time.Second
	}
	return max(slowFailure, 4*baseline)
}
