package overhead

import (
	"slices"
	"time"

	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// Config selects the peers and the duration.
type Config struct {
	Peers  []peers.Peer // the others are compared with the first
	Rounds int
	Batch  time.Duration // time of each peer in a round
}

// Row is the result of one peer under one load.
type Row struct {
	Peer          peers.Peer
	Ratio         float64 // of its time to the first peer's; the median of the rounds
	Low, High     float64 // quartiles
	Allocs, Bytes float64 // added to the first peer's, per call
}

// Measure measures the peers under one load.
func Measure(c Config, l Load, w Way) []Row {
	callers := make([]*caller, len(c.Peers))
	defer func() {
		for _, caller := range callers {
			caller.close()
		}
	}()
	for i, p := range c.Peers {
		callers[i] = newCaller(p, l, w)
		callers[i].calls(goroutines) // connections, caches
		callers[i].batch = calibrate(callers[i], c.Batch)
	}
	rows := make([]Row, len(callers))
	for i, ratios := range rounds(callers, c.Rounds) {
		rows[i] = Row{Peer: c.Peers[i], Ratio: ratios[len(ratios)/2], Low: ratios[len(ratios)/4], High: ratios[len(ratios)*3/4]}
	}
	if !w.Parallel {
		count(rows, callers)
	}
	return rows
}

// rounds returns the ratios of each caller's time per call to the first caller's in the same
// round, sorted. In a round, each caller makes as many calls as fit into about the same time,
// because a caller that copies bodies of 1 MiB is hundreds of times slower.
func rounds(callers []*caller, rounds int) [][]float64 {
	ratios := make([][]float64, len(callers))
	for round := range rounds {
		times := make([]float64, len(callers))
		for i := range callers {
			i = (i + round) % len(callers) // otherwise one caller always pays for another's garbage
			start := time.Now()
			callers[i].calls(callers[i].batch)
			times[i] = float64(time.Since(start)) / float64(callers[i].batch)
		}
		for i := range callers {
			ratios[i] = append(ratios[i], times[i]/times[0])
		}
	}
	for i := range ratios {
		slices.Sort(ratios[i])
	}
	return ratios
}

// count sets the allocations added to those of the first caller.
func count(rows []Row, callers []*caller) {
	const n = 100
	allocs, size := callers[0].allocations(n)
	for i := range rows[1:] {
		a, s := callers[1+i].allocations(n)
		rows[1+i].Allocs, rows[1+i].Bytes = a-allocs, s-size
	}
}

// calibrate returns the number of calls that take about the time: at least one per goroutine.
// It is the maximum of three tries, because a try may be interrupted.
func calibrate(c *caller, batch time.Duration) int {
	unit := 1
	if c.way.Parallel {
		unit = goroutines
	}
	most := unit
	for range 3 {
		n, took := unit, time.Duration(0)
		for ; took < batch/4; n *= 2 {
			start := time.Now()
			c.calls(n)
			took = time.Since(start)
		}
		n /= 2 // the last number that fit
		most = max(most, int(float64(n)*float64(batch)/float64(took))/unit*unit)
	}
	return most
}
