package resilienthttp_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// The call that opens the circuit gets the last response, and the time for another call is that of the
// circuit: the next call is rejected until then. It does not matter why the call is not retried.
func TestNotBefore_circuitOpensDuringCall(t *testing.T) {
	reject := resilienthttp.Policy{Classify: func(*resilienthttp.Attempt) resilienthttp.Verdict { return resilienthttp.VerdictPermanent }}
	for _, row := range []struct {
		name   string
		fault  http.Handler
		method string
		policy resilienthttp.Policy
		single bool
	}{
		{"a response", faulttest.Status(http.StatusInternalServerError), http.MethodGet, resilienthttp.Policy{}, false},
		{"no response", faulttest.ResetBeforeRead, http.MethodGet, resilienthttp.Policy{}, false},
		{"a response, one attempt", faulttest.Status(http.StatusInternalServerError), http.MethodGet, resilienthttp.Policy{MaxAttempts: 1}, false},
		{"no response, one attempt", faulttest.ResetBeforeRead, http.MethodGet, resilienthttp.Policy{MaxAttempts: 1}, false},
		{"a response, WithSingleAttempt", faulttest.Status(http.StatusInternalServerError), http.MethodGet, resilienthttp.Policy{}, true},
		{"no response, WithSingleAttempt", faulttest.ResetBeforeRead, http.MethodGet, resilienthttp.Policy{}, true},
		{"a PATCH without a key", faulttest.Status(http.StatusInternalServerError), http.MethodPatch, resilienthttp.Policy{}, false},
		{"a status that is never retried", faulttest.Status(http.StatusNotImplemented), http.MethodGet, resilienthttp.Policy{}, false},
		{"Classify ends the call", faulttest.Status(http.StatusInternalServerError), http.MethodGet, reject, false},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			srv := faulttest.NewInMemory(t, row.fault)
			transport := &resilienthttp.Transport{
				Base: srv.Transport(), Breaker: &resilienthttp.Breaker{MaxWait: -1, MinRequests: 1, Cooldown: 5 * time.Second, MaxCooldown: 5 * time.Second},
				Policy: row.policy, Idempotency: resilienthttp.Idempotency{Disabled: true},
			}
			ctx := t.Context()
			if row.single {
				ctx = resilienthttp.WithSingleAttempt(ctx)
			}
			call := func() (*http.Response, error) {
				resp, err := (&http.Client{Transport: transport}).Do(newRequest(t, row.method, srv.URL, "").WithContext(ctx))
				if err == nil {
					require.NoError(t, resp.Body.Close())
				}
				return resp, err
			}
			at := resilienthttp.NotBefore(call())
			wait := time.Until(at)
			require.GreaterOrEqual(t, wait, 4*time.Second)
			require.LessOrEqual(t, wait, 7*time.Second)
			require.Equal(t, 1, srv.Total())

			time.Sleep(wait - time.Millisecond)
			_, err := call()
			require.ErrorIs(t, err, resilienthttp.ErrBreakerOpen)
			require.Equal(t, at, resilienthttp.NotBefore(nil, err))
			time.Sleep(time.Millisecond)
			_, _ = call()
			require.GreaterOrEqual(t, srv.Total(), 2, "a probe")
		})
	}
}
