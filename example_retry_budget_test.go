package resilienthttp_test

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// A budget limits the retries of 50 calls that all fail quickly to 20: five tokens at the start, a
// tenth of a token for each call, and half a token for each retry.
func ExampleBudget() {
	api := faulttest.New(nil, faulttest.Status(http.StatusInternalServerError))
	defer api.Close()

	transport := &resilienthttp.Transport{
		Policy:  resilienthttp.Policy{Backoff: resilienthttp.Constant(time.Millisecond)},
		Budget:  &resilienthttp.Budget{Ratio: 0.1, Burst: 5}, // the defaults
		Breaker: &resilienthttp.Breaker{FailureRatio: -1},    // off, or most calls would wait
	}
	client := &http.Client{Transport: transport}
	var last resilienthttp.Attempt
	for range 50 {
		resp, err := client.Get(api.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = resp.Body.Close()
		attempts := resilienthttp.Attempts(resp)
		last = attempts[len(attempts)-1]
	}
	fmt.Println("retries:", api.Total()-50)
	fmt.Println(errors.Is(last.StopReason, resilienthttp.ErrBudgetExhausted), last.StopReason)
	// Output:
	// retries: 20
	// true retry budget exhausted
}

// Transports share a budget by its pointer. All their retries to a host then use one bucket.
func ExampleBudget_shared() {
	api := faulttest.New(nil, faulttest.Status(http.StatusInternalServerError))
	defer api.Close()

	budget := &resilienthttp.Budget{Ratio: 0.2, Burst: 3}
	reads := &resilienthttp.Transport{Budget: budget}
	writes := &resilienthttp.Transport{Budget: budget}

	for _, transport := range []*resilienthttp.Transport{reads, writes} {
		transport.Policy.Backoff = resilienthttp.Constant(time.Millisecond)
		resp, err := (&http.Client{Transport: transport}).Get(api.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = resp.Body.Close()
		fmt.Println("attempts:", len(resilienthttp.Attempts(resp)))
	}
	// Output:
	// attempts: 6
	// attempts: 2
}
