package resilienthttp

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// §4.15: an attempt that a gate rejects returns the permit of the previous gate, once. Otherwise
// the circuit would count too few requests in flight.
func TestRejectedAttempt_holdsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &Transport{RateLimit: &RateLimit{Limit: 0.001, Burst: 1, MaxWait: -1}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api.test/", nil)
		require.NoError(t, err)
		c := &call{facts: facts{config: tr.configured(), request: req}}
		require.Nil(t, c.begin())
		require.Nil(t, c.prepare(&c.first))
		require.NotZero(t, c.first.permits.circuit)
		require.NotNil(t, c.first.permits.quota)
		hedge := &attempt{call: c, visit: c.first.visit, hedged: &hedgedCall{call: c, original: &c.first}, concurrent: true}
		rejected := c.prepare(hedge)
		require.ErrorIs(t, rejected, ErrRateLimited)
		require.Zero(t, hedge.permits.circuit)
		require.Nil(t, hedge.permits.quota)
		hedge.abandon()
		c.first.abandon()
		require.Zero(t, c.first.permits.circuit)
		require.Nil(t, c.first.permits.quota)
		time.Sleep(time.Hour) // its timer has no effect
	})
}

// The names of violated policies are short and printable, whatever the body is.
func FuzzViolatedPolicies(f *testing.F) {
	f.Add([]byte(`{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","violated-policies":["daily"]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		names := violatedPolicies(body)
		require.LessOrEqual(t, len(names), 16)
		for _, name := range names {
			require.Regexp(t, `^[ -~]{1,128}$`, name)
		}
	})
}
