package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// Three tiers that each make one attempt are one attempt at the bottom, and the
// bottom's answer is the top's; three that each make four are not.
func TestTiers(t *testing.T) {
	at := func(peer string) Result {
		who, err := peers.Named(peer)
		require.NoError(t, err)
		s := Scenario{Name: "tiers", During: 5 * time.Second, Tiers: 3, Load: Load{Rate: 20}, Server: always(1, Response{Status: 500})}
		return Run(t, Config{Scenario: s, Peer: who[0], Topology: Shared, Seed: Seed})
	}
	require.InDelta(t, 1, at("bare").AttemptsPerCall(), 1e-9)
	require.InDelta(t, 64, at("naive").AttemptsPerCall(), 1e-9)
	require.Zero(t, at("bare").Succeeded)
}
