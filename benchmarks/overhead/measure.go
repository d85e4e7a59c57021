package overhead

import (
	"slices"
	"time"

	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// Config says what is measured, and for how long.
type Config struct {
	Peers  []peers.Peer // the first is what the others are compared with
	Rounds int
	Batch  time.Duration // that each peer takes in each round
}

// Row is what was measured of one peer under one load.
type Row struct {
	Peer          peers.Peer
	Ratio         float64 // of its time to the first peer's: the median of the rounds
	Low, High     float64 // quartiles
	Allocs, Bytes float64 // more than the first peer's, per call
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

// rounds returns the time of each caller's calls as ratios to the first one's in
// the same round, sorted. In each round, each of them has about the same time, and
// makes as many calls as fit: one that copies a body of a megabyte is slower by
// hundreds than one that passes it on, and would leave that one too few to measure.
func rounds(callers []*caller, rounds int) [][]float64 {
	ratios := make([][]float64, len(callers))
	for round := range rounds {
		times := make([]float64, len(callers))
		for i := range callers {
			i = (i + round) % len(callers) // nobody is always the one after the garbage of another
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

// count adds what each caller allocates more than the first.
func count(rows []Row, callers []*caller) {
	const n = 100
	allocs, size := callers[0].allocations(n)
	for i := range rows[1:] {
		a, s := callers[1+i].allocations(n)
		rows[1+i].Allocs, rows[1+i].Bytes = a-allocs, s-size
	}
}

// calibrate is how many calls take about so long: at least one of each goroutine.
// It is the most of three tries, of which one may have been interrupted.
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
		n /= 2 // those that took so long
		most = max(most, int(float64(n)*float64(batch)/float64(took))/unit*unit)
	}
	return most
}
