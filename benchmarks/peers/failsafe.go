package peers

import (
	"net/http"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/adaptivethrottler"
	"github.com/failsafe-go/failsafe-go/budget"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/hedgepolicy"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/failsafe-go/failsafe-go/timeout"
)

// response is the result type of the policies.
type response = *http.Response

//nolint:bodyclose // there is no response yet
func failsafes() []Peer {
	return []Peer{
		{Name: "failsafe-go", Note: "failsafehttp's retry policy: 3 attempts without a delay, Retry-After", New: func(s Setting) Client {
			return transport(failsafehttp.NewRoundTripper(s.Base, failsafehttp.NewRetryPolicyBuilder().Build()))
		}},
		{Name: "failsafe-go-full", Note: "retries with backoff, jitter and budget, circuit breaker, adaptive throttler, adaptive limiter, rate limiter with the quota, timeout", New: func(s Setting) Client {
			return transport(failsafeFull(s, budget.New()))
		}},
		{Name: "failsafe-go-hedged", Note: "failsafe-go-full with hedging after the 95th percentile, in the same budget", New: func(s Setting) Client {
			common := budget.New()
			hedge := hedgepolicy.NewBuilderWithDelayQuantile[response](0.95, 100, 20).WithBudget(common).Build()
			return transport(failsafeFull(s, common, hedge))
		}},
	}
}

// failsafeFull composes the policies in the order of the documentation.
//
//nolint:bodyclose // there is no response yet
func failsafeFull(s Setting, common budget.Budget, hedge ...failsafe.Policy[response]) http.RoundTripper {
	policies := []failsafe.Policy[response]{
		failsafehttp.NewRetryPolicyBuilder().WithMaxRetries(retries).
			WithBackoff(shortest, longest).WithJitterFactor(0.5).WithBudget(common).ReturnLastFailure().
			// Otherwise it would retry its own rejections.
			AbortOnErrors(circuitbreaker.ErrOpen, adaptivethrottler.ErrExceeded, adaptivelimiter.ErrExceeded, ratelimiter.ErrExceeded).
			Build(),
	}
	policies = append(policies, hedge...)
	if s.Quota > 0 {
		every := time.Duration(float64(time.Second) / s.Quota)
		policies = append(policies, ratelimiter.NewSmoothBuilderWithMaxRate[response](every).WithMaxWaitTime(longest).Build())
	}
	return failsafehttp.NewRoundTripper(s.Base, append(policies,
		circuitbreaker.NewBuilder[response]().HandleIf(failed).
			WithFailureRateThreshold(0.5, 20, 10*time.Second).WithDelay(time.Second).WithSuccessThreshold(3).Build(),
		adaptivethrottler.NewBuilder[response]().HandleIf(failed).
			WithFailureRateThreshold(0.5, 20, 10*time.Second).Build(),
		adaptivelimiter.NewBuilder[response]().WithQueueing(2, 3).Build(), // without a queue it rejects every burst
		timeout.New[response](attemptTimeout),
	)...)
}
