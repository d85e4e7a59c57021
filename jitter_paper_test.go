package resilienthttp

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/jittersim"
)

// paperStrategy is a strategy of the paper, by our means.
type paperStrategy struct {
	name    string
	backoff Backoff
}

// The paper doubles before the first retry too, so that it draws from 2·base
// where ours draws from base; hence the factor.
func paperStrategies() []paperStrategy {
	return []paperStrategy{
		{"none", Constant(0)},
		{"exponential", Exponential(2*jittersim.Base, jittersim.Max)},
		{"equal", EqualJitter(2*jittersim.Base, jittersim.Max)},
		{"full", FullJitter(2*jittersim.Base, jittersim.Max)},
		{"decorrelated", DecorrelatedJitter(jittersim.Base, jittersim.Max)},
		{"decorrelated, as printed", paperDecorrelated},
	}
}

// paperDecorrelated is the paper's formula to the letter, which sticks at the
// cap.
func paperDecorrelated(_ int, prev time.Duration) time.Duration {
	prev = max(prev, jittersim.Base)
	return min(jittersim.Max, jittersim.Base+randomUpTo(3*prev-jittersim.Base))
}

// TestJitterPaper repeats the simulation of the AWS paper with the strategies of this package
// (see internal/jittersim), and checks the conclusions of the paper:
//
//   - Without backoff, the calls grow with the square of the clients. Plain exponential backoff
//     helps little: its clients still come in clusters, and it takes the longest by far.
//   - Every kind of jitter makes a fraction of the calls, in a fraction of the time of plain
//     exponential backoff.
//   - Equal jitter makes slightly more calls than full jitter, and takes much longer. This is
//     true up to about 150 clients (the paper plots 100). At 200 both are about equal, as in the
//     paper's simulator.
//   - Full jitter makes the fewest calls; decorrelated jitter makes more, but ends a little
//     sooner.
//
// The network is seeded. For strategies with other randomness, each asserted difference is at
// least about seven standard errors.
func TestJitterPaper(t *testing.T) {
	contests := []struct{ clients, runs int }{{10, 100}, {50, 50}, {100, 80}, {200, 30}}
	strategies := paperStrategies()
	means := map[string]map[int]jittersim.Outcome{}

	var table strings.Builder
	fmt.Fprintf(&table, "\n%-25s", "calls / seconds until done")
	for _, c := range contests {
		fmt.Fprintf(&table, "%9d clients", c.clients)
	}
	for _, s := range strategies {
		means[s.name] = map[int]jittersim.Outcome{}
		fmt.Fprintf(&table, "\n%-26s", s.name)
		for _, c := range contests {
			mean := jittersim.Mean(c.runs, c.clients, s.backoff)
			means[s.name][c.clients] = mean
			fmt.Fprintf(&table, "%9.0f /%6.2f", mean.Calls, mean.Time.Seconds())
		}
	}
	t.Log(table.String())

	calls := func(name string, clients int) float64 { return means[name][clients].Calls }
	done := func(name string, clients int) time.Duration { return means[name][clients].Time }

	for _, n := range []int{50, 100, 200} {
		require.Greater(t, calls("none", n), calls("exponential", n), "%d clients", n)
		for _, jitter := range []string{"equal", "full", "decorrelated"} {
			require.Greater(t, calls("exponential", n), 1.5*calls(jitter, n), "%s, %d clients", jitter, n)
			require.Greater(t, done("exponential", n), 5*done(jitter, n), "%s, %d clients", jitter, n)
		}
		require.Greater(t, calls("decorrelated", n), calls("full", n), "%d clients", n)
		require.Greater(t, calls("decorrelated", n), calls("equal", n), "%d clients", n)
		require.Greater(t, done("equal", n), done("full", n), "%d clients", n)
	}
	for _, n := range []int{50, 100} {
		require.Greater(t, calls("equal", n), calls("full", n), "%d clients", n)
	}
	require.InEpsilon(t, calls("equal", 200), calls("full", 200), 0.03)
	require.Greater(t, done("full", 100), done("decorrelated", 100))

	// Quadratic against nearly linear.
	require.Greater(t, calls("none", 200), 3.2*calls("none", 100))
	require.Less(t, calls("full", 200), 2.6*calls("full", 100))

	// What our change to decorrelated jitter is for.
	require.Less(t, done("decorrelated", 200), done("decorrelated, as printed", 200))
	require.InEpsilon(t, calls("decorrelated, as printed", 200), calls("decorrelated", 200), 0.05)
}
