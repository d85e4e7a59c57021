// Package jitter is the experiment of the AWS paper on backoff (see
// internal/contest) with the Backoffs of this library.
package jitter

import (
	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/internal/contest"
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
		{"full jitter", resilienthttp.FullJitter(2*contest.Base, contest.Max)},
		{"equal jitter", resilienthttp.EqualJitter(2*contest.Base, contest.Max)},
		{"decorrelated jitter", resilienthttp.DecorrelatedJitter(contest.Base, contest.Max)},
		{"exponential, no jitter", resilienthttp.Exponential(2*contest.Base, contest.Max)},
		{"no backoff", resilienthttp.Constant(0)},
	}
}
