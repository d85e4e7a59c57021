package fleet

import (
	"fmt"
	"slices"
	"strings"

	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// Rows are results by scenario, topology and library, each with one of every seed.
type Rows struct {
	keys    []string // in the order in which they came
	results map[string][]Result
}

// Add adds a result, and returns those of its row.
func (r *Rows) Add(result Result) []Result {
	key := result.String()
	if r.results == nil {
		r.results = map[string][]Result{}
	}
	if _, ok := r.results[key]; !ok {
		r.keys = append(r.keys, key)
	}
	r.results[key] = append(r.results[key], result)
	return r.results[key]
}

// beside are the results of another library, in the same scenario and topology.
func (r *Rows) beside(c Config, peer string) []Result {
	c.Peer.Name = peer
	return r.results[c.String()]
}

// Targets holds a row against the goals of its scenario, if they are for its
// library.
func (r *Rows) Targets(row []Result) []Target {
	c := row[0].Config
	if !slices.Contains(c.Scenario.OursNames(), c.Peer.Name) {
		return nil
	}
	var others [][]Result
	for _, name := range peers.Defaults() {
		others = append(others, r.beside(c, name))
	}
	return Targets(row, r.beside(c, "bare"), others...)
}

// Verdicts are the targets of all rows, a line for each: first what is reached.
func (r *Rows) Verdicts() string {
	var reached, missed []string
	for _, key := range r.keys {
		row := r.results[key]
		for _, t := range r.Targets(row) {
			line := fmt.Sprintf("%-26s %-6s %s\n", row[0].Scenario.title(), row[0].Topology, t)
			if t.Reached {
				reached = append(reached, line)
			} else {
				missed = append(missed, line)
			}
		}
	}
	return strings.Join(reached, "") + strings.Join(missed, "") +
		fmt.Sprintf("%d targets, %d reached\n", len(reached)+len(missed), len(reached))
}

// Peers are those of a comma-separated list of names, where "ours" are the ones
// that stand for this library in the scenario, and "defaults" those against which
// it is held.
func (s Scenario) Peers(names string) ([]peers.Peer, error) {
	names = strings.ReplaceAll(","+names+",", ",ours,", ","+strings.Join(s.OursNames(), ",")+",")
	names = strings.ReplaceAll(names, ",defaults,", ","+strings.Join(peers.Defaults(), ",")+",")
	return peers.Named(strings.Trim(names, ","))
}
