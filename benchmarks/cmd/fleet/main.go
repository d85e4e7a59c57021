// Fleet lets many clients of each library meet one server, in virtual time: see
// package fleet. Without flags it is a scoreboard:
//
//	go run ./benchmarks/cmd/fleet
//
// makes one run of each scenario with this library and with a bare client, prints the
// figures, and then the verdicts: targets reached, aims and targets missed, each with the
// size of the miss, and a count for each group of scenarios. It changes no file.
//
//	go run ./benchmarks/cmd/fleet -group=small,blips
//	go run ./benchmarks/cmd/fleet -scenario=outage,7 -peer=ours,bare -seeds=3 -series
//	go run ./benchmarks/cmd/fleet -random=300
//	go run ./benchmarks/cmd/fleet -random-only=17 -peer=ours,aws-sdk-go-v2
//
// run a part: the scenarios of some groups; some scenarios, by their names or by the
// numbers of their rows in the design's table; random compositions of troubles. With
// -seeds=3 a figure is the mean of three seeds; with -all the other libraries run, too.
//
//	go run ./benchmarks/cmd/fleet -keep=before.json
//	go run ./benchmarks/cmd/fleet -against=before.json
//
// keep the results of one version, and print at the end what has changed in another:
// verdicts, and shares of successful calls.
//
//	go run ./benchmarks/cmd/fleet -write
//
// measures all at three seeds, adds 300 random compositions, and rewrites its section of
// docs/performance.md and the plot of all troubles; there, other libraries keep the
// figures of the last run with -all -write, which rewrites all sections and plots. With
// -scenario=gates, -write rewrites the section on a server's gates alone. And
//
//	go run ./benchmarks/cmd/fleet -scenario=brownout -peer=all -draw
//
// draws the plots of the fleet's own scenarios that are run, and that of all troubles
// from the figures on the page, and writes nothing else.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/benchmarks/fleet"
	"github.com/resilienthttp/resilienthttp/benchmarks/internal/bubble"
	"github.com/resilienthttp/resilienthttp/benchmarks/internal/report"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

type options struct {
	group, scenario, peer, topology, docs, plots, keep, against string
	seconds                                                     float64
	seed                                                        uint64
	seeds, random, only                                         int
	series, targets, write, all, remember, draw                 bool
}

// What is run for the page, if nothing else is asked for.
const (
	allSeeds        = 3
	allCompositions = 300
)

func main() {
	var o options
	flag.BoolVar(&o.all, "all", false, "run the other libraries as well")
	flag.StringVar(&o.group, "group", "", "the scenarios of some groups: "+strings.Join(fleet.Groups(), ", ")+"; several with commas")
	flag.StringVar(&o.scenario, "scenario", "all", "all, fleet, troubles, gates, a row's number, or a name: "+strings.Join(fleet.Names(), ", ")+"; several with commas")
	flag.StringVar(&o.peer, "peer", "", "ours, defaults, or of "+strings.Join(peers.Names(), ", ")+"; several with commas; or all. Empty: ours,bare")
	flag.StringVar(&o.topology, "topology", "both", "shared, own or both")
	flag.Float64Var(&o.seconds, "seconds", 0, "of virtual time in which requests arrive, all phases in proportion; 0: the scenario's own")
	flag.Uint64Var(&o.seed, "seed", fleet.Seed, "of the arrivals and the server")
	flag.IntVar(&o.seeds, "seeds", 0, "how many, from -seed on; 0: 1, or with -write 3 of this library and a bare client")
	flag.BoolVar(&o.series, "series", false, "also print arrivals, load and goodput by the second")
	flag.BoolVar(&o.targets, "targets", true, "also hold "+peers.Ours+" against its targets")
	flag.BoolVar(&o.write, "write", false, "rewrite docs/performance.md and the plots, from all runs or from all at the gates")
	flag.StringVar(&o.docs, "docs", "", "the directory to write to, whatever runs are made; empty: the repository's docs")
	flag.BoolVar(&o.draw, "draw", false, "write nothing but plots: of the fleet's own scenarios those that are run, and all troubles as the page has them")
	flag.StringVar(&o.plots, "plots", "svg", "their format: svg, or png for a look at them")
	flag.IntVar(&o.random, "random", 0, "that many random compositions of troubles, of the libraries in -peer against a bare client, and nothing else")
	flag.IntVar(&o.only, "random-only", -1, "that one of them alone")
	flag.BoolVar(&o.remember, "remember", false, "keep what other libraries have in benchmarks/fleet/peers.json, as -all -write does")
	flag.StringVar(&o.keep, "keep", "", "a file that keeps results: what it has is not run again")
	flag.StringVar(&o.against, "against", "", "a file with the results that another run kept: what has changed since is printed")
	flag.Parse()
	// net/http logs that a RoundTripper returned both a response and an error.
	log.SetOutput(io.Discard) //nolint:forbidigo // a command may
	debug.SetGCPercent(400)   // nearly all that a run allocates is short-lived: a third less work
	bubble.Main(o.run)
}

