package fleet

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// Row are the results of one library in one scenario and topology, over several
// seeds.
type Row []Result

func (r Row) average(measure func(Result) float64) float64 { return combined(r, measure, false, false) }

func (r Row) worst(measure func(Result) float64) float64 { return combined(r, measure, true, false) }

// span is the mean of a duration.
func (r Row) span(of func(Result) time.Duration) time.Duration {
	return time.Duration(r.average(func(result Result) float64 { return float64(of(result)) }))
}

// back tells how long after the trouble goodput is back, at the worst.
func (r Row) back() string {
	if b := r.worst(backAfter); b < never.Seconds() {
		return fmt.Sprintf("%.1f s", b)
	}
	return "never"
}

// Rows are results by scenario, topology and library, each with one of every seed.
type Rows struct {
	Beside  Beside   // what other libraries had, where they were not run
	keys    []string // in the order in which they came
	results map[string]Row
}

// Add adds a result, and returns those of its row.
func (r *Rows) Add(result Result) Row {
	key := result.String()
	if r.results == nil {
		r.results = map[string]Row{}
	}
	if _, ok := r.results[key]; !ok {
		r.keys = append(r.keys, key)
	}
	r.results[key] = append(r.results[key], result)
	return r.results[key]
}

// beside are the results of another library, in the same scenario and topology.
func (r *Rows) beside(c Config, peer string) Row {
	c.Peer.Name = peer
	return r.results[c.String()]
}

// best is the best of the other libraries in the same scenario and topology.
func (r *Rows) best(c Config) (name string, had Had) {
	name, had = r.Beside.best(c)
	for _, peer := range peers.Defaults() {
		if row := r.beside(c, peer); len(row) > 0 && (name == "" || name == peer || success(row) > had.Success) {
			name, had = peer, Had{Success: success(row), Shown: shown(row)}
		}
	}
	return name, had
}

// Targets holds a row against the goals of its scenario, if they are for its
// library.
func (r *Rows) Targets(row Row) []Target {
	c := row[0].Config
	if !slices.Contains(c.Scenario.OursNames(), c.Peer.Name) {
		return nil
	}
	_, best := r.best(c)
	return Targets(row, r.beside(c, "bare"), best.Success)
}

// Verdicts are the targets of all rows, a line for each: first what is reached, then
// the aims that are not, and what is missed. A table by group follows.
func (r *Rows) Verdicts() string {
	var reached, below, missed strings.Builder
	byGroup, groupOf := map[string]*count{}, groupsByScenario()
	for _, name := range append(Groups(), "", totalCount) { // "": the gates
		byGroup[name] = &count{}
	}
	for _, key := range r.keys {
		row := r.results[key]
		s := row[0].Scenario
		for _, t := range r.Targets(row) {
			to := &missed
			switch {
			case t.Reached:
				to = &reached
			case t.Aim:
				to = &below
			}
			fmt.Fprintf(to, "%-26s %-6s %s\n", s.title(), row[0].Topology, t)
			byGroup[groupOf[s.Name]].add(t)
			byGroup[totalCount].add(t)
		}
	}
	for _, name := range append(Groups(), totalCount) {
		if n := byGroup[name]; n.targets+n.aims > 0 {
			fmt.Fprintf(&missed, "%-10s %s\n", name, n)
		}
	}
	return reached.String() + below.String() + missed.String()
}

// Changes are the lines on what differs from an earlier run: verdicts, and shares of
// successful calls by more than 0.005.
func (r *Rows) Changes(before *Rows) string {
	const margin = 0.005
	var text strings.Builder
	for _, key := range r.keys {
		row, was := r.results[key], before.results[key]
		targets := r.Targets(row)
		if len(was) == 0 || len(targets) == 0 {
			continue
		}
		name := fmt.Sprintf("%-26s %-6s", row[0].Scenario.title(), row[0].Topology)
		if by := success(row) - success(was); math.Abs(by) > margin {
			fmt.Fprintf(&text, "%s success %.4f, was %.4f\n", name, success(row), success(was))
		}
		earlier := before.Targets(was)
		for _, t := range targets {
			i := slices.IndexFunc(earlier, func(e Target) bool { return e.What == t.What && e.Aim == t.Aim })
			if i >= 0 && earlier[i].Reached != t.Reached {
				fmt.Fprintf(&text, "%s %s, was %s\n", name, t, earlier[i].Measured)
			}
		}
	}
	return text.String()
}

const totalCount = "all"

// count is how many targets and aims there are, and how many of them are reached.
type count struct{ targets, reached, aims, aimed int }

func (c *count) add(t Target) {
	of, reached := &c.targets, &c.reached
	if t.Aim {
		of, reached = &c.aims, &c.aimed
	}
	*of++
	if t.Reached {
		*reached++
	}
}

// String says it in words.
func (c *count) String() string {
	text := fmt.Sprintf("%4d of %d targets reached", c.reached, c.targets)
	if c.aims > 0 {
		text += fmt.Sprintf(", %d of %d aims", c.aimed, c.aims)
	}
	return text
}

// Peers are those of a comma-separated list of names, where "ours" are the ones
// that stand for this library in the scenario, and "defaults" those against which
// it is held.
func (s Scenario) Peers(names string) ([]peers.Peer, error) {
	names = strings.ReplaceAll(","+names+",", ",ours,", ","+strings.Join(s.OursNames(), ",")+",")
	names = strings.ReplaceAll(names, ",defaults,", ","+strings.Join(peers.Defaults(), ",")+",")
	return peers.Named(strings.Trim(names, ","))
}
