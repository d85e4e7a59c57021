// Package limiter has the rate limiters of simulated servers, and the headers in which they tell their quotas.
package limiter
