package fleet

import (
	"fmt"
	"slices"
	"strings"

	"github.com/resilienthttp/resilienthttp/benchmarks/internal/report"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// glance is one line of the plot: a scenario in one topology.
type glance struct {
	scenario   Scenario
	topology   Topology
	ours, bare Row
	peer       string // the best of the others; "": none is known
	had        Had
}

// glances are the lines that both this library and a bare client were run for.
func (r *Rows) glances() (all []glance) {
	for _, key := range r.keys {
		row := r.results[key]
		c := row[0].Config
		if c.Peer.Name != c.Scenario.OursNames()[0] {
			continue
		}
		if bare := r.beside(c, "bare"); len(bare) > 0 {
			g := glance{scenario: c.Scenario, topology: c.Topology, ours: row, bare: bare}
			g.peer, g.had = r.best(c)
			all = append(all, g)
		}
	}
	return all
}

func (g glance) String() string { return fmt.Sprintf("%s, %s", g.scenario.Name, g.topology) }

// Glance is the section of docs/performance.md on all troubles: a summary, the
// plot, and what was to be reached.
func Glance(rows *Rows, tallies []Tally) string {
	var text strings.Builder
	fmt.Fprint(&text, `## Everyday troubles at a glance

Measured by `+"`go run ./benchmarks/cmd/fleet -write`"+`, in virtual time, at the zero value; *shared* means one client for all
callers, *own* many that know nothing of each other. In short:

`)
	for _, line := range rows.summary(tallies) {
		fmt.Fprintf(&text, "- %s\n", line)
	}
	fmt.Fprint(&text, `
![Success in each trouble: this library, a bare client, and the best peer](fleet-troubles.svg)

A dot shows the share of calls that succeed, or what the trouble is about: the calls to the endpoint that is well, those
that meet the outage, those made when it is over, or what is used of what a server can do or grants. The bar goes from
the bare client to this library: wide and blue is gained, thin and orange is lost. The best peer is the one of `+strings.Join(peers.Defaults(), ", ")+`
that does best there, each at its defaults.

`)
	writeGlances(&text, rows)
	fmt.Fprint(&text, "### What was to be reached\n\n")
	writeTargets(&text, rows)
	return text.String()
}

const glanceHeading = "trouble"

// writeGlances is the plot as a table.
func writeGlances(text *strings.Builder, rows *Rows) {
	fmt.Fprint(text, "### The figures of the plot, and what they cost\n\n")
	table := report.NewTextTable(glanceHeading, "clients", "bare", "best peer", "this library", "mean latency", "attempts per call, bare 1")
	for _, g := range rows.glances() {
		best := "–"
		if g.peer != "" {
			best = fmt.Sprintf("%.4f, %s", g.had.Shown, g.peer)
		}
		table.Row(g.scenario.Note, string(g.topology), fmt.Sprintf("%.4f", shown(g.bare)), best, fmt.Sprintf("**%.4f**", shown(g.ours)),
			brief(g.ours.span(meanLatency)), fmt.Sprintf("%.3f", g.ours.average(Result.AttemptsPerCall)))
	}
	fmt.Fprintln(text, table)
}

// summary are the ten lines for those who read no further.
func (r *Rows) summary(tallies []Tally) (lines []string) {
	lines = append(lines, r.reached(), r.means(), r.besideBare(), r.besideBest())
	lines = append(lines, random(tallies)...)
	for _, about := range []func() string{r.aboutOutage, r.aboutBrownout, r.aboutQuota, r.aboutCrons, r.missed} {
		if line := about(); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

func (r *Rows) reached() string {
	var goals, reached, aims, aimed int
	seeds := 0
	scenarios := map[string]bool{}
	for _, key := range r.keys {
		row := r.results[key]
		for _, t := range r.Targets(row) {
			scenarios[row[0].Scenario.Name] = true
			seeds = max(seeds, len(row))
			switch {
			case t.Aim && t.Reached:
				aims, aimed = aims+1, aimed+1
			case t.Aim:
				aims++
			case t.Reached:
				goals, reached = goals+1, reached+1
			default:
				goals++
			}
		}
	}
	return fmt.Sprintf("**%d troubles, %s**: %d of %d targets are reached, and %d of %d aims.", len(scenarios), plural(seeds, "seed"), reached, goals, aimed, aims)
}

// some names no more of them than one reads.
func some(names []string) string {
	const few = 6
	if len(names) > few {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:few], "; "), len(names)-few)
	}
	return strings.Join(names, "; ")
}

func plural(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}

func (r *Rows) means() string {
	var ours, bare, best, n, known float64
	for _, g := range r.glances() {
		ours, bare, n = ours+shown(g.ours), bare+shown(g.bare), n+1
		if g.peer != "" {
			best, known = best+g.had.Shown, known+1
		}
	}
	text := fmt.Sprintf("**Success, the mean of the plot's lines**: %.3f, where a bare client has %.3f", ours/max(n, 1), bare/max(n, 1))
	if known > 0 {
		text += fmt.Sprintf(", and whichever peer is best there %.3f", best/known)
	}
	return text + "."
}

