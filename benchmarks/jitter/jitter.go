// Package jitter has the backoff strategies of the AWS experiment on jitter; see
// internal/jittersim.
package jitter

import (
	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/jittersim"
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
		{"equal jitter", resilienthttp.EqualJitter(2*jittersim.Base, jittersim.Max)},
		{"decorrelated jitter", resilienthttp.DecorrelatedJitter(jittersim.Base, jittersim.Max)},
		{"exponential, no jitter", resilienthttp.Exponential(2*jittersim.Base, jittersim.Max)},
		{"no backoff", resilienthttp.Constant(0)},
	}
}
