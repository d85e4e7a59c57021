package fleet

import "math"

// Paired compares the calls of one library with the same calls of another: the same
// arrivals, paths and random values.
type Paired struct {
	Calls int
	Mean  float64 // of the differences; positive: the library is better
	Error float64 // standard deviation of the mean, if calls are independent
}

// Pair compares two runs that differ only in the library. Workers do not make the same calls in both. If
// as many succeed, a worker is not harmed by calls that fail sooner.
func Pair(ours, bare Result) Paired {
	if ours.Scenario.Load.Workers > 0 {
		mean := max(ours.Success()-bare.Success(), min(float64(ours.Succeeded)/float64(max(bare.Succeeded, 1))-1, 0))
		variance := func(r Result) float64 { return r.Success() * (1 - r.Success()) / float64(max(r.Offered, 1)) }
		return Paired{Calls: min(ours.Offered, bare.Offered), Mean: mean, Error: math.Sqrt(variance(ours) + variance(bare))}
	}
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

// Harmed reports whether the library is worse by more than bareMargin and by more than
// three standard deviations.
func (p Paired) Harmed() bool { return p.Mean < -bareMargin && p.Mean < -3*p.Error }
