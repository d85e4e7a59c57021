package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/benchmarks/internal/report"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// LibraryResults is benchmarks/results/libraries.md: all libraries in the base scenarios.
func LibraryResults(rows *Rows) string {
	var text strings.Builder
	fmt.Fprint(&text, `# All libraries in the base scenarios

All runs use virtual time: the results do not depend on the machine.

- **Load**: a Poisson process of 1000 calls per second from 1000 clients. The deadline of a call is 30 s.
- **Server**: a FIFO queue of at most 1000 requests and 12 workers of 10 ms each (1200 requests per second). A full queue returns
  503 at once. The server finishes a request even if the client has disconnected.
- **Attempts**: each has a timeout of 500 ms. The tail scenario has no timeout for attempts.
- **Transport**: *shared* is one for all callers. *Per client* is 1000 Transports without shared state.
- **Libraries**: [behavior.md](behavior.md) lists the configurations; their code is in [package peers](../peers). Libraries with a
  rate limiter get the quota as its rate.

Columns:

- *attempts*: requests to the server per call.
- *p50, p99, p99.9*: latency of successful calls.
- *worst second*: attempts per call in the worst second of the fault.
- *peak*: requests in the busiest second after the fault, as a multiple of the offered rate.
- *recovery*: time after the fault until goodput is 95 % of the offered rate.

`)
	for _, s := range baseScenarios() {
		var some []Row
		for _, key := range rows.keys {
			if row := rows.results[key]; row[0].Scenario.Name == s.Name {
				some = append(some, row)
			}
		}
		if len(some) > 0 {
			writeScenario(&text, s, some)
		}
	}
	return text.String()
}

func writeVerdicts(text *strings.Builder, rows *Rows) {
	table := report.NewTextTable(scenarioHeading, "Transport", "measure", "target", "measured", "bare", "result")
	var reasons []string
	for _, key := range rows.keys {
		row := rows.results[key]
		r := row[0]
		name := r.Scenario.Name
		if r.Peer.Name != peers.Ours {
			name += ", " + strings.TrimPrefix(r.Peer.Name, peers.Ours+"-")
		}
		for _, t := range rows.VerdictsOf(row) {
			want, verdict := t.Want, t.cell()
			if t.Goal {
				want += " (goal)"
			}
			table.Row(name, r.Topology.label(), t.What, want, t.Measured, t.Bare, verdict)
			if !t.Reached && t.Reason != "" {
				reasons = append(reasons, fmt.Sprintf("- %s, %s, %s: %s.\n", name, r.Topology.label(), t.What, t.Reason))
			}
		}
	}
	fmt.Fprintln(text, table)
	if len(reasons) > 0 {
		fmt.Fprintf(text, "## Reasons of missed targets\n\n%s\n", strings.Join(withoutRepeatedReasons(reasons), ""))
	}
}

// withoutRepeatedReasons removes lines with the reason of an earlier line.
func withoutRepeatedReasons(lines []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(lines, func(line string) bool {
		_, reason, _ := strings.Cut(line, ": ")
		defer func() { seen[reason] = true }()
		return seen[reason]
	})
}

// cell is the last column.
func (t Verdict) cell() string {
	switch {
	case t.Reached:
		return "met"
	case t.Goal:
		return "**goal missed**"
	}
	return "**missed**"
}

func writeScenario(text *strings.Builder, s Scenario, rows []Row) {
	fmt.Fprintf(text, "## %s: %s\n\n", strings.ToUpper(s.Name[:1])+s.Name[1:], s.Note)
	hasPhases := s.Before > 0
	if s.Name == plottedScenario {
		fmt.Fprint(text, report.PlotLink(s.Name+", Transport per client: load and goodput over time", brownoutPlot))
	}
	for _, topology := range []Topology{Shared, Own} {
		heading := []string{"Transport: " + topology.label(), "attempts", "success", "p50", "p99", "p99.9"}
		switch {
		case hasPhases:
			heading = append(heading, "worst second", "peak", "recovery")
		case s.Server.Limit.perSecond() > 0:
			heading = append(heading, "429s", "used part of the quota", "failures within 0.1 s")
		default:
			heading = append(heading, "worst second")
		}
		table := report.NewTable(heading...)
		for _, row := range rows {
			if row[0].Topology == topology {
				table.Row(row.cells()...)
			}
		}
		fmt.Fprintln(text, table)
	}
}

// cells are the cells of a library in the scenario's table.
func (r Row) cells() []string {
	name, s := r[0].Peer.Name, r[0].Scenario
	if name == peers.Ours {
		name = "**" + name + "**"
	}
	cells := []string{
		name, fmt.Sprintf("%.3f", r.average(Result.AttemptsPerCall)), fmt.Sprintf("%.4f", success(r)),
		brief(r.span(medianLatency)), brief(r.span(p99Latency)), brief(r.span(p999Latency)),
	}
	switch {
	case s.Before > 0:
		return append(cells, fmt.Sprintf("%.2f", r.worst(worstDuring)), fmt.Sprintf("%.2f", r.worst(peakAfter)), r.recovery())
	case s.Server.Limit.perSecond() > 0:
		return append(cells, fmt.Sprintf("%.0f", r.average(tooMany)), fmt.Sprintf("%.3f", r.average(quotaUsed)), fmt.Sprintf("%.3f", r.average(failedFast)))
	}
	return append(cells, fmt.Sprintf("%.2f", r.worst(worstSecond)))
}

func brief(d time.Duration) string {
	if d >= time.Second {
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(100 * time.Microsecond).String()
}
