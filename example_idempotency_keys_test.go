package resilienthttp_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// Without keys a POST is not retried after a 502, because the server may have done the work.
func ExampleIdempotency() {
	api := faulttest.New(nil, faulttest.Status(http.StatusBadGateway))
	defer api.Close()

	transport := &resilienthttp.Transport{
		Idempotency: resilienthttp.Idempotency{Disabled: true}, // this API does not honor keys
	}
	client := &http.Client{Transport: transport}
	resp, err := client.Post(api.URL, "application/json", strings.NewReader(`{"amount":100}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	fmt.Println(resp.StatusCode, "attempts:", api.Total(), "key:", api.Requests()[0].Key != "")
	fmt.Println(resilienthttp.Attempts(resp)[0].StopReason)
	// Output:
	// 502 attempts: 1 key: false
	// request is not idempotent
}

// The header and the hosts of an API that honors keys.
func ExampleIdempotency_header() {
	api := faulttest.New(nil, faulttest.Status(http.StatusCreated))
	defer api.Close()
	host := strings.TrimPrefix(api.URL, "http://")

	transport := &resilienthttp.Transport{
		Idempotency: resilienthttp.Idempotency{
			Header: "PayPal-Request-Id",
			Hosts:  []string{host}, // such as "api-m.paypal.com" or "*.example.com"
		},
	}
	client := &http.Client{Transport: transport}
	resp, err := client.Post(api.URL, "application/json", strings.NewReader("{}"))
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	fmt.Println("characters of the key:", len(api.Requests()[0].Header.Get("PayPal-Request-Id")))
	// Output: characters of the key: 36
}

// The caller's own key makes two calls one operation: here the caller repeats the call after
// its process was restarted, and the server executes it once.
func ExampleIdempotency_ownKey() {
	charges := &faulttest.Idempotent{}
	api := faulttest.New(nil, charges)
	defer api.Close()

	for range 2 { // before and after a restart
		client := resilienthttp.NewClient()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		ctx = resilienthttp.WithIdempotencyKey(ctx, "comp1:invoice:001")
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, api.URL, strings.NewReader(`{"amount":100}`))
		if err != nil {
			fmt.Println(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			fmt.Println(err)
		} else {
			_ = resp.Body.Close()
			fmt.Println(resp.StatusCode)
		}
		cancel()
	}
	fmt.Println("charges:", len(charges.Executions()))
	// Output:
	// 201
	// 201
	// charges: 1
}
