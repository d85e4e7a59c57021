package resilienthttp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
)

// Each request of the call sends the deadline of its context. DeadlineHandler gives it to the server.
func ExampleDeadlineHandler_server() {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		deadline, _ := r.Context().Deadline()
		fmt.Println("received", r.Header.Get("X-Request-Timeout-Ms") != "", time.Until(deadline).Round(10*time.Second))
		w.WriteHeader(http.StatusNoContent)
	})
	withDeadline := resilienthttp.DeadlineHandler{Next: handler, Max: time.Minute}
	server := httptest.NewServer(withDeadline)
	defer server.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, http.NoBody)
	resp, err := resilienthttp.NewClient().Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	fmt.Println(resp.StatusCode)
	// Output:
	// received true 30s
	// 204
}

// AttemptTimeout limits the time to the response headers, ReadTimeout each Read of the body,
// and the context the whole call.
func ExamplePolicy_timeouts() {
	api := faulttest.New(nil, faulttest.OK("done"))
	defer api.Close()

	client := &http.Client{Transport: &resilienthttp.Transport{Policy: resilienthttp.Policy{
		AttemptTimeout: 10 * time.Second,
		ReadTimeout:    30 * time.Second,
	}}}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, api.URL, http.NoBody)
	resp, err := client.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	at, _ := time.Parse(time.RFC3339, api.Requests()[0].Header.Get("X-Request-Deadline"))
	fmt.Println(resp.StatusCode, time.Until(at).Round(10*time.Second)) // the earlier of both limits
	// Output: 200 10s
}

// A long poll is slow by design. A negative AttemptTimeout prevents a second attempt.
func ExampleWithPolicy_longPoll() {
	api := faulttest.New(nil, faulttest.Reply{Delay: 50 * time.Millisecond, Body: "event"})
	defer api.Close()

	policy := resilienthttp.Policy{MaxRetryAfter: 10 * time.Second}
	transport := &resilienthttp.Transport{Policy: policy}

	longPoll := policy
	longPoll.AttemptTimeout = -1 // slow by design
	ctx := resilienthttp.WithPolicy(context.Background(), longPoll)
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, api.URL, http.NoBody)
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	fmt.Println(resp.StatusCode, "requests:", api.Total())
	// Output: 200 requests: 1
}
