package endpoints_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/endpoints"
)

// A clock that is set back does not keep POSTs from probing: each synctest bubble begins at the same time.
func TestTransport_clockSetBack(t *testing.T) {
	var working atomic.Bool
	base := roundTripper(func(req *http.Request) (*http.Response, error) {
		if req.URL.Host == "a.test" && !working.Load() {
			return refused.RoundTrip(req)
		}
		return answers(200, nil).RoundTrip(req)
	})
	tr := &endpoints.Transport{
		Endpoints: []endpoints.Endpoint{{Name: "a", URL: parse(t, "http://a.test")}, {Name: "b", URL: parse(t, "http://b.test")}},
		Transport: &resilienthttp.Transport{Base: base},
	}
	post := func() string {
		resp, err := send(t, tr, http.MethodPost, "http://a.test/x", "{}")
		require.NoError(t, err)
		return visited(resp, err)
	}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(24 * time.Hour)
		_, err := send(t, tr, http.MethodGet, "http://a.test/x", "")
		require.NoError(t, err)
	})
	synctest.Test(t, func(t *testing.T) {
		for range 100 { // opens the circuit
			post()
			time.Sleep(100 * time.Millisecond)
		}
		working.Store(true)
		for range 100 {
			post()
			time.Sleep(100 * time.Millisecond)
		}
		require.Equal(t, "a", post())
	})
}
