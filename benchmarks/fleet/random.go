package fleet

import "time"

// dice are the model's chances. What they show hangs on the seed, on the call, on
// the attempt and on what is asked, and not on the order in which things happen:
// two clients that make the same attempt meet the same luck.
type random struct{ seed uint64 }

// What is asked of the dice. A fault's own questions come after these: see ask.
const (
	drawBackend = iota
	drawLatency
	drawPath
	drawBare
	drawFault
)

// chance is a number in [0, 1).
func (d random) fraction(call, attempt, ask int) float64 {
	h := d.seed
	for _, part := range [...]int{call, attempt, ask} {
		h = mix(h ^ mix(uint64(part)))
	}
	return float64(h>>11) / (1 << 53)
}

// between is a duration that is drawn evenly.
func (d random) between(from, to time.Duration, call, attempt, ask int) time.Duration {
	if to <= from {
		return from
	}
	return from + time.Duration(d.fraction(call, attempt, ask)*float64(to-from))
}

// mixed is a step of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
