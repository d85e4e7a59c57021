// Package interleave measures contenders beside each other, for benchmarks whose ratios must
// mean something on a machine that others use too.
package interleave

import (
	"slices"
	"testing"
	"time"
)

// Contender is one of those that are measured.
type Contender struct {
	// Name is part of the metrics' names.
	Name string

	// Work does so much of what is measured, and says how much and how long it took. What
	// it did to prepare that is not counted.
	Work func() (done int, took time.Duration)
}

// Rates lets the contenders work in turns, each so many times in an iteration of the
// benchmark. It reports for each the median of its rates, as name/s, and for all but the
// first the median of the rounds' ratios of the first to it, as x-name.
func Rates(b *testing.B, times int, contenders ...Contender) {
	b.Helper()
	left := 0
	rates := Turns(func() bool {
		if left--; left >= 0 {
			return true
		}
		left = times - 1
		return b.Loop()
	}, contenders...)
	for i, c := range contenders {
		b.ReportMetric(Quantile(rates[i], 0.5), c.Name+"/s")
		if i > 0 {
			b.ReportMetric(Quantile(Ratios(rates[0], rates[i]), 0.5), "x-"+c.Name)
		}
	}
	b.ReportMetric(0, "ns/op") // of all of them together: it says nothing
}

// Turns lets each contender work once in every round while next says so, the first of
// them first in the first round, the second in the second, and so on. It returns the
// rates, per second, of each contender in each round.
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

// Size is how many of something a benchmark is about: n, or with -short, which shows only
// that it runs, a fiftieth.
func Size(n int) int {
	if testing.Short() {
		return (n + 49) / 50
	}
	return n
}

// Await waits until done has said so n times, or fails after a minute.
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

// Ratios are those of a to b, round by round.
func Ratios(a, b []float64) []float64 {
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = a[i] / b[i]
	}
	return ratios
}

// Quantile is the q-th of the values, 0.5 the median; of an even number the upper one. It
// is 0 of none.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
