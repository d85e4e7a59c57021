package outerclient

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp/internal/scope"
)

// A hundred thousand failures keep only the latest requests in memory, and a request is forgotten after
// repeatWindow.
func TestFailedCalls_bounded(t *testing.T) {
	f := NewFailedCalls()
	require.False(t, f.Any(0), "no failure")
	const n = 100_000
	for i := range uint64(n) {
		f.Add(RequestID{text: i + 1}, time.Duration(i))
		require.LessOrEqual(t, f.requests.Len(), scope.DefaultMax)
	}
	require.True(t, f.Has(RequestID{text: n}, n))
	require.True(t, f.Has(RequestID{text: n - scope.DefaultMax/2}, n))
	require.False(t, f.Has(RequestID{text: 1}, n))
	for _, id := range []uint64{n, n - scope.DefaultMax/2} {
		f.Remove(RequestID{text: id})
		require.False(t, f.Has(RequestID{text: id}, n))
	}
	f.Add(RequestID{text: 1}, n)
	f.Add(RequestID{text: 2}, n+repeatWindow/2)
	require.True(t, f.Has(RequestID{text: 1}, n+repeatWindow-1))
	require.False(t, f.Has(RequestID{text: 1}, n+repeatWindow), "its failure has expired")
	require.True(t, f.Has(RequestID{text: 2}, n+repeatWindow))
	require.Greater(t, f.until.Load(), int64(n))
	require.Less(t, f.until.Load(), int64(n+2*repeatWindow))
}