// whole reports whether nothing is left out.
func (o options) whole() bool {
	return o.scenario == "all" && o.group == "" && o.topology == "both" && o.seconds == 0 && (o.peer == "" || o.peer == "all")
}

// gates reports whether all runs at a server's gates are made, and nothing else.
func (o options) gates() bool {
	return o.scenario == "gates" && o.group == "" && o.topology == "both" && o.seconds == 0 && o.peer == ""
}

func (o options) run(t *testing.T) error {
	if err := o.check(); err != nil {
		return err
	}
	if o.random > 0 || o.only >= 0 {
		tallies, err := o.compositions(t)
		if err != nil || !o.remember {
			return err
		}
		return remember(&fleet.Rows{}, tallies)
	}
	runs, err := o.runs()
	if err != nil {
		return err
	}
	var kept *fleet.Kept
	if o.keep != "" {
		if kept, err = fleet.Keep(o.keep); err != nil {
			return err
		}
	}
	rows := fleet.Rows{}
	if rows.Beside, err = fleet.ReadBeside(); err != nil {
		return err
	}
	before, had := fleet.Rows{Beside: rows.Beside}, (*fleet.Kept)(nil)
	if o.against != "" {
		if _, err = os.Stat(o.against); err != nil { // Keep would make it
			return err
		}
		if had, err = fleet.Keep(o.against); err != nil {
			return err
		}
	}
	say(fleet.Header())
	fleet.RunAll(t, runs, kept, func(r fleet.Result) {
		if was, ok := had.Get(r.Config); ok {
			before.Add(was)
		}
		if row := rows.Add(r); len(row) == o.seedsOf(r.Config) {
			say(fleet.Line(row))
			o.more(r)
		}
	})
	if o.targets {
		say("\n" + rows.Verdicts())
	}
	if had != nil {
		say("changed since " + o.against + ":\n" + rows.Changes(&before))
	}
	if o.remember {
		err = remember(&rows, nil)
	}
	return errors.Join(err, kept.Close(), had.Close(), o.report(t, &rows))
}

// check reports flags that contradict each other.
func (o options) check() error {
	switch {
	case o.write && !o.whole() && !o.gates():
		return errors.New("fleet: -write needs all runs, or all of -scenario=gates (see -docs to write elsewhere)")
	case o.group != "" && o.scenario != "all":
		return errors.New("fleet: -group and -scenario exclude each other")
	}
	return nil
}

// remember keeps what other libraries have, beside what is kept already.
func remember(rows *fleet.Rows, tallies []fleet.Tally) error {
	docs, err := report.Docs()
	if err != nil {
		return err
	}
	return fleet.Remember(docs, rows, tallies)
}

// runs are those that are asked for.
func (o options) runs() (runs []fleet.Config, err error) {
	scenarios, err := o.scenarios()
	if err != nil {
		return nil, err
	}
	topologies := []fleet.Topology{fleet.Shared, fleet.Own}
	switch t := fleet.Topology(o.topology); t {
	case fleet.Shared, fleet.Own:
		topologies = []fleet.Topology{t}
	case "both":
	default:
		return nil, fmt.Errorf("no topology %q: shared, own or both", t)
	}
	for _, s := range scenarios {
		if o.seconds > 0 {
			s = s.Scaled(time.Duration(o.seconds * float64(time.Second)))
		}
		who, err := o.peers(s)
		if err != nil {
			return nil, err
		}
		for _, topology := range topologies {
			for _, p := range who {
				c := fleet.Config{Scenario: s, Peer: p, Topology: topology}
				for i := range o.seedsOf(c) {
					if c.Seed = o.seed + uint64(i); s.In(topology) {
						runs = append(runs, c)
					}
				}
			}
		}
	}
	return runs, nil
}

