// Package migration_test has the programs of docs/migration.md: each one before and after the migration, with the same server.
package migration_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/sony/gobreaker/v2"
	"github.com/stretchr/testify/require"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/faulttest"
	"github.com/resilienthttp/resilienthttp/internal/bubble"
)

// do sends a request. It closes the body.
type do func(*http.Request) (status int, err error)

func sender(client *http.Client) do {
	return func(req *http.Request) (int, error) {
		resp, err := client.Do(req)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		return resp.StatusCode, nil
	}
}

// errStatus is a response that counts as a failure.
var errStatus = errors.New("server error")

// guarded is a client with gobreaker: a 501 of this API is no failure.
func guarded(base http.RoundTripper) do {
	send := sender(&http.Client{Transport: base})
	breaker := gobreaker.NewCircuitBreaker[int](gobreaker.Settings{
		MaxRequests:  3,
		Interval:     10 * time.Second,
		Timeout:      5 * time.Second,
		ReadyToTrip:  func(n gobreaker.Counts) bool { return n.Requests >= 20 && 10*n.TotalFailures >= 9*n.Requests },
		IsSuccessful: func(err error) bool { return err == nil },
	})
	return func(req *http.Request) (int, error) {
		return breaker.Execute(func() (int, error) {
			status, err := send(req)
			if status >= 500 && status != http.StatusNotImplemented {
				err = errStatus
			}
			return status, err
		})
	}
}

// unguarded is the same client with a Transport.
func unguarded(base http.RoundTripper) do {
	client := &http.Client{Transport: &resilienthttp.Transport{
		Base: base,
		Policy: resilienthttp.Policy{
			MaxAttempts: 1, // gobreaker does not retry: leave this out, and the Transport does
			Classify: func(a *resilienthttp.Attempt) resilienthttp.Verdict {
				if a.Response != nil && a.Response.StatusCode == http.StatusNotImplemented {
					return resilienthttp.VerdictSuccess // IsSuccessful
				}
				return resilienthttp.VerdictDefault
			},
		},
		Breaker: &resilienthttp.Breaker{
			FailureRatio: 0.9, MinRequests: 20, Window: 10 * time.Second, // ReadyToTrip, Interval
			Cooldown: 5 * time.Second, MaxCooldown: 5 * time.Second, // Timeout
			Probes: 3,                 // MaxRequests
			Static: true, MaxWait: -1, // calls are rejected, and do not wait
		},
	}}
	return sender(client)
}

// Both open after 20 failures, reject calls for the time out, and close after three successes.
func TestGobreaker(t *testing.T) {
	for _, row := range []struct {
		name   string
		client func(http.RoundTripper) do
		open   error
	}{
		{"gobreaker", guarded, gobreaker.ErrOpenState},
		{"Transport", unguarded, resilienthttp.ErrBreakerOpen},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			api := faulttest.NewInMemory(t, faulttest.Script{
				{Until: 5 * time.Second, Handler: faulttest.Status(http.StatusNotImplemented)},
				{Until: 30 * time.Second, Handler: faulttest.Status(http.StatusInternalServerError)},
				{Handler: faulttest.OK("")},
			})
			base := api.Transport()
			defer base.CloseIdleConnections()
			send := row.client(base)
			call := func() error {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, api.URL, http.NoBody)
				require.NoError(t, err)
				_, err = send(req)
				return err
			}
			for range 30 {
				require.NoError(t, call(), "a 501 is a success")
			}
			require.Equal(t, 30, api.Total())
			time.Sleep(20 * time.Second) // the window is empty
			for range 30 {
				_ = call()
			}
			require.Equal(t, 30+20, api.Total(), "the circuit opens after 20 failures")
			require.ErrorIs(t, call(), row.open)
			time.Sleep(20 * time.Second)
			for range 30 {
				require.NoError(t, call())
			}
			require.Equal(t, 30+20+30, api.Total(), "the circuit is closed again")
		})
	}
}

