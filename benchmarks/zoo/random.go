package zoo

// random draws the random values of the model. A value depends on the seed, the call, the attempt
// and its purpose, and not on the order of events.
type random struct{ seed uint64 }

// The purposes of random values.
const (
	drawProcess = iota
	drawPath
	drawModel
	drawTokens
	drawService
	drawCached
	drawError
	drawSlow
)

// fraction is a number in [0, 1).
func (r random) fraction(call, attempt, purpose int) float64 {
	h := r.seed
	for _, part := range [...]int{call, attempt, purpose} {
		h = mix(h ^ mix(uint64(part)))
	}
	return float64(h>>11) / (1 << 53)
}

// mix is a step of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
