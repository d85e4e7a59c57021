package resilienthttp_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/config"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// Package config reads what operators set in JSON. Fields that the text does not name keep the
// program's values.
func ExampleTransport() {
	transport := &resilienthttp.Transport{
		Policy: resilienthttp.Policy{MaxAttempts: 3, AttemptTimeout: 5 * time.Second},
	}
	text := strings.NewReader(`{
		"Policy":    {"AttemptTimeout": "2s", "Backoff": {"Strategy": "FullJitter", "Base": "100ms", "Max": "10s"}},
		"RateLimit": {"Limit": 50},
		"Hedge":     {}
	}`)
	err := config.Read(text, transport) // it calls Validate
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(transport.Policy.MaxAttempts, transport.Policy.AttemptTimeout, transport.RateLimit.Limit, transport.Hedge != nil)
	// Output: 3 2s 50 true
}

// Validate names all invalid fields. Call it when the program starts.
func ExampleTransport_Validate() {
	transport := &resilienthttp.Transport{
		Policy:  resilienthttp.Policy{AttemptTimeout: 5},  // 5 ns: the unit is missing
		Breaker: &resilienthttp.Breaker{FailureRatio: 50}, // a ratio, not a percentage
	}
	err := transport.Validate()
	for _, field := range []string{"Policy.AttemptTimeout", "Breaker.FailureRatio", "Breaker.Window"} {
		fmt.Println(field, "is invalid:", strings.Contains(err.Error(), field))
	}
	// Output:
	// Policy.AttemptTimeout is invalid: true
	// Breaker.FailureRatio is invalid: true
	// Breaker.Window is invalid: false
}

// WithPolicy replaces the whole policy of a call: change a copy of the Transport's.
func ExampleWithPolicy_copy() {
	api := faulttest.New(nil, faulttest.Status(http.StatusInternalServerError))
	defer api.Close()

	policy := resilienthttp.Policy{Backoff: resilienthttp.Constant(time.Millisecond)}
	transport := &resilienthttp.Transport{Policy: policy}

	once := policy // that of &resilienthttp.Transport{Policy: policy}
	once.MaxAttempts = 2
	ctx := resilienthttp.WithPolicy(context.Background(), once)

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, api.URL, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	fmt.Println(resp.StatusCode, "attempts:", api.Total())
	// Output: 500 attempts: 2
}

// The number of attempts and the waits are known beforehand. Budget and breaker still protect the server.
func ExampleTransport_fixedSchedule() {
	api := faulttest.New(nil, faulttest.Status(http.StatusInternalServerError))
	defer api.Close()

	transport := &resilienthttp.Transport{
		Policy: resilienthttp.Policy{
			MaxAttempts:    3,
			Backoff:        resilienthttp.FullJitter(200*time.Millisecond, 2*time.Second),
			AttemptTimeout: 10 * time.Second, // so a slow GET gets no second attempt
		},
		Budget:  &resilienthttp.Budget{Static: true},
		Breaker: &resilienthttp.Breaker{Static: true},
	}

	resp, err := (&http.Client{Transport: transport}).Get(api.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	fmt.Println(resp.StatusCode, "attempts:", api.Total())
	// Output: 500 attempts: 3
}

// MaxAge renews connections, so that a client follows DNS and rolling deploys.
func ExampleConnections() {
	transport := &resilienthttp.Transport{Base: &resilienthttp.Connections{MaxAge: 10 * time.Minute}} // follows DNS, and rolling deploys
	fmt.Println(transport.Validate())
	// Output: <nil>
}
