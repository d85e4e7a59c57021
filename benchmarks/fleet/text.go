package fleet

import (
	"fmt"
	"strings"
)

// Header is the heading of the lines that Result.String gives.
func Header() string {
	return fmt.Sprintf("%-9s %-7s %-24s %8s %8s %7s %7s %7s %7s %8s %8s %8s %9s %9s %7s %6s", "scenario", "clients", "library",
		"att/call", "success", "worst", "w.dur", "peak", "back", "p50", "p99", "p99.9", "fail p50", "fail p99", "429s", "took")
}

// String is one line of a table for terminals.
func (r Result) String() string {
	back := "never"
	if r.Recovered {
		back = fmt.Sprintf("%.1fs", r.Recovery.Seconds())
	}
	return fmt.Sprintf("%-9s %-7s %-24s %8.4f %8.5f %7.3f %7.3f %7.3f %7s %8s %8s %8s %9s %9s %7d %6s",
		r.Scenario.Name, r.Topology, r.Peer.Name, r.AttemptsPerCall(), r.Success(), r.WorstSecond, r.WorstDuring, r.PeakAfter,
		back, brief(r.P50), brief(r.P99), brief(r.P999), brief(r.FailedP50), brief(r.FailedP99), r.TooMany, brief(r.Took))
}

// String says what was wanted, what came of it, and whether that is enough.
func (t Target) String() string {
	verdict := "reached"
	switch {
	case !t.Reached && t.Aim:
		verdict = "below the aim"
	case !t.Reached:
		verdict = "MISSED"
	}
	kind := ""
	if t.Aim {
		kind = "aim "
	}
	return strings.TrimSpace(fmt.Sprintf("%-14s %s %s%s: %s", verdict, t.What, kind, t.Want, t.Measured))
}
