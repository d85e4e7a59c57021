package faulttest_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/faulttest"
)

// charge is the client under test. It makes up to three attempts without a wait.
func charge(client *http.Client, url, key string) (string, error) {
	for attempt := 1; ; attempt++ {
		req, err := http.NewRequest(http.MethodPost, url+"/charges", strings.NewReader(`{"amount":100}`))
		if err != nil {
			return "", err
		}
		if key != "" {
			req.Header.Set("Idempotency-Key", key)
		}
		resp, err := client.Do(req)
		if err == nil {
			body, readErr := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if readErr == nil && resp.StatusCode < 500 {
				return string(body), nil
			}
		}
		if attempt == 3 {
			return "", fmt.Errorf("charge: no response after %d attempts", attempt)
		}
	}
}

// In a test, pass t instead of nil. The server is then closed at the end of the test.
func Example() {
	srv := faulttest.New(nil, faulttest.Sequence(
		faulttest.Unavailable(2*time.Second, faulttest.Seconds),
		faulttest.Truncated,
		faulttest.OK(`{"id":1}`),
	))
	defer srv.Close()

	fmt.Println(charge(srv.Client(), srv.URL, "invoice-1"))
	for _, q := range srv.Requests() {
		fmt.Println(q.Method, q.Path, q.Key, "->", q.Outcome())
	}
	// Output:
	// {"id":1} <nil>
	// POST /charges invoice-1 -> 503
	// POST /charges invoice-1 -> 200, truncated after 32 bytes
	// POST /charges invoice-1 -> 200
}

// The response to a charge is lost. With a key, a retry is safe.
func ExampleIdempotent() {
	for _, key := range []string{"invoice-1", ""} {
		charges := new(faulttest.Idempotent)
		srv := faulttest.New(nil, faulttest.Sequence(faulttest.LoseResponse(charges), charges))
		answer, err := charge(srv.Client(), srv.URL, key)
		fmt.Println(answer, err, charges.Executions())
		srv.Close()
	}
	// Output:
	// {"id":"1"} <nil> map[invoice-1:1]
	// {"id":"2"} <nil> map[:2]
}

// Three rules: an outage, a ratio of errors, and a quota.
func ExampleScript() {
	srv := faulttest.New(nil, faulttest.Script{
		{Route: "POST /charges", Until: time.Minute, Handler: faulttest.Status(503)},
		{Route: "GET /charges/{id}", Probability: 0.3, Seed: 12, Handler: faulttest.Status(500)},
		{Handler: &faulttest.Quota{Limit: 3, Window: time.Hour, Dialect: faulttest.GitHub}},
	})
	defer srv.Close()

	get := func(path string) {
		resp, err := srv.Client().Get(srv.URL + path)
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = resp.Body.Close()
		fmt.Printf("%d, remaining: %q\n", resp.StatusCode, resp.Header.Get("X-Ratelimit-Remaining"))
	}
	for range 6 {
		get("/charges/1")
	}
	fmt.Println(charge(srv.Client(), srv.URL, ""))
	// Output:
	// 200, remaining: "2"
	// 500, remaining: ""
	// 200, remaining: "1"
	// 500, remaining: ""
	// 200, remaining: "0"
	// 429, remaining: "0"
	//  charge: no response after 3 attempts
}
