package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// Three tiers without retries send one attempt to the server and return its response. Three
// tiers with four attempts each send more.
func TestTiers(t *testing.T) {
	at := func(peer string) Result {
		libraries, err := peers.Named(peer)
		require.NoError(t, err)
		s := Scenario{Name: "tiers", During: 5 * time.Second, Tiers: 3, Load: Load{Rate: 20}, Server: always(1, Response{Status: 500})}
		return Run(t, Config{Scenario: s, Peer: libraries[0], Topology: Shared, Seed: Seed})
	}
	require.InDelta(t, 1, at("bare").AttemptsPerCall(), 1e-9)
	require.InDelta(t, 64, at("naive").AttemptsPerCall(), 1e-9)
	require.Zero(t, at("bare").Succeeded)
}
