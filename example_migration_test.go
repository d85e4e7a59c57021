package resilienthttp_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// An existing http.Client gets a Transport around its RoundTripper.
func ExampleTransport_migration() {
	api := faulttest.New(nil, faulttest.Sequence(faulttest.Status(http.StatusBadGateway), faulttest.OK("")))
	defer api.Close()
	oldTransport := http.DefaultTransport.(*http.Transport).Clone()
	client := &http.Client{Transport: oldTransport}

	client.Transport = &resilienthttp.Transport{Base: oldTransport}

	resp, err := client.Get(api.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	fmt.Println(resp.StatusCode, len(resilienthttp.Attempts(resp)))
	// Output: 200 2
}

// A test that counts attempts needs no budget, no breaker and fixed waits.
func ExampleTransport_fixedAttempts() {
	api := faulttest.New(nil, faulttest.Status(http.StatusServiceUnavailable))
	defer api.Close()

	transport := &resilienthttp.Transport{
		Policy:  resilienthttp.Policy{MaxAttempts: 3, Backoff: resilienthttp.Constant(time.Millisecond)},
		Budget:  &resilienthttp.Budget{Ratio: -1},         // no limit
		Breaker: &resilienthttp.Breaker{FailureRatio: -1}, // never opens
	}

	client := &http.Client{Transport: transport}
	for range 10 {
		resp, err := client.Get(api.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = resp.Body.Close()
	}
	fmt.Println("requests:", api.Total())
	// Output: requests: 30
}
