package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// Header is the heading of the lines of Line.
func Header() string {
	return fmt.Sprintf("%-26s %-9s %-24s %8s %8s %8s %7s %7s %7s %7s %8s %8s %8s %8s %9s %7s", "scenario", "Transport", "library",
		"att/call", "success", "after", "worst", "w.dur", "peak", "recov", "mean", "p50", "p99", "p99.9", "fail p99", "429s")
}

// Line is one line of a table for terminals: the means of the seeds, and the worst seed
// for worst, w.dur, peak and recov.
func Line(row Row) string {
	r := row[0]
	span := func(of func(Result) time.Duration) string { return brief(row.span(of)) }
	return fmt.Sprintf("%-26s %-9s %-24s %8.4f %8.5f %8.5f %7.3f %7.3f %7.3f %7s %8s %8s %8s %8s %9s %7.0f",
		r.Scenario.Name, r.Topology, r.Peer.Name, row.average(Result.AttemptsPerCall), row.average(Result.Success), row.average(Result.SuccessAfter),
		row.worst(worstSecond), row.worst(worstDuring), row.worst(peakAfter), row.recovery(),
		span(meanLatency), span(medianLatency),
		span(p99Latency), span(p999Latency),
		span(func(r Result) time.Duration { return r.FailedP99 }), row.average(tooMany))
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
	kind := ""
	if t.Goal {
		kind = "goal "
	}
	text := fmt.Sprintf("%-14s %s %s%s: %s", t.word("MISSED"), t.What, kind, t.Want, t.Measured)
	if t.MissedBy != "" {
		text += ", by " + t.MissedBy
	}
	if t.Bare != "" {
		text += " (bare " + t.Bare + ")"
	}
	return strings.TrimSpace(text)
}

// word is the verdict, with the word for a missed target.
func (t Verdict) word(missed string) string {
	switch {
	case t.Reached:
		return "met"
	case t.Goal:
		return "goal missed"
	}
	return missed
}

// Row holds the results of one library in one scenario and topology, one per seed.
type Row []Result

func (r Row) average(measure func(Result) float64) float64 { return combined(r, measure, false, false) }

func (r Row) worst(measure func(Result) float64) float64 { return combined(r, measure, true, false) }

// span is the mean of a duration.
func (r Row) span(of func(Result) time.Duration) time.Duration {
	return time.Duration(r.average(func(result Result) float64 { return float64(of(result)) }))
}

// recovery is the recovery time of the worst seed.
func (r Row) recovery() string {
	if b := r.worst(recoverySeconds); b < never.Seconds() {
		return fmt.Sprintf("%.1f s", b)
	}
	return neverText
}

// Rows holds a Row for each scenario, topology and library.
type Rows struct {
	Peers PeerResults // results of other libraries that were not run now
	all   []Row       // in the order of Add
}

// Add adds a result and returns its row.
func (r *Rows) Add(result Result) Row {
	i := r.index(result.Config)
	if i < 0 {
		r.all = append(r.all, nil)
		i = len(r.all) - 1
	}
	r.all[i] = append(r.all[i], result)
	return r.all[i]
}

// index is the place of the row of a run, or -1.
func (r *Rows) index(c Config) int {
	name := c.String()
	return slices.IndexFunc(r.all, func(row Row) bool { return row[0].Config.String() == name })
}

// rowOf returns the row of another library in the same scenario and topology.
func (r *Rows) rowOf(c Config, peer string) Row {
	c.Peer.Name = peer
	if i := r.index(c); i >= 0 {
		return r.all[i]
	}
	return nil
}

// best returns the best of the other libraries in the same scenario and topology.
func (r *Rows) best(c Config) (name string, best PeerResult) {
	name, best = r.Peers.best(c)
	for _, peer := range peers.Defaults() {
		if row := r.rowOf(c, peer); len(row) > 0 && (name == "" || name == peer || success(row) > best.Success) {
			name, best = peer, PeerResult{Success: success(row), Shown: shown(row)}
		}
	}
	return name, best
}

// VerdictsOf compares a row with the targets of its scenario. It returns nil if the
// targets are not for the row's library.
func (r *Rows) VerdictsOf(row Row) []Verdict {
	c := row[0].Config
	if !slices.Contains(c.Scenario.OursNames(), c.Peer.Name) {
		return nil
	}
	_, best := r.best(c)
	return Verdicts(row, r.rowOf(c, "bare"), best.Success)
}

// VerdictText lists the verdicts of all rows, one a line: first those that are met, then
// the missed goals, then the missed targets. Counts by group follow.
func (r *Rows) VerdictText() string {
	var reached, below, missed strings.Builder
	byGroup := map[string]*verdictCount{}
	for _, name := range append(Groups(), totalCount) {
		byGroup[name] = &verdictCount{}
	}
	for _, row := range r.all {
		s := row[0].Scenario
		for _, t := range r.VerdictsOf(row) {
			to := &missed
			switch {
			case t.Reached:
				to = &reached
			case t.Goal:
				to = &below
			}
			fmt.Fprintf(to, "%-26s %-6s %s\n", s.Name, row[0].Topology, t)
			byGroup[s.group].add(t)
			byGroup[totalCount].add(t)
		}
	}
	for _, name := range append(Groups(), totalCount) {
		if n := byGroup[name]; n.targets+n.goals > 0 {
			fmt.Fprintf(&missed, "%-10s %s\n", name, n)
		}
	}
	return reached.String() + below.String() + missed.String()
}

const totalCount = "all"

// verdictCount counts targets and goals, and how many of them are met.
type verdictCount struct{ targets, met, goals, goalsMet int }

func (c *verdictCount) add(t Verdict) {
	of, met := &c.targets, &c.met
	if t.Goal {
		of, met = &c.goals, &c.goalsMet
	}
	*of++
	if t.Reached {
		*met++
	}
}

// String returns the counts in words.
func (c *verdictCount) String() string {
	text := fmt.Sprintf("%4d of %d targets met", c.met, c.targets)
	if c.goals > 0 {
		text += fmt.Sprintf(", %d of %d goals", c.goalsMet, c.goals)
	}
	return text
}

// Peers returns the libraries of a comma-separated list. "ours" stands for this library as
// the scenario configures it, "defaults" for the libraries that it is compared with.
func (s Scenario) Peers(names string) ([]peers.Peer, error) {
	names = strings.ReplaceAll(","+names+",", ",ours,", ","+strings.Join(s.OursNames(), ",")+",")
	names = strings.ReplaceAll(names, ",defaults,", ","+strings.Join(peers.Defaults(), ",")+",")
	return peers.Named(strings.Trim(names, ","))
}