// patient is a client of go-retryablehttp: this API says in a header of its own when to come back, and in the body of a 200
// that its work is not done.
func patient(base http.RoundTripper) do {
	client := retryablehttp.NewClient()
	client.HTTPClient.Transport = base
	client.Logger = nil
	client.RetryMax = 4
	client.RetryWaitMin, client.RetryWaitMax = 500*time.Millisecond, 10*time.Second
	client.Backoff = func(least, most time.Duration, attempt int, resp *http.Response) time.Duration {
		if resp != nil {
			if seconds, err := strconv.Atoi(resp.Header.Get("X-Come-Back")); err == nil {
				return time.Duration(seconds) * time.Second
			}
		}
		return retryablehttp.DefaultBackoff(least, most, attempt, resp)
	}
	client.CheckRetry = func(ctx context.Context, resp *http.Response, err error) (bool, error) {
		if err == nil && resp.StatusCode == http.StatusOK {
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			resp.Body = io.NopCloser(bytes.NewReader(body))
			return string(body) == "pending", err
		}
		return retryablehttp.DefaultRetryPolicy(ctx, resp, err)
	}
	return sender(client.StandardClient())
}

// pending is a Base that makes a 200 a 425 if the work is not done.
type pending struct{ next http.RoundTripper }

func (p pending) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := p.next.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	if string(body) == "pending" {
		resp.StatusCode, resp.Status = http.StatusTooEarly, "425 Too Early"
	}
	return resp, err
}

// resilient is the same client with a Transport.
func resilient(base http.RoundTripper) do {
	jitter := resilienthttp.FullJitter(500*time.Millisecond, 9500*time.Millisecond)
	client := &http.Client{Transport: &resilienthttp.Transport{
		Base: pending{base}, // CheckRetry that reads a 200
		Policy: resilienthttp.Policy{
			MaxAttempts: 5, // RetryMax + 1
			Backoff: func(retry int, prev time.Duration) time.Duration { // or nil: the waits of docs/backoff.md
				return 500*time.Millisecond + jitter(retry, prev) // RetryWaitMin
			},
			Classify: func(a *resilienthttp.Attempt) resilienthttp.Verdict { // Backoff with the response
				if a.Response != nil && a.Response.StatusCode >= 400 {
					if seconds, err := strconv.Atoi(a.Response.Header.Get("X-Come-Back")); err == nil {
						a.RetryAfter = time.Duration(seconds) * time.Second
					}
				}
				return resilienthttp.VerdictDefault
			},
		},
	}}
	return sender(client)
}

// Both wait as the API says, and repeat a 200 that is not done.
func TestRetryablehttp(t *testing.T) {
	for _, row := range []struct {
		name   string
		client func(http.RoundTripper) do
	}{{"go-retryablehttp", patient}, {"Transport", resilient}} {
		bubble.Run(t, row.name, func(t *testing.T) {
			api := faulttest.NewInMemory(t, faulttest.Sequence(
				faulttest.Reply{Status: http.StatusServiceUnavailable, Header: http.Header{"X-Come-Back": {"7"}}},
				faulttest.OK("pending"), faulttest.OK("done"),
			))
			base := api.Transport()
			defer base.CloseIdleConnections()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, api.URL, http.NoBody)
			require.NoError(t, err)
			status, err := row.client(base)(req)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, status)
			requests := api.Requests()
			require.Len(t, requests, 3)
			require.GreaterOrEqual(t, requests[1].ReceivedAt.Sub(requests[0].ReceivedAt), 7*time.Second)
			require.GreaterOrEqual(t, requests[2].ReceivedAt.Sub(requests[1].ReceivedAt), 500*time.Millisecond)
		})
	}
}

// After timeouts go-retryablehttp makes all its attempts, a Transport two: its retry takes five tokens of the budget.
func TestRetryablehttp_attemptsAfterTimeouts(t *testing.T) {
	for _, row := range []struct {
		name     string
		client   func(http.RoundTripper) do
		requests int
	}{
		{"go-retryablehttp", func(base http.RoundTripper) do {
			client := retryablehttp.NewClient()
			client.Logger = nil
			client.HTTPClient = &http.Client{Transport: base, Timeout: time.Second}
			return sender(client.StandardClient())
		}, 5},
		{"Transport", func(base http.RoundTripper) do {
			return sender(&http.Client{Transport: &resilienthttp.Transport{Base: base, Policy: resilienthttp.Policy{AttemptTimeout: time.Second}}})
		}, 2},
	} {
		bubble.Run(t, row.name, func(t *testing.T) {
			api := faulttest.NewInMemory(t, faulttest.Hang)
			base := api.Transport()
			defer base.CloseIdleConnections()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, api.URL, http.NoBody)
			require.NoError(t, err)
			_, err = row.client(base)(req)
			require.Error(t, err)
			require.Equal(t, row.requests, api.Total())
		})
	}
}
