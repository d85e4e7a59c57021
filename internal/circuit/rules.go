package circuit

import (
	"cmp"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/hold"
	"github.com/resilienthttp/resilienthttp/internal/window"
)

// The defaults of Rules.
const (
	DefaultFailureRatio = 1 // nothing works any more
	DefaultMinRequests  = 20
	DefaultWindow       = 10 * time.Second
	DefaultCooldown     = 100 * time.Millisecond
	DefaultMaxCooldown  = 2 * time.Second
	DefaultProbes       = 3
)

const (
	cooldownRatio = 8 // maximum of later cooldowns, in latencies of the failure
	callsPerProbe = 5 // a probe that hangs holds its caller: one of so many at most
)

// Rules decide when circuits open and close. A zero field means its default above.
type Rules struct {
	FailureRatio float64       // ratio of failures in a Window; negative or NaN: never; above 1: 1
	MinRequests  int           // minimum results for the ratio; negative: 1
	Window       time.Duration // time for which a result counts; negative: the default
	Cooldown     time.Duration // minimum; negative: 1 ms
	MaxCooldown  time.Duration // maximum, without jitter; less than Cooldown: Cooldown
	Probes       int           // probes of a half-open circuit; negative: 1
	Static       bool          // these fields alone decide
}

func (r Rules) withDefaults() Rules {
	r.FailureRatio = min(cmp.Or(r.FailureRatio, DefaultFailureRatio), 1)
	r.MinRequests = max(cmp.Or(r.MinRequests, DefaultMinRequests), 1)
	if r.Window <= 0 {
		r.Window = DefaultWindow
	}
	r.Window = max(r.Window, window.MinLength)
	r.Cooldown = max(cmp.Or(r.Cooldown, DefaultCooldown), window.MinLength)
	r.MaxCooldown = max(cmp.Or(r.MaxCooldown, DefaultMaxCooldown), r.Cooldown)
	r.Probes = max(cmp.Or(r.Probes, DefaultProbes), 1)
	return r
}

// fewPending is the share of the results among results and attempts in flight at which those in flight do not matter. Many
// servers reject at once and answer late, so attempts in flight may be successes.
const fewPending = 0.9

// tooMany reports whether the failures among results open a circuit, beside attempts in flight. It compares the quotient, not
// ratio × results: 7 of 100 are 0.07, but 0.07 × 100 is a little more than 7.
func (r *Rules) tooMany(failures, results, inFlight int) bool {
	ratio, ofAll := float64(failures)/float64(results), float64(failures)/float64(results+inFlight)
	return ratio >= r.FailureRatio && ofAll >= fewPending*r.FailureRatio
}

// firstCooldown returns the time until the first probe after a failure. took is the latency of the failure, and usual the
// time between two results before the outage, because an outage must not be sent more than usual.
//
// A quick failure costs little, so the next probe may come soon. A timeout occupies a caller and
// a slot in the server's queue. But its length says nothing about the length of the outage, so
// the first cooldown is never long.
func (r *Rules) firstCooldown(took, usual time.Duration) time.Duration {
	if r.Static {
		return r.Cooldown
	}
	slow := min(2*took, callsPerProbe*usual)
	return min(max(r.Cooldown, min(max(slow, usual), hold.Hanging)), r.MaxCooldown)
}

// longestCooldown returns the longest time between two probes that take as long as the last one.
func (r *Rules) longestCooldown(took time.Duration) time.Duration {
	if r.Static {
		return r.MaxCooldown
	}
	if took >= hold.Hanging {
		return 0 // while it hangs, the next one may be sent: it need not come later too
	}
	return min(cooldownRatio*took, r.MaxCooldown)
}
