package circuit

import (
	"math"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/window"
)

// The defaults, where a field of Rules is 0.
const (
	DefaultFailureRatio = 0.9
	DefaultMinRequests  = 20
	DefaultWindow       = 10 * time.Second
	DefaultCooldown     = 100 * time.Millisecond
	DefaultMaxCooldown  = 2 * time.Second
	DefaultProbes       = 3
)

const (
	minCooldown  = time.Millisecond
	firstAtMost  = time.Second // a first cooldown that follows a failure's latency
	cooldownRise = 8           // and how many times that latency a cooldown may become
)

// Rules say when circuits open and close. For each field 0 means the default
// above, and the default written out means the same.
type Rules struct {
	FailureRatio float64       // of the results of a Window; negative or NaN: never; above 1: 1
	MinRequests  int           // results before the ratio is judged; negative: 1
	Window       time.Duration // for how long a result counts; negative: the default
	Cooldown     time.Duration // of the first opening, at least; negative: a millisecond
	MaxCooldown  time.Duration // of all openings; negative, or less than Cooldown: Cooldown
	Probes       int           // that a half-open circuit lets out; negative: 1
	Static       bool          // these fields alone decide
}

func (r Rules) withDefaults() Rules {
	if r.FailureRatio == 0 {
		r.FailureRatio = DefaultFailureRatio
	}
	r.FailureRatio = min(r.FailureRatio, 1)
	r.MinRequests = positive(r.MinRequests, DefaultMinRequests)
	if r.Window <= 0 {
		r.Window = DefaultWindow
	}
	r.Window = max(r.Window, window.MinLength)
	if r.Cooldown == 0 {
		r.Cooldown = DefaultCooldown
	}
	r.Cooldown = max(r.Cooldown, minCooldown)
	if r.MaxCooldown == 0 {
		r.MaxCooldown = DefaultMaxCooldown
	}
	r.MaxCooldown = max(r.MaxCooldown, r.Cooldown)
	r.Probes = positive(r.Probes, DefaultProbes)
	return r
}

// positive is n, or its default where it is 0; what is negative counts as 1.
func positive(n, byDefault int) int {
	if n == 0 {
		return byDefault
	}
	return max(n, 1)
}

func (r *Rules) off() bool { return r.FailureRatio < 0 || math.IsNaN(r.FailureRatio) }

// tooMany reports whether so many failures, of so many results, open a circuit.
// It takes the quotient, and not ratio × results: 7 of 100 are 0.07, but
// 0.07 × 100 is a little more than 7.
func (r *Rules) tooMany(failures, results uint64) bool {
	return results > 0 && float64(failures)/float64(results) >= r.FailureRatio
}

// cooldown is how long a circuit stays open after a failure that took so long,
// when the opening before, if there was one, lasted for before.
//
// A failure that comes at once costs nobody anything, so it can be repeated soon;
// one that times out has held a caller, and a place in the server's queue, all
// that time. But that a timeout is long says nothing of how long the trouble will
// last, and so the first cooldown never is.
func (r *Rules) cooldown(before, took time.Duration) time.Duration {
	first, most := r.Cooldown, r.MaxCooldown
	if !r.Static {
		took = min(took, math.MaxInt64/cooldownRise) // so that the multiples do not overflow
		first = min(max(first, min(2*took, firstAtMost)), most)
		most = min(max(first, cooldownRise*took), most)
	}
	switch {
	case before == 0:
		return first
	case before < most/2: // twice that cannot overflow
		return 2 * before
	}
	return most
}
