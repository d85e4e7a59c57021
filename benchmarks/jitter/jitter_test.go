package jitter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The ratios of the paper's figures, at 200 clients: full jitter takes a fifth of
// the calls of no backoff, and a third of those of plain exponential backoff.
func TestPaper(t *testing.T) {
	const clients, seeds = 200, 50
	outcomes := map[string]Outcome{}
	for _, s := range Strategies() {
		o := Mean(seeds, clients, s.Backoff)
		outcomes[s.Name] = o
		t.Logf("%-24s %.0f calls, %v", s.Name, o.Calls, o.Time)
		require.GreaterOrEqual(t, o.Calls, float64(clients))
	}
	full, equal, plain, none := outcomes["full jitter"], outcomes["equal jitter"], outcomes["exponential, no jitter"], outcomes["no backoff"]
	require.InEpsilon(t, 4.7, none.Calls/full.Calls, 0.1)
	require.InEpsilon(t, 3.0, plain.Calls/full.Calls, 0.1)
	require.Greater(t, equal.Time, full.Time, "equal jitter is the loser of the three that jitter")
	require.Greater(t, plain.Time, 5*full.Time)
}

func TestMean(t *testing.T) {
	s := Strategies()[4]
	require.Equal(t, "no backoff", s.Name)
	first := Mean(3, 20, s.Backoff)
	require.Equal(t, first, Mean(3, 20, s.Backoff), "seeded")

	one := contest(1, s.Backoff, 1)
	require.InDelta(t, 1, one.Calls, 0, "nobody to contend with")
	require.Positive(t, one.Time)
}

// Without randomness there are n rounds: each lets one client through.
func TestContestLetsOneThroughPerRound(t *testing.T) {
	const clients = 50
	o := contest(clients, Strategies()[4].Backoff, 7)
	require.LessOrEqual(t, o.Calls, float64(clients*(clients+1)/2))
	require.Greater(t, o.Calls, float64(clients*(clients+1)/2)/3)
}

func TestQueue(t *testing.T) {
	var q queue
	for _, at := range []time.Duration{5, 3, 8, 1, 9, 2, 7, 4, 6, 0} {
		q.push(message{at: at})
	}
	for want := range time.Duration(10) {
		require.Equal(t, want, q.pop().at)
	}
	require.Empty(t, q)
}
