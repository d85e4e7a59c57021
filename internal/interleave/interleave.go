// Package interleave measures contenders in turns, so that ratios between them are valid also
// on a machine with other load.
package interleave

import (
	"slices"
	"testing"
	"time"
)

// Contender is one of the measured implementations.
type Contender struct {
	// Name is part of the metrics' names.
	Name string

	// Work does some work, and returns its amount and duration without the preparation.
	Work func() (done int, took time.Duration)
}

// Rates lets the contenders work in turns, for a number of rounds in each iteration of the
// benchmark. It reports the median rate of each contender as name/s. As x-name it reports
// the median of the rounds' ratios of the first contender's rate to that of the other.
func Rates(b *testing.B, rounds int, contenders ...Contender) {
	b.Helper()
	remaining := 0
	rates := Turns(func() bool {
		if remaining--; remaining >= 0 {
			return true
		}
		remaining = rounds - 1
		return b.Loop()
	}, contenders...)
	for i, c := range contenders {
		b.ReportMetric(Quantile(rates[i], 0.5), c.Name+"/s")
		if i > 0 {
			b.ReportMetric(Quantile(Ratios(rates[0], rates[i]), 0.5), "x-"+c.Name)
		}
	}
	b.ReportMetric(0, "ns/op") // it would be the time of all contenders together
}

// Turns lets each contender work once per round, while next returns true. Each round
// begins with the next contender. It returns the rates, per second, of each contender in
// each round.
func Turns(next func() bool, contenders ...Contender) [][]float64 {
	rates := make([][]float64, len(contenders))
	for round := 0; next(); round++ {
		for turn := range contenders {
			i := (round + turn) % len(contenders)
			done, took := contenders[i].Work()
			rates[i] = append(rates[i], float64(done)/max(took, 1).Seconds())
		}
	}
	return rates
}

// Size returns n, or a fiftieth of it with -short, which only shows that a benchmark runs.
func Size(n int) int {
	if testing.Short() {
		return (n + 49) / 50
	}
	return n
}

// Await receives n times from done, or fails the benchmark after a minute.
func Await[T any](b *testing.B, done <-chan T, n int) {
	b.Helper()
	timeout := time.After(time.Minute)
	for i := range n {
		select {
		case <-done:
		case <-timeout:
			b.Fatalf("too slow: %d of %d are done", i, n)
		}
	}
}

// Ratios returns the ratio of a to b in each round.
func Ratios(a, b []float64) []float64 {
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = a[i] / b[i]
	}
	return ratios
}

// Quantile returns the q-quantile of the values, such as the median for 0.5, without
// interpolation. Without values it returns 0.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
