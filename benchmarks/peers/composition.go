package peers

import (
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/sony/gobreaker/v2"
	"golang.org/x/time/rate"
)

func compositions() []Peer {
	return []Peer{{
		Name: "gobreaker+backoff+rate",
		Note: "hand-written: 4 attempts of idempotent requests, exponential backoff with jitter, Retry-After, breaker, rate limiter with the quota",
		New:  func(s Setting) Client { return transport(newComposition(s)) },
	}}
}

type composition struct {
	base    http.RoundTripper
	breaker *gobreaker.CircuitBreaker[response]
	limiter *rate.Limiter
}

func newComposition(s Setting) http.RoundTripper {
	c := &composition{base: s.Base, limiter: rate.NewLimiter(rate.Inf, 0)}
	if s.Quota > 0 {
		c.limiter = rate.NewLimiter(rate.Limit(s.Quota), max(int(s.Quota), 1))
	}
	c.breaker = gobreaker.NewCircuitBreaker[response](gobreaker.Settings{
		MaxRequests: 3, Interval: 10 * time.Second, Timeout: time.Second,
		ReadyToTrip: func(n gobreaker.Counts) bool {
			return n.Requests >= 20 && float64(n.TotalFailures) >= 0.5*float64(n.Requests)
		},
	})
	return c
}

// errStatus is a failed response as an error.
var errStatus = errors.New("server error")

func (c *composition) RoundTrip(req *http.Request) (*http.Response, error) {
	var last *http.Response
	if req.GetBody != nil {
		defer req.Body.Close() // each attempt has its own
	}
	resp, err := backoff.Retry(req.Context(), func() (*http.Response, error) {
		if last != nil {
			_, _ = io.Copy(io.Discard, last.Body)
			_ = last.Body.Close()
			last = nil
		}
		var err error
		last, err = c.attempt(req)
		return last, err
	}, backoff.WithBackOff(&backoff.ExponentialBackOff{
		InitialInterval: shortest, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: longest,
	}), backoff.WithMaxTries(tries(req)), backoff.WithMaxElapsedTime(0))
	if last != nil && (errors.Is(err, errStatus) || errors.As(err, new(*backoff.RetryAfterError))) {
		return last, nil
	}
	if err != nil {
		if last != nil {
			_ = last.Body.Close()
		}
		return nil, err
	}
	return resp, nil
}

func (c *composition) attempt(req *http.Request) (*http.Response, error) {
	if err := c.limiter.Wait(req.Context()); err != nil {
		return nil, backoff.Permanent(err)
	}
	again := req.Clone(req.Context())
	if req.GetBody != nil {
		body, err := req.GetBody()
		if err != nil {
			return nil, backoff.Permanent(err)
		}
		again.Body = body
	}
	resp, err := c.breaker.Execute(func() (*http.Response, error) {
		resp, err := c.base.RoundTrip(again)
		if err == nil && resp.StatusCode >= http.StatusInternalServerError {
			err = errStatus
		}
		return resp, err
	})
	switch {
	case errors.Is(err, gobreaker.ErrOpenState), errors.Is(err, gobreaker.ErrTooManyRequests):
		return nil, backoff.Permanent(err)
	case resp != nil && (resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable):
		if seconds, ok := retryAfter(resp); ok {
			return resp, backoff.RetryAfter(seconds)
		}
		return resp, errStatus
	}
	return resp, err
}

// tries is 1 for requests that must not or cannot be retried.
func tries(req *http.Request) uint {
	replayable := req.Body == nil || req.Body == http.NoBody || req.GetBody != nil
	unsafe := (req.Method == http.MethodPost || req.Method == http.MethodPatch) && req.Header.Get("Idempotency-Key") == ""
	if unsafe || !replayable {
		return 1
	}
	return attempts
}

// retryAfter is the response's Retry-After in seconds.
func retryAfter(resp *http.Response) (int, bool) {
	value := resp.Header.Get("Retry-After")
	if seconds, err := strconv.Atoi(value); err == nil {
		return seconds, true
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(int(math.Ceil(time.Until(at).Seconds())), 0), true
	}
	return 0, false
}
