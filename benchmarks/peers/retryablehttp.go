package peers

import (
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

func retryable() []Peer {
	return []Peer{
		{Name: "go-retryablehttp", Note: "NewClient: 5 attempts, 1 s to 30 s apart, doubling, no jitter", New: func(s Setting) Client {
			return retryableClient(s).StandardClient()
		}},
		{Name: "go-retryablehttp-full", Note: "4 attempts, 100 ms to 1 s times the attempt, Retry-After, returns the last response, a timeout for each", New: func(s Setting) Client {
			c := retryableClient(s)
			c.RetryMax, c.RetryWaitMin, c.RetryWaitMax = retries, shortest, time.Second // random between both, times the attempt
			c.Backoff = retryablehttp.RateLimitLinearJitterBackoff
			c.ErrorHandler = retryablehttp.PassthroughErrorHandler
			c.HTTPClient.Timeout = attemptTimeout
			return c.StandardClient()
		}},
	}
}

func retryableClient(s Setting) *retryablehttp.Client {
	c := retryablehttp.NewClient()
	c.HTTPClient.Transport = s.Base
	c.Logger = nil // the default writes to stderr
	return c
}
