// Package jitter is the experiment of the AWS paper on backoff (see
// internal/jittersim) with the Backoffs of this library.
package jitter

import (
	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/jittersim"
)

// Strategy is one of those that are compared.
type Strategy struct {
	Name    string
	Backoff resilienthttp.Backoff
}

// Strategies are those of the paper. It doubles before the first retry too, so
// that it draws from 2·base where ours draws from base.
func Strategies() []Strategy {
	return []Strategy{
		{"full jitter", resilienthttp.FullJitter(2*jittersim.Base, jittersim.Max)},
		{"equal jitter", resilienthttp.EqualJitter(2*jittersim.Base, jittersim.Max)},
		{"decorrelated jitter", resilienthttp.DecorrelatedJitter(jittersim.Base, jittersim.Max)},
		{"exponential, no jitter", resilienthttp.Exponential(2*jittersim.Base, jittersim.Max)},
		{"no backoff", resilienthttp.Constant(0)},
	}
}
