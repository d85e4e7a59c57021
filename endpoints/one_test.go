package endpoints_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/endpoints"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// N4: An SDK has a list of regions, and its user sets one: the list must not cost what a Transport without a list has.
func TestTransport_oneEndpoint(t *testing.T) {
	only, err := url.Parse("http://fault.test")
	if err != nil {
		t.Fatal(err)
	}
	faulttest.TestTransport(t, func(base http.RoundTripper) http.RoundTripper {
		return &endpoints.Transport{
			Endpoints: []endpoints.Endpoint{{URL: only}},
			Transport: &resilienthttp.Transport{Base: base},
		}
	})
}
