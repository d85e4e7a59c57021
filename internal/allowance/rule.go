package allowance

import (
	"time"

	"github.com/resilienthttp/resilienthttp/internal/window"
)

// Rule is what an allowance allows within each window: Ratio for each call, and
// Floor on top of that; or Least, if that is more.
type Rule struct {
	Origin time.Time     // the time is counted from here; not after the first use, and of the same monotonic clock
	Window time.Duration // the least is a millisecond

	Ratio, Floor, Least float64

	// Static makes the formula all there is: what was taken counts, whatever
	// came of it.
	Static bool
}

// Checked is the rule with values that one can reckon with: negative ones and NaN
// are 0, and none is infinite.
func (r Rule) Checked() Rule {
	clamp := func(x float64) float64 {
		if x > 0 {
			return min(x, 1e12) // so that no product is infinite, and no sum NaN
		}
		return 0
	}
	r.Window = max(r.Window, window.MinLength)
	r.Ratio, r.Floor, r.Least = clamp(r.Ratio), clamp(r.Floor), clamp(r.Least)
	return r
}

// lately is the part of the window in which the share must be taken: what ten
// good seconds have saved up must not meet the server in its first bad one.
func (r *Rule) lately() time.Duration { return r.Window / lateParts }

const lateParts = 10
