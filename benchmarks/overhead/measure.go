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
	Batch  time.Duration // that the first peer takes in each round
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
	}
	n := calls(callers, c.Batch)
	rows := make([]Row, len(callers))
	for i, ratios := range rounds(callers, c.Rounds, n) {
		rows[i] = Row{Peer: c.Peers[i], Ratio: ratios[len(ratios)/2], Low: ratios[len(ratios)/4], High: ratios[len(ratios)*3/4]}
	}
	if !w.Parallel {
		count(rows, callers, max(n/10, 10))
	}
	return rows
}

// rounds returns each caller's times as ratios to the first one's in the same
// round, sorted.
func rounds(callers []*caller, rounds, n int) [][]float64 {
	ratios := make([][]float64, len(callers))
	for round := range rounds {
		times := make([]float64, len(callers))
		for i := range callers {
			i = (i + round) % len(callers) // nobody is always the one after the garbage of another
			start := time.Now()
			callers[i].calls(n)
			times[i] = float64(time.Since(start))
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
func count(rows []Row, callers []*caller, n int) {
	allocs, size := callers[0].allocations(n)
	for i := range rows[1:] {
		a, s := callers[1+i].allocations(n)
		rows[1+i].Allocs, rows[1+i].Bytes = a-allocs, s-size
	}
}

// calls is how many calls make a batch: as many as the first peer makes in that
// time, but no more than the slowest makes in four times as long. One that copies
// a body of a megabyte is slower by hundreds than one that passes it on.
func calls(callers []*caller, batch time.Duration) int {
	n := calibrate(callers[0], batch)
	for _, c := range callers[1:] {
		if some := calibrate(c, 4*batch); some < n {
			n = some
		}
	}
	return n
}

// calibrate is how many calls take about so long.
func calibrate(c *caller, batch time.Duration) int {
	n := goroutines
	for {
		start := time.Now()
		c.calls(n)
		took := time.Since(start)
		if took >= batch/16 {
			return max(int(float64(n)*float64(batch)/float64(took))/goroutines, 1) * goroutines
		}
		n *= 2
	}
}
