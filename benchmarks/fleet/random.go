package fleet

import (
	"math"
	"math/rand/v2"
	"time"
)

// Chance draws the random values of a run. A value depends on the seed, the call, the
// attempt and its purpose, and not on the order of events. The same attempt of two clients
// gets the same value.
type Chance struct{ Seed uint64 }

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

// Fraction is a number in [0, 1).
func (r Chance) Fraction(call, attempt, purpose int) float64 {
	h := r.Seed
	for _, part := range [...]int{call, attempt, purpose} {
		h = Mix(h ^ Mix(uint64(part)))
	}
	return float64(h>>11) / (1 << 53)
}

// between is a uniformly distributed duration.
func (r Chance) between(from, to time.Duration, call, attempt, purpose int) time.Duration {
	if to <= from {
		return from
	}
	return from + time.Duration(r.Fraction(call, attempt, purpose)*float64(to-from))
}

// exponential is an exponentially distributed duration.
func (r Chance) exponential(mean time.Duration, call, attempt, purpose int) time.Duration {
	return time.Duration(-math.Log(1-r.Fraction(call, attempt, purpose)) * float64(mean))
}

// Mix is a step of splitmix64.
func Mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Dice draw the parameters of a scenario.
type Dice struct{ *rand.Rand }

// Likely returns true with the probability.
func (d Dice) Likely(share float64) bool { return d.Float64() < share }

// Log draws from a logarithmic scale.
func (d Dice) Log(low, high float64) float64 { return low * math.Pow(high/low, d.Float64()) }

// OneOf draws one of the values.
func OneOf[T any](d Dice, of ...T) T { return of[d.IntN(len(of))] }
