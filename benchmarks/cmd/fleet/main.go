// Fleet lets many clients of each library meet one server, in virtual time: see
// package fleet.
//
//	go run ./benchmarks/cmd/fleet
//
// makes every run of this library and of a bare client, prints what was measured,
// and rewrites its sections of docs/performance.md and the plots beside it; with
// -all, of all libraries.
//
//	go run ./benchmarks/cmd/fleet -scenario=outage,7 -peer=ours,bare -seeds=3 -series
//
// makes some of them, and prints it only. A scenario has a name, and the number of
// its row in the design's table of everyday troubles, if it has one.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/resilienthttp/resilienthttp/benchmarks/fleet"
	"github.com/resilienthttp/resilienthttp/benchmarks/internal/bubble"
	"github.com/resilienthttp/resilienthttp/benchmarks/internal/report"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

type options struct {
	scenario, peer, topology, docs, plots, keep string
	seconds                                     float64
	seed                                        uint64
	seeds, random, only                         int
	series, targets, write                      bool
}

func main() {
	var o options
	flag.StringVar(&o.scenario, "scenario", "all", "all, fleet, troubles, a row's number, or a name: "+strings.Join(fleet.Names(), ", ")+"; several with commas")
	flag.StringVar(&o.peer, "peer", "all", "ours, defaults, or of "+strings.Join(peers.Names(), ", ")+"; several with commas; or all")
	flag.StringVar(&o.topology, "topology", "both", "shared, own or both")
	flag.Float64Var(&o.seconds, "seconds", 0, "of virtual time in which requests arrive, all phases in proportion; 0: the scenario's own")
	flag.Uint64Var(&o.seed, "seed", fleet.Seed, "of the arrivals and the server")
	flag.IntVar(&o.seeds, "seeds", 1, "how many, from -seed on")
	flag.BoolVar(&o.series, "series", false, "also print arrivals, load and goodput by the second")
	flag.BoolVar(&o.targets, "targets", true, "also hold "+peers.Ours+" against its targets")
	flag.BoolVar(&o.write, "write", true, "rewrite the section of docs/performance.md and the plots, if all runs are made")
	flag.StringVar(&o.docs, "docs", "", "the directory to write to, whatever runs are made; empty: the repository's docs")
	flag.StringVar(&o.plots, "plots", "svg", "their format: svg, or png for a look at them")
	flag.IntVar(&o.random, "random", 0, "instead: that many random compositions of troubles, of the libraries in -peer (all: ours) against a bare client")
	flag.IntVar(&o.only, "random-only", -1, "instead: that one of them alone")
	flag.StringVar(&o.keep, "keep", "", "a file that keeps results: what it has is not run again")
	flag.Parse()
	// net/http logs that a RoundTripper returned both a response and an error.
	log.SetOutput(io.Discard) //nolint:forbidigo // a command may
	debug.SetGCPercent(400)   // nearly all that a run allocates is short-lived: a third less work
	bubble.Main(o.run)
}

func (o options) run(t *testing.T) error {
	if o.random > 0 || o.only >= 0 {
		return o.compositions(t)
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
	print(fleet.Header())
	var rows fleet.Rows
	results := fleet.RunAll(t, runs, kept, func(r fleet.Result) {
		if row := rows.Add(r); len(row) == o.seeds {
			print(fleet.Line(row))
			o.more(r)
		}
	})
	if o.targets {
		print("\n" + rows.Verdicts())
	}
	return errors.Join(kept.Close(), o.report(results))
}

// runs are those that are asked for.
func (o options) runs() (runs []fleet.Config, err error) {
	scenarios, err := fleet.Named(o.scenario)
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
		who, err := s.Peers(o.peer)
		if err != nil {
			return nil, err
		}
		for _, topology := range topologies {
			if !s.In(topology) {
				continue
			}
			for _, p := range who {
				for i := range o.seeds {
					runs = append(runs, fleet.Config{Scenario: s, Peer: p, Topology: topology, Seed: o.seed + uint64(i)}) //nolint:gosec // a small number
				}
			}
		}
	}
	return runs, nil
}

// compositions runs what is drawn.
func (o options) compositions(t *testing.T) error {
	if o.peer == "all" {
		o.peer = "ours"
	}
	who, err := fleet.Scenario{}.Peers(o.peer)
	if err != nil {
		return err
	}
	if o.only >= 0 {
		trial := fleet.Alone(t, o.seed, o.only, who)
		print(trial)
		for _, r := range trial.Of {
			o.more(r)
		}
		return nil
	}
	trials := fleet.Random(t, o.seed, o.random, who, func(trial fleet.Trial) {
		for _, line := range trial.Harmed() {
			print(line)
		}
	})
	for _, tally := range fleet.Tallies(trials) {
		print(tally)
	}
	return nil
}

func print(line any) { _, _ = fmt.Fprintln(os.Stdout, line) }

func (o options) more(r fleet.Result) {
	if !o.series {
		return
	}
	print("     second arrivals load goodput")
	for i := range r.Load {
		print(fmt.Sprintf("     %6d %8d %4d %7d", i, at(r.Arrivals, i), r.Load[i], at(r.Goodput, i)))
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
func (o options) report(results []fleet.Result) error {
	docs := o.docs
	if docs == "" {
		if !o.write || o.scenario != "all" || o.peer != "all" || o.topology != "both" || o.seconds != 0 {
			return nil
		}
		var err error
		if docs, err = report.Docs(); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(docs, 0o755); err != nil { //nolint:gosec // documentation
		return err
	}
	if err := fleet.Draw(docs, o.plots, results); err != nil {
		return err
	}
	return report.Write(docs, "fleet", fleet.Markdown(results))
}
