package resilienthttp

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRefusedAttemptHoldsNothing is §4.15: what a gate refuses, after another let it
// through, gives that one's permit back, and does not hold it any more to give it back
// again: the valve's count of requests in flight would fall below what is.
func TestRefusedAttemptHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &Transport{RateLimit: &RateLimit{Limit: 0.001, Burst: 1, MaxWait: -1}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api.test/", nil)
		require.NoError(t, err)
		c, err := tr.plan(req)
		require.NoError(t, err)
		require.Nil(t, c.prepare(&c.first))
		require.NotZero(t, c.first.permit)
		hedge := &attempt{call: c, round: &c.first.own, beside: true}
		refused := c.prepare(hedge)
		require.ErrorIs(t, refused, ErrRateLimited)
		require.Zero(t, hedge.permit)
		require.Zero(t, hedge.ticket)
		hedge.abandon()
		c.first.abandon()
		require.Zero(t, c.first.permit)
		time.Sleep(time.Hour) // nothing is left of its timer
	})
}
