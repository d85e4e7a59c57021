package fleet

import "math"

// Paired is how the calls of one library did against the same calls of another:
// the same arrivals, paths and dice.
type Paired struct {
	Calls int
	Mean  float64 // of the differences: positive where the library did better
	Error float64 // the mean's standard deviation, if calls were independent
}

// Pair holds the calls of two runs against each other, that differ in the library
// alone.
func Pair(ours, bare Result) Paired {
	n := min(len(ours.outcomes), len(bare.outcomes))
	var sum, squares float64
	for i := range n {
		d := value(ours.outcomes[i]) - value(bare.outcomes[i])
		sum += d
		squares += d * d
	}
	count := float64(max(n, 1))
	mean := sum / count
	return Paired{Calls: n, Mean: mean, Error: math.Sqrt(max(squares/count-mean*mean, 0) / count)}
}

func value(success bool) float64 {
	if success {
		return 1
	}
	return 0
}

// Harmed reports whether the library does worse, by more than is allowed and than
// chance explains.
func (p Paired) Harmed() bool { return p.Mean < -bareMargin && p.Mean < -3*p.Error }
