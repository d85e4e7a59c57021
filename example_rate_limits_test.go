package resilienthttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/quotastore"
)

// A fixed limit of the client's own. With a negative MaxWait no call waits.
func ExampleRateLimit() {
	api := faulttest.New(nil, faulttest.Status(http.StatusOK))
	defer api.Close()

	transport := &resilienthttp.Transport{
		RateLimit: &resilienthttp.RateLimit{
			Limit:   5, // requests per second, retries and hedges included
			Burst:   2, // at most 2 + 5 × s
			MaxWait: -1,
		},
	}
	client := &http.Client{Transport: transport}
	for range 3 {
		resp, err := client.Get(api.URL)
		if errors.Is(err, resilienthttp.ErrRateLimited) {
			fmt.Println("rejected; wait at most 200ms:", time.Until(resilienthttp.NotBefore(resp, err)) <= 200*time.Millisecond)
			continue
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = resp.Body.Close()
		fmt.Println(resp.StatusCode)
	}
	// Output:
	// 200
	// 200
	// rejected; wait at most 200ms: true
}

// The quota of the server's headers needs no configuration. The third call would wait for the
// end of the hour, which is longer than MaxWait. It fails at once, and the server receives
// two requests.
func ExampleRateLimit_headers() {
	api := faulttest.New(nil, &faulttest.Quota{Limit: 2, Window: time.Hour, Dialect: faulttest.GitHub})
	defer api.Close()

	transport := &resilienthttp.Transport{
		RateLimit: &resilienthttp.RateLimit{MaxWait: 10 * time.Second},
	}
	client := &http.Client{Transport: transport}
	for range 3 {
		resp, err := client.Get(api.URL)
		if err != nil {
			fmt.Println(errors.Is(err, resilienthttp.ErrRateLimited), resilienthttp.NotBefore(resp, err).IsZero())
			continue
		}
		_ = resp.Body.Close()
		fmt.Println(resp.Header.Get("X-Ratelimit-Remaining"), "remaining")
	}
	for _, quota := range transport.State().Scopes[0].Quotas {
		fmt.Println(quota.Bucket, quota.Limit, quota.Remaining, "requests:", api.Total())
	}
	// Output:
	// 1 remaining
	// 0 remaining
	// true false
	// core 2 0 requests: 2
}

// Processes share one quota by a store. Here both Transports are in one process and use a
// store in memory.
func ExampleRateLimit_shared() {
	api := faulttest.New(nil, faulttest.Status(http.StatusOK))
	defer api.Close()

	store := &quotastore.Memory{} // with several processes: redisstore.Store
	for range 2 {
		limit := &resilienthttp.RateLimit{Limit: 1, Burst: 10, Shared: store} // equal in all processes
		transport := &resilienthttp.Transport{RateLimit: limit}
		resp, err := (&http.Client{Transport: transport}).Get(api.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = resp.Body.Close()
		fmt.Println(resp.StatusCode, "remaining:", transport.State().Scopes[0].Quotas[0].Remaining)
	}
	// Output:
	// 200 remaining: 9
	// 200 remaining: 8
}

// The Transport sends the priority to the server in X-Request-Priority.
func ExampleWithPriority() {
	api := faulttest.New(nil, faulttest.Status(http.StatusOK))
	defer api.Close()
	client := resilienthttp.NewClient()

	ctx := resilienthttp.WithPriority(context.Background(), resilienthttp.PriorityBatch)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, api.URL, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := client.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	fmt.Println(api.Requests()[0].Header.Get("X-Request-Priority"))
	// Output: batch
}

// Each workspace has quotas of its own.
func ExampleRateLimit_key() {
	transport := &resilienthttp.Transport{
		RateLimit: &resilienthttp.RateLimit{
			Key: func(r *http.Request) string { return r.Header.Get("X-Workspace") },
		},
	}
	fmt.Println(transport.Validate())
	// Output: <nil>
}
