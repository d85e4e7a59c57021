package resilienthttp_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// The call that finds the circuit open gets the last response, and the time for another call is that of the
// circuit: the next call is rejected until then.
func TestNotBefore_circuitOpensDuringCall(t *testing.T) {
	for name, fault := range map[string]http.Handler{
		"a response": faulttest.Status(http.StatusInternalServerError), "no response": faulttest.ResetBeforeRead,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := faulttest.NewInMemory(t, fault)
				transport := &resilienthttp.Transport{
					Base: srv.Transport(), Breaker: &resilienthttp.Breaker{MinRequests: 1, Cooldown: 5 * time.Second, MaxCooldown: 5 * time.Second},
				}
				call := func() (*http.Response, error) {
					resp, err := (&http.Client{Transport: transport}).Get(srv.URL)
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
				require.Equal(t, 2, srv.Total(), "a probe")
			})
		})
	}
}
