package jitter

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/benchmarks/internal/report"
)

func noBackoff(int, time.Duration) time.Duration { return 0 }

func TestMean(t *testing.T) {
	first := meanOf(3, 20, noBackoff)
	require.Equal(t, first, meanOf(3, 20, noBackoff), "seeded")

	one := run(1, noBackoff, 1)
	require.InDelta(t, 1, one.Calls, 0, "one client writes once")
	require.Positive(t, one.Time)
}

// Without a backoff there are n rounds with one successful write each.
func TestRun_oneClientSucceedsPerRound(t *testing.T) {
	const clients = 50
	o := run(clients, noBackoff, 7)
	require.LessOrEqual(t, o.Calls, float64(clients*(clients+1)/2))
	require.Greater(t, o.Calls, float64(clients*(clients+1)/2)/3)
}

// The ratios of the paper at 200 clients: full jitter needs a fifth of the calls of no backoff,
// and a third of those of exponential backoff without jitter. UPDATE_DOCS=1 writes the results.
func TestStrategies_matchThePaper(t *testing.T) {
	const seeds = 50
	clients := []int{10, 50, 100, 150, 200}
	heading := []string{"calls / seconds until all succeed"}
	for _, n := range clients {
		heading = append(heading, fmt.Sprintf("%d clients", n))
	}
	table, last := report.NewTable(heading...), map[string]outcome{}
	for _, s := range strategies() {
		cells := []string{s.Name}
		for _, n := range clients {
			o := meanOf(seeds, n, s.Backoff)
			require.GreaterOrEqual(t, o.Calls, float64(n))
			cells = append(cells, fmt.Sprintf("%.0f / %.2f", o.Calls, o.Time.Seconds()))
			last[s.Name] = o
		}
		table.Row(cells...)
	}
	full, plain, none := last["full jitter"], last["exponential, no jitter"], last["no backoff"]
	require.InEpsilon(t, 4.7, none.Calls/full.Calls, 0.1)
	require.InEpsilon(t, 3.0, plain.Calls/full.Calls, 0.1)
	require.Greater(t, plain.Time, 5*full.Time)

	if os.Getenv("UPDATE_DOCS") == "1" {
		root, err := report.Root()
		require.NoError(t, err)
		require.NoError(t, report.WriteResults(root, "jitter", "UPDATE_DOCS=1 go test ./benchmarks/jitter", fmt.Sprintf(`# Calls by backoff strategy

The experiment of [Exponential Backoff And Jitter][jitter] (AWS Architecture Blog) with the Backoffs of this library, in
simulated time. Clients contend for one row until each has written once. The results are means over %d seeds.

With 200 clients, full jitter needs %.1f times fewer calls than no backoff. It needs %.1f times fewer calls and %.0f times less
time than exponential backoff without jitter.

[jitter]: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/

%s`, seeds, none.Calls/full.Calls, plain.Calls/full.Calls, plain.Time.Seconds()/full.Time.Seconds(), table)))
	}
}
