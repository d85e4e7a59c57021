// Package jitter has the backoff strategies of the AWS experiment on jitter; see
// benchmarks/internal/jittersim.
package jitter

import (
	"time"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/benchmarks/internal/jittersim"
)

// Strategy is a compared strategy.
type Strategy struct {
	Name    string
	Backoff resilienthttp.Backoff
}

// Strategies returns the strategies of the paper. The paper doubles before the first retry,
// so its base corresponds to 2·base here.
func Strategies() []Strategy {
	return []Strategy{
		{"full jitter", resilienthttp.FullJitter(2*jittersim.Base, jittersim.Max)},
		{"decorrelated jitter", resilienthttp.DecorrelatedJitter(jittersim.Base, jittersim.Max)},
		{"exponential, no jitter", exponential},
		{"no backoff", resilienthttp.Constant(0)},
	}
}

func exponential(retry int, _ time.Duration) time.Duration {
	return min(2*jittersim.Base<<min(retry-1, 32), jittersim.Max)
}
