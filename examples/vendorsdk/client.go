// Package vendorsdk is an example of an SDK on resilienthttp: a typed client of a payment API.
// docs/sdks.md has a shorter one.
//
//   - client.go makes one Transport for each Client, with the vendor's settings. It handles what
//     all calls have in common: deadline, maximum body, closed body, typed errors.
//   - charges.go has the calls. The idempotency key is a parameter.
//   - errors.go has the error type, byCode for error codes that mean more than their status, and
//     CallAgain, which reports whether the application should repeat a call.
//   - vendorsdk_test.go is a table-driven test with a faulty server in virtual time.
//
// For an API that package vendors has a profile for, begin with the profile's Transport.
//
// Run the tests from the root of the repository:
//
//	go test ./examples/vendorsdk
package vendorsdk

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp"
)

const (
	defaultBaseURL = "https://api.payments.example"
	defaultTimeout = 30 * time.Second

	// maxBody is the maximum size of a response body. Real ones have a few hundred bytes.
	maxBody = 1 << 20
)

// Client calls the payment API. Only APIKey must be set. A Client is safe for concurrent use and
// should be shared: its circuit breaker, retry budget and rate limits know only its own calls. It
// must not be modified or copied after the first call.
type Client struct {
	// BaseURL is the URL of the API. "" means https://api.payments.example.
	BaseURL string

	// APIKey is the secret that is sent with each request.
	APIKey string

	// Timeout is the maximum time of a call with its retries, if its context has no deadline.
	// Zero means 30 s. A negative duration means no limit.
	Timeout time.Duration

	// Policy controls retries and timeouts. Zero fields mean those of DefaultPolicy. For one
	// call, use resilienthttp.WithPolicy.
	Policy resilienthttp.Policy

	// Breaker lets calls wait during an outage of the API. Nil means a private one with the
	// defaults.
	Breaker *resilienthttp.Breaker

	// Trace has hooks for logs and metrics. Nil means none.
	Trace *resilienthttp.Trace

	// Base makes the attempts, for example with a proxy, a client certificate or
	// instrumentation. Nil means resilienthttp.NewBase().
	Base http.RoundTripper

	once    sync.Once
	http    *http.Client
	baseURL string
	timeout time.Duration
}

// DefaultPolicy returns the policy of a Client. To change one field for one call, change the
// returned policy and pass it to resilienthttp.WithPolicy.
func DefaultPolicy() resilienthttp.Policy {
	return resilienthttp.Policy{
		AttemptTimeout: 10 * time.Second, // card networks take 2 s, at most 8 s
		ReadTimeout:    5 * time.Second,  // responses are small, so a pause means a broken connection
		MaxRetryAfter:  10 * time.Second, // a customer waits; call again after Error.NotBefore
		ClassifyBody:   byCode,
	}
}

func (c *Client) setup() {
	policy, standard := c.Policy, DefaultPolicy()
	if policy.AttemptTimeout == 0 {
		policy.AttemptTimeout = standard.AttemptTimeout
	}
	if policy.ReadTimeout == 0 {
		policy.ReadTimeout = standard.ReadTimeout
	}
	if policy.MaxRetryAfter == 0 {
		policy.MaxRetryAfter = standard.MaxRetryAfter
	}
	if policy.ClassifyBody == nil {
		policy.ClassifyBody = standard.ClassifyBody
	}
	c.baseURL = cmp.Or(strings.TrimSuffix(c.BaseURL, "/"), defaultBaseURL)
	c.http = &http.Client{
		Transport: &resilienthttp.Transport{
			Base: c.Base, Policy: policy, Breaker: c.Breaker, Trace: c.Trace,
			Idempotency: resilienthttp.Idempotency{Hosts: hostOf(c.baseURL)}, // other hosts get no keys
		},
		// The API has no redirects.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	c.timeout = c.Timeout
	if c.timeout == 0 {
		c.timeout = defaultTimeout
	}
}

// hostOf returns the host of a URL. If the URL is invalid, it returns no host, and the call returns
// the error.
func hostOf(baseURL string) []string {
	u, err := url.Parse(baseURL)
	if err != nil || u.Host == "" {
		return []string{}
	}
	return []string{strings.ToLower(u.Host)}
}

// call sends in as JSON, if it is not nil, and decodes a successful response into out.
func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	c.once.Do(c.setup)
	if _, ok := ctx.Deadline(); !ok && c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	req, err := c.request(ctx, method, path, in)
	if err != nil {
		return fmt.Errorf("vendorsdk: %w", err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("vendorsdk: %w", err) // a *resilienthttp.Error is in its chain
	}
	defer resp.Body.Close()
	body, err := readAll(resp.Body)
	switch {
	case resp.StatusCode/100 != 2:
		return newError(resp, problemIn(body)) // even without a body, the status is enough
	case err != nil:
		return fmt.Errorf("vendorsdk: %w: %w", errUnreadable, err)
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("vendorsdk: %w: %w", errUnreadable, err)
	}
	return nil
}

func (c *Client) request(ctx context.Context, method, path string, in any) (*http.Request, error) {
	body := io.Reader(http.NoBody)
	if in != nil {
		encoded, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(encoded) // http.NewRequest can replay it
	}
	req, err := http.NewRequestWithContext(ctx, method, c.baseURL+path, body)
	if err != nil {
		return nil, err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json, application/problem+json")
	req.Header.Set("Authorization", "Bearer "+c.APIKey)
	req.Header.Set("User-Agent", "vendorsdk/1.0")
	return req, nil
}

var errTooLong = errors.New("body is longer than 1 MiB")

func readAll(r io.Reader) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, maxBody+1))
	if err == nil && len(body) > maxBody {
		err = errTooLong
	}
	return body, err
}
