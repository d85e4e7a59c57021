package resilienthttp_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// Full jitter replaces the default waits.
func ExamplePolicy_backoff() {
	api := faulttest.New(nil, faulttest.Sequence(faulttest.Status(http.StatusBadGateway), faulttest.OK("")))
	defer api.Close()

	client := &http.Client{Transport: &resilienthttp.Transport{Policy: resilienthttp.Policy{
		MaxAttempts:   4,
		Backoff:       resilienthttp.FullJitter(50*time.Millisecond, 10*time.Second),
		MaxRetryAfter: 5 * time.Minute,
	}}}
	resp, err := client.Get(api.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	wait := resilienthttp.Attempts(resp)[0].RetryWait
	fmt.Println(resp.StatusCode, wait < time.Second)
	// Output: 200 true
}

// A server that asks for more than Policy.MaxRetryAfter gets no retry. NotBefore returns the
// time for the next call.
func ExampleNotBefore() {
	api := faulttest.New(nil, faulttest.Unavailable(time.Hour, faulttest.Seconds))
	defer api.Close()

	req, _ := http.NewRequestWithContext(context.Background(), http.MethodGet, api.URL, http.NoBody)
	resp, err := resilienthttp.NewClient().Do(req)
	if err == nil {
		_ = resp.Body.Close()
		fmt.Println(resp.StatusCode, resilienthttp.Attempts(resp)[0].StopReason)
	}
	if at := resilienthttp.NotBefore(resp, err); !at.IsZero() {
		fmt.Println("call again in", time.Until(at).Round(time.Minute)) // add jitter
	}
	// Output:
	// 503 server asks to wait longer than allowed
	// call again in 1h0m0s
}
