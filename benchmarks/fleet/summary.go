package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/benchmarks/internal/report"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// comparison is one line of the page: a scenario in one topology.
type comparison struct {
	scenario   Scenario
	topology   Topology
	ours, bare Row
	peer       string // the best of the other libraries; "": unknown
	best       PeerResult
}

// comparisons are the rows in which this library and a bare client were run.
func (r *Rows) comparisons() (all []comparison) {
	for _, row := range r.all {
		c := row[0].Config
		if c.Peer.Name != c.Scenario.OursNames()[0] {
			continue
		}
		if bare := r.rowOf(c, "bare"); len(bare) > 0 {
			g := comparison{scenario: c.Scenario, topology: c.Topology, ours: row, bare: bare}
			g.peer, g.best = r.best(c)
			all = append(all, g)
		}
	}
	return all
}

// ScenarioResults are the results in benchmarks/results/scenarios.md: a summary, and the figures of each scenario.
func ScenarioResults(rows *Rows, tallies []Tally) string {
	var text strings.Builder
	for _, line := range rows.summary(tallies) {
		fmt.Fprintf(&text, "- %s\n", line)
	}
	text.WriteByte('\n')
	table := report.NewTextTable(scenarioHeading, "what happens", "Transport", "bare", "best peer", peers.Ours,
		"latency, bare", "latency, "+peers.Ours, "attempts per call")
	for _, g := range rows.comparisons() {
		best := "–"
		if g.peer != "" {
			best = fmt.Sprintf("%.4f, %s", g.best.Shown, g.peer)
		}
		table.Row(g.scenario.Name, g.scenario.Note, g.topology.label(), fmt.Sprintf("%.4f", shown(g.bare)), best, fmt.Sprintf("**%.4f**", shown(g.ours)),
			brief(g.bare.span(meanLatency)), brief(g.ours.span(meanLatency)), fmt.Sprintf("%.3f", g.ours.average(Result.AttemptsPerCall)))
	}
	fmt.Fprintln(&text, table)
	return text.String()
}

const scenarioHeading = "scenario" // of the first column

// summary are the lines at the top of the page.
func (r *Rows) summary(tallies []Tally) (lines []string) {
	lines = append(lines, r.targetsReached(), r.means(),
		r.ruleLine("At most 0.01 of the calls below a bare client", vsBare), r.ruleLine("At most 0.02 of the calls below the best peer", vsPeer))
	if len(tallies) > 0 {
		lines = append(lines, randomCompositions(tallies))
	}
	return append(lines, r.missedTargets())
}

func (r *Rows) targetsReached() string {
	var n verdictCount
	seeds := 0
	scenarios := map[string]bool{}
	for _, row := range r.all {
		for _, t := range r.VerdictsOf(row) {
			scenarios[row[0].Scenario.Name] = true
			seeds = max(seeds, len(row))
			n.add(t)
		}
	}
	return fmt.Sprintf("**%d scenarios, %d seeds**: %d of %d targets and %d of %d goals are met.", len(scenarios), seeds, n.met, n.targets, n.goalsMet, n.goals)
}

// firstNames joins the first names and counts the others.
func firstNames(names []string) string {
	const few = 6
	if len(names) > few {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:few], "; "), len(names)-few)
	}
	return strings.Join(names, "; ")
}

func (r *Rows) means() string {
	var ours, bare, best, n, known float64
	for _, g := range r.comparisons() {
		ours, bare, n = ours+shown(g.ours), bare+shown(g.bare), n+1
		if g.peer != "" {
			best, known = best+g.best.Shown, known+1
		}
	}
	text := fmt.Sprintf("**Mean success of all rows**: %.3f; a bare client %.3f", ours/max(n, 1), bare/max(n, 1))
	if known > 0 {
		text += fmt.Sprintf("; the best peer of each row %.3f", best/known)
	}
	return text + "."
}

// ruleLine names the rows that break a rule for all rows.
func (r *Rows) ruleLine(name, rule string) string {
	n, kept := 0, 0
	var broken []string
	for _, g := range r.comparisons() {
		for _, v := range r.VerdictsOf(g.ours) {
			if v.What != rule {
				continue
			}
			if n++; v.Reached {
				kept++
			} else {
				broken = append(broken, g.scenario.label(g.topology))
			}
		}
	}
	text := fmt.Sprintf("**%s**: %d of %d rows.", name, kept, n)
	if len(broken) > 0 {
		text += " Exceptions: " + firstNames(broken) + "."
	}
	return text
}

func randomCompositions(tallies []Tally) string {
	var parts []string
	for _, t := range tallies {
		parts = append(parts, fmt.Sprintf("%s: %.1f %% worse, maximum loss %.3f, mean gain %+.3f",
			t.Peer, 100*float64(t.Harmed)/float64(max(t.Trials, 1)), max(-t.Worst, 0), t.Mean))
	}
	return fmt.Sprintf("**%d random combinations of faults**, compared with a bare client call by call (worse: by more than 0.01 and three standard deviations): %s.",
		tallies[0].Trials, strings.Join(parts, "; "))
}

// missedTargets names the scenarios in which a target is missed.
func (r *Rows) missedTargets() string {
	var names []string
	for _, row := range r.all {
		for _, t := range r.VerdictsOf(row) {
			name := row[0].Scenario.label(row[0].Topology)
			if !t.Reached && !t.Goal && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		return "**No target is missed.**"
	}
	return "**A target is missed in** " + firstNames(names) + ": see [targets](targets.md)."
}

// LibraryResults are the results in benchmarks/results/libraries.md: all libraries in the base scenarios.
func LibraryResults(rows *Rows) string {
	var text strings.Builder
	for _, s := range baseScenarios() {
		var some []Row
		for _, row := range rows.all {
			if row[0].Scenario.Name == s.Name {
				some = append(some, row)
			}
		}
		if len(some) > 0 {
			writeScenario(&text, s, some)
		}
	}
	return text.String()
}

// TargetResults are the results in benchmarks/results/targets.md.
func TargetResults(rows *Rows) string {
	table := report.NewTextTable(scenarioHeading, "Transport", "measure", "target", "measured", "bare", "result")
	var reasons []string
	said := map[string]bool{}
	for _, row := range rows.all {
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
			if !t.Reached && t.Reason != "" && !said[t.Reason] {
				said[t.Reason] = true
				reasons = append(reasons, fmt.Sprintf("- %s, %s, %s: %s.\n", name, r.Topology.label(), t.What, t.Reason))
			}
		}
	}
	text := table.String() + "\n"
	if len(reasons) > 0 {
		text += fmt.Sprintf("## Reasons of missed targets\n\n%s\n", strings.Join(reasons, ""))
	}
	return text
}

// cell is the last column.
func (t Verdict) cell() string {
	if t.Reached {
		return t.word("")
	}
	return "**" + t.word("missed") + "**"
}

func writeScenario(text *strings.Builder, s Scenario, rows []Row) {
	fmt.Fprintf(text, "## %s: %s\n\n", strings.ToUpper(s.Name[:1])+s.Name[1:], s.Note)
	hasPhases := s.Before > 0
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
