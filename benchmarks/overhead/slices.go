package overhead

import (
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"time"
)

// cpuTimes returns the CPU time of one call of each caller: the lower quartile of the rounds. In a
// round each caller makes the same number of calls, in a rotating order. The garbage collector runs
// between the rounds only, because it would run at the cost of any caller.
func cpuTimes(callers []*caller, rounds, calls int) []time.Duration {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	times := make([][]time.Duration, len(callers))
	for round := range rounds {
		runtime.GC()
		for i := range callers {
			i = (i + round) % len(callers)
			start := processorTime()
			callers[i].calls(calls)
			times[i] = append(times[i], (processorTime()-start)/time.Duration(calls))
		}
	}
	quartiles := make([]time.Duration, len(callers))
	for i := range times {
		slices.Sort(times[i])
		quartiles[i] = times[i][len(times[i])/4]
	}
	return quartiles
}

// ratio returns a/b, and 0 if b is not positive.
func ratio(a, b time.Duration) float64 {
	if b <= 0 {
		return 0
	}
	return math.Round(100*float64(a)/float64(b)) / 100
}
