package fleet

import (
	"fmt"
	"strings"
	"time"
)

// Header is the heading of the lines of Line.
func Header() string {
	return fmt.Sprintf("%-26s %-9s %-24s %8s %8s %8s %7s %7s %7s %7s %8s %8s %8s %8s %9s %7s %6s", "scenario", "Transport", "library",
		"att/call", "success", "after", "worst", "w.dur", "peak", "recov", "mean", "p50", "p99", "p99.9", "fail p99", "429s", "took")
}

// Line is one line of a table for terminals: the means of the seeds, and the worst seed
// for worst, w.dur, peak and recov.
func Line(row Row) string {
	r := row[0]
	span := func(of func(Result) time.Duration) string { return brief(row.span(of)) }
	return fmt.Sprintf("%-26s %-9s %-24s %8.4f %8.5f %8.5f %7.3f %7.3f %7.3f %7s %8s %8s %8s %8s %9s %7.0f %6s",
		r.Scenario.Name, r.Topology, r.Peer.Name, row.average(Result.AttemptsPerCall), row.average(Result.Success), row.average(Result.SuccessAfter),
		row.worst(worstSecond), row.worst(worstDuring), row.worst(peakAfter), row.recovery(),
		span(meanLatency), span(medianLatency),
		span(p99Latency), span(p999Latency),
		span(func(r Result) time.Duration { return r.FailedP99 }), row.average(tooMany),
		span(func(r Result) time.Duration { return r.Took }))
}

// label is the topology in tables.
func (t Topology) label() string {
	if t == Own {
		return "per client"
	}
	return "shared"
}

// label names the scenario in the topology.
func (s Scenario) label(t Topology) string { return s.Name + ", " + t.label() }

// String is the verdict, the measure, the target and the measured value.
func (t Verdict) String() string {
	verdict := "met"
	switch {
	case !t.Reached && t.Goal:
		verdict = "goal missed"
	case !t.Reached:
		verdict = "MISSED"
	}
	kind := ""
	if t.Goal {
		kind = "goal "
	}
	text := fmt.Sprintf("%-14s %s %s%s: %s", verdict, t.What, kind, t.Want, t.Measured)
	if t.MissedBy != "" {
		text += ", by " + t.MissedBy
	}
	if t.Bare != "" {
		text += " (bare " + t.Bare + ")"
	}
	return strings.TrimSpace(text)
}
