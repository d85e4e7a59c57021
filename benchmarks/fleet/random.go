package fleet

import (
	"math"
	"time"
)

// random draws the random values of the model. A value depends on the seed, the call, the
// attempt and its purpose, and not on the order of events. The same attempt of two clients
// gets the same value.
type random struct{ seed uint64 }

// The purposes of random values. Those of faults follow drawFault, so that new ones are negative.
const (
	drawService = -1 - iota
	drawThere
	drawBack
)

const (
	drawBackend = iota
	drawLatency
	drawPath
	drawBare
	drawFault
)

// fraction is a number in [0, 1).
func (r random) fraction(call, attempt, purpose int) float64 {
	h := r.seed
	for _, part := range [...]int{call, attempt, purpose} {
		h = mix(h ^ mix(uint64(part)))
	}
	return float64(h>>11) / (1 << 53)
}

// between is a uniformly distributed duration.
func (r random) between(from, to time.Duration, call, attempt, purpose int) time.Duration {
	if to <= from {
		return from
	}
	return from + time.Duration(r.fraction(call, attempt, purpose)*float64(to-from))
}

// exponential is an exponentially distributed duration.
func (r random) exponential(mean time.Duration, call, attempt, purpose int) time.Duration {
	return time.Duration(-math.Log(1-r.fraction(call, attempt, purpose)) * float64(mean))
}

// mix is a step of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
