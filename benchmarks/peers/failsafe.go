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

// response is what the policies are about.
type response = *http.Response

//nolint:bodyclose // these are policies about responses: there is no response yet
func failsafes() []Peer {
	return []Peer{
		{Name: "failsafe-go", Note: "failsafehttp's retry policy: 3 attempts at once, Retry-After", New: func(s Setting) Client {
			return transport(failsafehttp.NewRoundTripper(s.Base, failsafehttp.NewRetryPolicyBuilder().Build()))
		}},
		{Name: "failsafe-go-full", Note: "retries with backoff, jitter and budget, circuit breaker, adaptive throttler, adaptive limiter, rate limiter if told, timeout", New: func(s Setting) Client {
			return transport(failsafeFull(s, budget.New()))
		}},
		{Name: "failsafe-go-hedged", Note: "the same and hedging after the 95th percentile, within the same budget", New: func(s Setting) Client {
			common := budget.New()
			hedge := hedgepolicy.NewBuilderWithDelayQuantile[response](0.95, 100, 20).WithBudget(common).Build()
			return transport(failsafeFull(s, common, hedge))
		}},
	}
}

// failsafeFull composes from the outside in, as its documentation recommends.
//
//nolint:bodyclose // likewise
func failsafeFull(s Setting, common budget.Budget, hedge ...failsafe.Policy[response]) http.RoundTripper {
	policies := []failsafe.Policy[response]{
		failsafehttp.NewRetryPolicyBuilder().WithMaxRetries(retries).
			WithBackoff(shortest, longest).WithJitterFactor(0.5).WithBudget(common).ReturnLastFailure().
			// Its own refusals would be retried like a server's failures.
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
		adaptivelimiter.NewBuilder[response]().WithQueueing(2, 3).Build(), // without a queue it refuses every burst
		timeout.New[response](attemptTimeout),
	)...)
}
