package peers

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
)

// A variant has a name that -peer knows, and keeps what the scenario has configured.
func TestVariants(t *testing.T) {
	for _, p := range Variants() {
		found, err := Named(p.Name)
		require.NoError(t, err)
		require.Equal(t, p.Note, found[0].Note)
		require.NotContains(t, Names(), p.Name, "not a library of the tables")
	}
	configured := resilienthttp.Transport{RateLimit: &resilienthttp.RateLimit{Burst: 7}, Breaker: &resilienthttp.Breaker{MinRequests: 9}}
	for _, tr := range []*resilienthttp.Transport{{}, &configured} {
		ignoreHeaders(tr)
		fixBreaker(tr)
		require.True(t, tr.RateLimit.IgnoreHeaders)
		require.True(t, tr.Breaker.Static)
	}
	require.Equal(t, 7, configured.RateLimit.Burst)
	require.Equal(t, 9, configured.Breaker.MinRequests)
}