// besideBare and besideBest say where the rule that holds for every row does not.
func (r *Rows) besideBare() string {
	return r.rule("Never worse than a bare client, by more than 0.01 of the calls", func(g glance) (float64, bool) {
		return success(g.ours) - success(g.bare) + worse, success(g.bare) >= worth && g.scenario.Load.Workers == 0
	})
}

func (r *Rows) besideBest() string {
	return r.rule("Within 0.02 of the best peer", func(g glance) (float64, bool) {
		best := min(g.had.Success, g.scenario.ceiling())
		return success(g.ours) - best + beside, g.peer != "" && best >= worth && g.scenario.Load.Workers == 0
	})
}

func (r *Rows) rule(name string, left func(glance) (float64, bool)) string {
	n, kept := 0, 0
	var broken []string
	for _, g := range r.glances() {
		by, ok := left(g)
		if !ok {
			continue
		}
		if n++; by >= 0 {
			kept++
		} else {
			broken = append(broken, g.String())
		}
	}
	text := fmt.Sprintf("**%s**: in %d of %d.", name, kept, n)
	if len(broken) > 0 {
		text += " Not in " + some(broken) + "."
	}
	return text
}

func random(tallies []Tally) []string {
	if len(tallies) == 0 {
		return nil
	}
	var parts []string
	for _, t := range tallies {
		parts = append(parts, fmt.Sprintf("%s harms %.1f %% by more than 0.01 and three standard deviations, at the worst by %.3f, and the mean of what it adds is %+.3f",
			t.Peer, 100*float64(t.Harmed)/float64(max(t.Trials, 1)), max(-t.Worst, 0), t.Mean))
	}
	return []string{fmt.Sprintf("**%d random compositions of such troubles**, against a bare client call by call: %s.", tallies[0].Trials, strings.Join(parts, "; "))}
}

// find returns this library's row.
func (r *Rows) find(scenario string, t Topology) Row {
	for _, g := range r.glances() {
		if g.scenario.Name == scenario && g.topology == t {
			return g.ours
		}
	}
	return nil
}

func (r *Rows) bareIn(scenario string, t Topology) float64 {
	for _, g := range r.glances() {
		if g.scenario.Name == scenario && g.topology == t {
			return success(g.bare)
		}
	}
	return 0
}

func (r *Rows) aboutOutage() string {
	shared, own := r.find("outage", Shared), r.find("outage", Own)
	if shared == nil || own == nil {
		return ""
	}
	return fmt.Sprintf("**A server that is away for 30 s** is asked %.2f times as much as usual in the worst second by a shared client, %.2f times by 1000 of their own; over all, %.2f and %.2f attempts a call; and goodput is back after %s and %s.",
		shared.worst(worstDuring), own.worst(worstDuring), shared.average(Result.AttemptsPerCall), own.average(Result.AttemptsPerCall), shared.back(), own.back())
}

func (r *Rows) aboutBrownout() string {
	shared, own := r.find("brownout", Shared), r.find("brownout", Own)
	if shared == nil || own == nil {
		return ""
	}
	return fmt.Sprintf("**A server with half its workers for 60 s**: %.3f and %.3f succeed, of a bare client's calls %.3f, of a perfect shedder's 0.874.",
		success(shared), success(own), r.bareIn("brownout", Shared))
}

func (r *Rows) aboutQuota() string {
	shared, own := r.find("quota", Shared), r.find("quota", Own)
	if shared == nil || own == nil {
		return ""
	}
	return fmt.Sprintf("**A quota of 100/s under 200/s**: a shared client uses %.1f %% of it and gets %.0f 429s after the first window; 1000 of their own get %.0f, where bare ones get %.0f.",
		100*shared.average(quotaUsed), shared.average(tooManyLater), own.average(tooMany), r.beside(own[0].Config, "bare").average(tooMany))
}

func (r *Rows) aboutCrons() string {
	var parts []string
	for _, length := range []string{"20s", "5s", "200ms"} {
		row := r.find("cron-"+length+"-500", Own)
		if row == nil {
			return ""
		}
		parts = append(parts, fmt.Sprintf("of %s %.2f", length, row.average(Result.SuccessDuring)))
	}
	return "**A call a minute that meets an outage** (500s) succeeds all the same: " + strings.Join(parts, ", ") + "; a bare client's does not."
}

// missed names the troubles in which a target is missed.
func (r *Rows) missed() string {
	var names []string
	for _, key := range r.keys {
		row := r.results[key]
		for _, t := range r.Targets(row) {
			name := fmt.Sprintf("%s, %s", row[0].Scenario.Name, row[0].Topology)
			if !t.Reached && !t.Aim && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		return "**Missed** is none."
	}
	return "**Something is missed in** " + some(names) + ": the table below says by how much."
}
