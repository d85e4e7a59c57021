package fleet

import (
	"fmt"
	"strings"
	"time"
)

// Header is the heading of the lines that Line gives.
func Header() string {
	return fmt.Sprintf("%-26s %-6s %-24s %8s %8s %8s %7s %7s %7s %7s %8s %8s %8s %8s %9s %7s %6s", "scenario", "who", "library",
		"att/call", "success", "after", "worst", "w.dur", "peak", "back", "mean", "p50", "p99", "p99.9", "fail p99", "429s", "took")
}

// Line is one line of a table for terminals: the means of several seeds, and the
// worst of what is called so.
func Line(row Row) string {
	r := row[0]
	span := func(of func(Result) time.Duration) string { return brief(row.span(of)) }
	return fmt.Sprintf("%-26s %-6s %-24s %8.4f %8.5f %8.5f %7.3f %7.3f %7.3f %7s %8s %8s %8s %8s %9s %7.0f %6s",
		r.Scenario.title(), r.Topology, r.Peer.Name, row.average(Result.AttemptsPerCall), row.average(Result.Success), row.average(Result.SuccessAfter),
		row.worst(worstSecond), row.worst(worstDuring), row.worst(peakAfter), row.back(),
		span(meanLatency), span(medianLatency),
		span(p99Latency), span(p999Latency),
		span(func(r Result) time.Duration { return r.FailedP99 }), row.average(tooMany),
		span(func(r Result) time.Duration { return r.Took }))
}

// title is the name, and the number of the row in the design's table.
func (s Scenario) title() string {
	if s.Row == 0 {
		return s.Name
	}
	return fmt.Sprintf("%d %s", s.Row, s.Name)
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
	text := fmt.Sprintf("%-14s %s %s%s: %s", verdict, t.What, kind, t.Want, t.Measured)
	if t.MissedBy != "" {
		text += ", by " + t.MissedBy
	}
	if t.Bare != "" {
		text += " (bare " + t.Bare + ")"
	}
	return strings.TrimSpace(text)
}
