package jitter

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/benchmarks/internal/jittersim"
)

// The ratios of the paper at 200 clients: full jitter needs a fifth of the calls of no backoff,
// and a third of those of exponential backoff without jitter.
func TestStrategies_matchThePaper(t *testing.T) {
	const clients, seeds = 200, 50
	outcomes := map[string]jittersim.Outcome{}
	for _, s := range Strategies() {
		o := jittersim.Mean(seeds, clients, s.Backoff)
		outcomes[s.Name] = o
		t.Logf("%-24s %.0f calls, %v", s.Name, o.Calls, o.Time)
		require.GreaterOrEqual(t, o.Calls, float64(clients))
	}
	full, plain, none := outcomes["full jitter"], outcomes["exponential, no jitter"], outcomes["no backoff"]
	require.InEpsilon(t, 4.7, none.Calls/full.Calls, 0.1)
	require.InEpsilon(t, 3.0, plain.Calls/full.Calls, 0.1)
	require.Greater(t, plain.Time, 5*full.Time)
}
