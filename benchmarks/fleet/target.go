package fleet

import (
	"fmt"
	"time"
)

// Target is one line of what this library is to reach, and what it has.
type Target struct {
	What     string
	Want     string
	Measured string
	Reached  bool
	Aim      bool   // wished for, not required
	Why      string // it is as it is, if it is not reached
}

// Why a target can be out of reach.
const (
	whyBrownout = "a client with one request a second cannot tell a server with half its capacity from one with none " +
		"before it has seen some failures, each of which costs a place in the queue; and the wait that keeps the " +
		"outage's worst second below 1.5 costs half a percent here"
	whyMeasured = "a zero Hedge measures its delay, and wants 20 answers for that, which are 20 s of one request a " +
		"second; and its one hedge in ten requests is none where two slow answers come within ten seconds. Such " +
		"clients are given a Delay and a greater MaxRatio: *hedged-50ms* is Hedge{Delay: 50ms, MaxRatio: 0.2}"
	whyChance = "5 % of answers are slow by the scenario's definition, plus or minus 0.06 % by chance"
	whyTwice  = "one request in 400 meets a slow answer twice, the original's and the hedge's. It takes a third copy, " +
		"which this library does not send"
)

// Targets holds a result against what was set for its scenario. Only the ones
// with a mechanism that the peer has are meant: hedging is for the tail.
func (r Result) Targets() []Target {
	shared := r.Topology == Shared
	switch r.Scenario.Name {
	case "healthy":
		return []Target{
			atMost("attempts per request", r.AttemptsPerCall(), 1, "%.4f"),
			atLeast("success", r.Success(), 1, "%.5f"),
		}
	case "outage":
		worst := 1.5
		if shared {
			worst = 1.15
		}
		return []Target{
			atMost("load in the worst second of the outage", r.WorstDuring, worst, "%.3f"),
			atMost("attempts per request", r.AttemptsPerCall(), 1, "%.3f"),
			atLeast("success", r.Success(), 0.750, "%.4f"),
			r.recoversWithin(2 * time.Second),
			atMost("peak load after recovery", r.PeakAfter, 1.15, "%.3f"),
		}
	case "brownout":
		return []Target{
			atLeast("success", r.Success(), 0.78, "%.4f"),
			aim(atLeast("success", r.Success(), 0.82, "%.4f")).because(whyBrownout),
			atMost("attempts per request", r.AttemptsPerCall(), 1, "%.3f"),
			r.recoversWithin(3 * time.Second),
		}
	case "errors":
		return []Target{
			atLeast("success", r.Success(), 0.9999, "%.5f"),
			atMost("attempts per request", r.AttemptsPerCall(), 1.011, "%.4f"),
			atMost("p99.9, ms", milliseconds(r.P999), 115, "%.1f"),
		}
	case "quota":
		if shared {
			return []Target{
				atMost("429s after the first window", float64(r.TooManyLater), 0, "%.0f"),
				atLeast("quota used", r.QuotaUsed, 0.98, "%.4f"),
				atLeast("failures told within 100 ms", r.ToldAtOnce, 0.99, "%.4f"),
			}
		}
		return []Target{
			atMost("429s", float64(r.TooMany), float64(r.TooManyBare), "%.0f"),
			atLeast("quota used", r.QuotaUsed, 0.98, "%.4f"),
		}
	case "tail":
		p99 := atMost("p99, ms", milliseconds(r.P99), 71, "%.1f")
		if !shared {
			p99 = p99.because(whyMeasured)
		}
		return []Target{
			p99,
			atMost("attempts per request", r.AttemptsPerCall(), 1.05, "%.4f").because(whyChance),
			aim(atMost("p99.9, ms", milliseconds(r.P999), 200, "%.1f")).because(whyTwice),
		}
	}
	return nil
}

func (r Result) recoversWithin(want time.Duration) Target {
	t := atMost("seconds until goodput is back", r.Recovery.Seconds(), want.Seconds(), "%.1f")
	if !r.Recovered {
		t.Measured, t.Reached = "never", false
	}
	return t
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func atMost(what string, measured, want float64, format string) Target {
	return Target{
		What: what, Want: "≤ " + fmt.Sprintf(format, want), Measured: fmt.Sprintf(format, measured),
		Reached: measured <= want,
	}
}

func atLeast(what string, measured, want float64, format string) Target {
	return Target{
		What: what, Want: "≥ " + fmt.Sprintf(format, want), Measured: fmt.Sprintf(format, measured),
		Reached: measured >= want,
	}
}

func (t Target) because(why string) Target {
	t.Why = why
	return t
}

func aim(t Target) Target {
	t.Aim = true
	return t
}
