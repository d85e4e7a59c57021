package jitter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func noBackoff(int, time.Duration) time.Duration { return 0 }

func TestMean(t *testing.T) {
	first := Mean(3, 20, noBackoff)
	require.Equal(t, first, Mean(3, 20, noBackoff), "seeded")

	one := Run(1, noBackoff, 1)
	require.InDelta(t, 1, one.Calls, 0, "one client writes once")
	require.Positive(t, one.Time)
}

// Without a backoff there are n rounds with one successful write each.
func TestRun_oneClientSucceedsPerRound(t *testing.T) {
	const clients = 50
	o := Run(clients, noBackoff, 7)
	require.LessOrEqual(t, o.Calls, float64(clients*(clients+1)/2))
	require.Greater(t, o.Calls, float64(clients*(clients+1)/2)/3)
}

// The ratios of the paper at 200 clients: full jitter needs a fifth of the calls of no backoff,
// and a third of those of exponential backoff without jitter.
func TestStrategies_matchThePaper(t *testing.T) {
	const clients, seeds = 200, 50
	outcomes := map[string]Outcome{}
	for _, s := range Strategies() {
		o := Mean(seeds, clients, s.Backoff)
		outcomes[s.Name] = o
		t.Logf("%-24s %.0f calls, %v", s.Name, o.Calls, o.Time)
		require.GreaterOrEqual(t, o.Calls, float64(clients))
	}
	full, plain, none := outcomes["full jitter"], outcomes["exponential, no jitter"], outcomes["no backoff"]
	require.InEpsilon(t, 4.7, none.Calls/full.Calls, 0.1)
	require.InEpsilon(t, 3.0, plain.Calls/full.Calls, 0.1)
	require.Greater(t, plain.Time, 5*full.Time)
}
