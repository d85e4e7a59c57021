package peers

import (
	"context"
	"math"
	"net/http"
	"time"

	"resty.dev/v3"
)

func resties() []Peer {
	return []Peer{
		{Name: "resty", Note: "SetRetryCount(3) with its conditions for 5xx and 429, 100 ms to 2 s apart", New: func(s Setting) Client {
			return newResty(s)
		}},
		{Name: "resty-full", Note: "resty to 10 s, circuit breaker by ratio, rate limiter with the quota", New: func(s Setting) Client {
			return newRestyFull(s)
		}},
		{Name: "resty-hedged", Note: "hedging after 50 ms, breaker, rate limiter with the quota; SetHedging disables retries", New: func(s Setting) Client {
			c := newRestyFull(s)
			c.client.SetHedging(resty.NewHedging().SetMaxRequest(2).SetMaxRequestPerSecond(1000))
			return c
		}},
	}
}

type restyClient struct{ client *resty.Client }

func newResty(s Setting) restyClient {
	return restyClient{resty.NewWithClient(&http.Client{Transport: s.Base}).
		SetLogger(silent{}).
		SetRetryCount(retries).
		AddRetryConditions(resty.RetryConditionStatus5XX, resty.RetryConditionStatusTooManyRequests, resty.RetryConditionStatusZero)}
}

func newRestyFull(s Setting) restyClient {
	c := newResty(s)
	c.client.SetRetryWaitTime(shortest).SetRetryMaxWaitTime(longest).SetTimeout(attemptTimeout).
		SetCircuitBreaker(resty.NewCircuitBreakerRatio(0.5, 20, time.Second, resty.CircuitBreaker5xxPolicy))
	if s.Quota > 0 {
		bucket := resty.NewRateLimitTokenBucket(s.Quota, int(math.Ceil(s.Quota)))
		c.client.SetRateLimiter(oneByOne{new(turnstile), bucket})
	}
	return c
}

// oneByOne is a limiter behind a turnstile.
type oneByOne struct {
	*turnstile
	resty.RateLimiter
}

// Allow implements resty.RateLimiter.
func (o oneByOne) Allow(ctx context.Context) error {
	if err := o.enter(ctx); err != nil {
		return err
	}
	defer o.leave()
	return o.RateLimiter.Allow(ctx)
}

func (c restyClient) Do(req *http.Request) (*http.Response, error) {
	r := c.client.R().SetContext(req.Context()).SetHeaderMultiValues(req.Header).SetResponseDoNotParse(true)
	body, err := payload(req)
	switch {
	case err != nil:
		return nil, err
	case body != nil: // resty cannot replay a reader
		r.SetBody(body)
	case req.Body != nil && req.Body != http.NoBody:
		r.SetBody(req.Body)
	}
	resp, err := r.Execute(req.Method, req.URL.String())
	if err != nil {
		return nil, err
	}
	resp.RawResponse.Body = resp.Body
	return resp.RawResponse, nil
}

func (c restyClient) Close() error { return c.client.Close() }

// silent is a resty.Logger that drops all logs.
type silent struct{}

func (silent) Errorf(string, ...any) {}
func (silent) Warnf(string, ...any)  {}
func (silent) Debugf(string, ...any) {}