func (o options) scenarios() ([]fleet.Scenario, error) {
	if o.group != "" {
		return fleet.InGroups(o.group)
	}
	return fleet.Named(o.scenario)
}

// peers are those that meet the scenario: with -all, all libraries the fleet's own,
// and those that this one is held beside the everyday troubles.
func (o options) peers(s fleet.Scenario) ([]peers.Peer, error) {
	switch {
	case o.peer != "":
		return s.Peers(o.peer)
	case o.all && s.Row == 0:
		return s.Peers("all")
	case o.all:
		return s.Peers("bare,ours,defaults")
	}
	return s.Peers("bare,ours")
}

// seedsOf is how many seeds a library is run with: for the page, this one and a bare
// client with several; at the gates, those that have targets.
func (o options) seedsOf(c fleet.Config) int {
	switch {
	case o.seeds > 0:
		return o.seeds
	case !o.write:
	case o.gates() && c.Scenario.Goals != nil,
		o.whole() && (c.Peer.Name == "bare" || strings.HasPrefix(c.Peer.Name, peers.Ours)):
		return allSeeds
	}
	return 1
}

// compositions runs what is drawn.
func (o options) compositions(t *testing.T) ([]fleet.Tally, error) {
	switch {
	case o.peer != "":
	case o.all:
		o.peer = "ours,go-retryablehttp,aws-sdk-go-v2"
	default:
		o.peer = "ours"
	}
	who, err := fleet.Scenario{}.Peers(o.peer)
	if err != nil {
		return nil, err
	}
	if o.only >= 0 {
		trial := fleet.Alone(t, o.seed, o.only, who)
		say(trial)
		for _, r := range trial.Of {
			o.more(r)
		}
		return nil, nil
	}
	trials := fleet.Random(t, o.seed, o.random, who, func(trial fleet.Trial) {
		for _, line := range trial.Harmed() {
			say(line)
		}
	})
	tallies := fleet.Tallies(trials)
	for _, tally := range tallies {
		say(tally)
	}
	return tallies, nil
}

func say(line any) { _, _ = fmt.Fprintln(os.Stdout, line) }

func (o options) more(r fleet.Result) {
	if !o.series {
		return
	}
	say("     second arrivals load goodput")
	for i := range r.Load {
		say(fmt.Sprintf("     %6d %8d %4d %7d", i, at(r.Arrivals, i), r.Load[i], at(r.Goodput, i)))
	}
}

func at(s []int, i int) int {
	if i < len(s) {
		return s[i]
	}
	return 0
}

// report writes what was measured, if it is all that there is to measure, or
// asked for.
func (o options) report(t *testing.T, rows *fleet.Rows) error {
	docs := o.docs
	if docs == "" {
		if !o.draw && !o.write {
			return nil
		}
		var err error
		if docs, err = report.Docs(); err != nil {
			return err
		}
	}
	if o.draw {
		return errors.Join(fleet.DrawTroubles(docs, o.plots), fleet.Draw(docs, o.plots, rows))
	}
	if o.gates() {
		return report.Write(docs, "gates", fleet.Gates(rows))
	}
	tallies, err := o.drawn(t, rows)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(docs, 0o755); err != nil { //nolint:gosec // documentation
		return err
	}
	if err := errors.Join(report.Write(docs, "troubles", fleet.Glance(rows, tallies)), fleet.DrawTroubles(docs, o.plots)); err != nil {
		return err
	}
	if !o.all && o.peer != "all" {
		return nil
	}
	if err := errors.Join(fleet.Draw(docs, o.plots, rows), report.Write(docs, "fleet", fleet.Markdown(rows))); err != nil {
		return err
	}
	if o.docs == "" {
		return remember(rows, tallies)
	}
	return nil
}

// drawn runs the random compositions that belong to a whole run. Libraries that were
// not run stand there with what they had.
func (o options) drawn(t *testing.T, rows *fleet.Rows) ([]fleet.Tally, error) {
	if !o.whole() {
		return nil, nil
	}
	o.random, o.peer = allCompositions, ""
	tallies, err := o.compositions(t)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"go-retryablehttp", "aws-sdk-go-v2"} {
		had, ok := rows.Beside.Tallies[name]
		if ok && !slices.ContainsFunc(tallies, func(t fleet.Tally) bool { return t.Peer == name }) {
			tallies = append(tallies, had)
		}
	}
	return tallies, nil
}
