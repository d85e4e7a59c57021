// Package vendorsdk is an example of an SDK built on resilienthttp: a small typed
// client of a payment API, laid out as its vendor would do it.
//
// What to look at:
//
//   - client.go: the Transport is built once for each Client, from what the vendor
//     knows about the API. All that can be done for every call is done in one
//     place: deadline, bounded body, closed body, typed errors.
//   - charges.go: a call is a few lines, and its idempotency key a parameter.
//   - errors.go: what the API answers, as a type; byCode, for the error codes that say
//     more than their status; and for what nobody can answer, AskAgain, so that
//     applications need not know how retries work.
//   - stripe.go: the same for an API that package vendors knows, whose profile stands for
//     what client.go and byCode had to say.
//   - vendorsdk_test.go, stripe_test.go: each promise as a row, against a faulty server in
//     virtual time.
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

	// maxBody bounds what a response may bring; the longest real one has a few
	// hundred bytes.
	maxBody = 1 << 20
)

// Client calls the payment API. The zero value is ready to use, but for the
// APIKey. A Client is safe for concurrent use and made to be shared: its circuit
// breaker, retry budget and rate limits know only the calls that go through it.
// The fields are read at the first call and must not change after it, and a
// Client must not be copied after it either.
type Client struct {
	// BaseURL is where the API is. "" means https://api.payments.example.
	BaseURL string

	// APIKey is the secret that every request bears.
	APIKey string

	// Timeout is the longest that a call may take, retries and all, if its
	// context has no deadline of its own. 0 means 30 s; a negative duration means
	// no limit.
	Timeout time.Duration

	// Policy says how often and how long calls are attempted. Fields at zero mean
	// those of DefaultPolicy. For one call, use resilienthttp.WithPolicy.
	Policy resilienthttp.Policy

	// Breaker refuses calls while the API is down. nil means one of the Client's
	// own with the defaults.
	Breaker *resilienthttp.Breaker

	// Trace tells what happens, to logs or metrics. nil means nobody listens.
	Trace *resilienthttp.Trace

	// Base makes the attempts: the place for proxies, client certificates and
	// instrumentation. nil means resilienthttp's own.
	Base http.RoundTripper

	once    sync.Once
	http    *http.Client
	baseURL string
	timeout time.Duration
}

// DefaultPolicy is the policy of a Client. To change one thing for one call,
// change it in what DefaultPolicy returns and give that to
// resilienthttp.WithPolicy.
func DefaultPolicy() resilienthttp.Policy {
	return resilienthttp.Policy{
		AttemptTimeout: 10 * time.Second, // card networks answer in 2 s, and 8 s on a bad day
		ReadTimeout:    5 * time.Second,  // answers are small: silence means that they will not come
		MaxRetryAfter:  10 * time.Second, // somebody waits at a till; for longer, ask again by Error.NotBefore
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
	c.http = newHTTPClient(&resilienthttp.Transport{
		Base: c.Base, Policy: policy, Breaker: c.Breaker, Trace: c.Trace,
		Idempotency: resilienthttp.Idempotency{Hosts: hostOf(c.baseURL)}, // who honours keys
	})
	c.timeout = c.Timeout
	if c.timeout == 0 {
		c.timeout = defaultTimeout
	}
}

// newHTTPClient is one for an API that does not redirect. Whoever does is not the API.
func newHTTPClient(transport *resilienthttp.Transport) *http.Client {
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// hostOf is the host of a URL. It is nobody where there is none: then the call says what
// is wrong with the URL.
func hostOf(baseURL string) []string {
	u, err := url.Parse(baseURL)
	if err != nil || u.Host == "" {
		return []string{}
	}
	return []string{strings.ToLower(u.Host)}
}

// call makes one call: in, if not nil, is sent as JSON, and a successful answer is
// read into out.
func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	c.once.Do(c.setup)
	ctx, cancel := bounded(ctx, c.timeout)
	defer cancel()
	req, err := c.request(ctx, method, path, in)
	if err != nil {
		return fmt.Errorf("vendorsdk: %w", err)
	}
	return exchange(c.http, req, out, problemIn)
}

// bounded is ctx with a deadline, if it has none of its own. Without a timeout it may go
// without.
func bounded(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if _, limited := ctx.Deadline(); limited || timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, timeout)
}

// exchange sends a request and reads a successful answer into out. Of any other, problemIn
// reads what the API says in its body.
func exchange(client *http.Client, req *http.Request, out any, problemIn func(body []byte) problem) error {
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("vendorsdk: %w", err) // a *url.Error with a *resilienthttp.Error in it
	}
	defer resp.Body.Close()
	body, err := readAll(resp.Body)
	switch {
	case resp.StatusCode/100 != 2:
		return newError(resp, problemIn(body)) // also if its body was not to be had: the status says enough
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
		body = bytes.NewReader(encoded) // of which http.NewRequest knows how to make a second one
	}
	req, err := http.NewRequestWithContext(ctx, method, c.baseURL+path, body)
	if err != nil {
		return nil, err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json, application/problem+json")
	identify(req, c.APIKey)
	return req, nil
}

// identify says who asks, and by which program.
func identify(req *http.Request, apiKey string) {
	req.Header.Set("Authorization", "Bearer "+apiKey)
	req.Header.Set("User-Agent", "vendorsdk/1.0")
}

var errTooLong = errors.New("body is longer than 1 MiB")

func readAll(r io.Reader) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, maxBody+1))
	if err == nil && len(body) > maxBody {
		err = errTooLong
	}
	return body, err
}
