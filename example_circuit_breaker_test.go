package resilienthttp_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// A circuit opens when 90 % of 20 results are failures. The next call is rejected without a
// request.
func ExampleBreaker() {
	const takes = 5 * time.Millisecond
	served, failed := faulttest.Reply{Status: http.StatusOK, Delay: takes}, faulttest.Reply{Status: http.StatusInternalServerError, Delay: takes}
	api := faulttest.New(nil, faulttest.Sequence(served, served, failed))
	defer api.Close()

	transport := &resilienthttp.Transport{
		Breaker: &resilienthttp.Breaker{
			FailureRatio: 0.9, // the default
			Cooldown:     5 * time.Second,
			MaxCooldown:  time.Minute,
			MaxWait:      -1, // calls fail at once while the circuit is open
			OnChange: func(change resilienthttp.BreakerChange) {
				fmt.Println("circuit:", change.From, "→", change.To)
			},
		},
		Policy: resilienthttp.Policy{MaxAttempts: -1}, // no retries: each call has one result
	}
	client := &http.Client{Transport: transport}
	for range 21 {
		resp, err := client.Get(api.URL)
		if errors.Is(err, resilienthttp.ErrBreakerOpen) {
			fmt.Println("rejected; wait:", time.Until(resilienthttp.NotBefore(resp, err)) > 4*time.Second)
			break
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = resp.Body.Close()
	}
	fmt.Println("requests:", api.Total()) // ten failures after two successes: that is no chance
	// Output:
	// circuit: closed → open
	// rejected; wait: true
	// requests: 12
}

// With a scope for each endpoint, the failures of one endpoint do not open the circuit of the
// others.
func ExampleTransport_scope() {
	api := faulttest.New(nil, faulttest.Script{
		{Route: "/export", Handler: faulttest.Status(http.StatusInternalServerError)},
		{Route: "/charge", Handler: faulttest.Status(http.StatusOK)},
	})
	defer api.Close()

	transport := &resilienthttp.Transport{
		Scope:   func(r *http.Request) string { return r.URL.Host + r.URL.Path }, // few and known paths
		Breaker: &resilienthttp.Breaker{Cooldown: 5 * time.Second, MaxWait: -1},
		Policy:  resilienthttp.Policy{MaxAttempts: -1},
	}
	client := &http.Client{Transport: transport}
	for range 20 {
		resp, err := client.Get(api.URL + "/export")
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = resp.Body.Close()
	}
	resp, err := client.Get(api.URL + "/charge")
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	for _, scope := range transport.State().Scopes {
		_, path, _ := strings.Cut(scope.Scope, "/")
		fmt.Println(path, scope.Breaker.State)
	}
	// Output:
	// charge closed
	// export open
}
