// Fleet lets a thousand clients of each library meet one server, in virtual
// time: see package fleet.
//
//	go run ./benchmarks/cmd/fleet
//
// makes every run, prints what was measured, and rewrites its section of
// docs/performance.md and the plots beside it.
//
//	go run ./benchmarks/cmd/fleet -scenario=outage -peer=resilienthttp -series
//
// makes some of them, and prints it only.
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
	series, targets, write                      bool
}

func main() {
	var o options
	flag.StringVar(&o.scenario, "scenario", "all", "one of healthy, outage, brownout, errors, quota, tail; or all")
	flag.StringVar(&o.peer, "peer", "all", "of "+strings.Join(peers.Names(), ", ")+"; several with commas; or all")
	flag.StringVar(&o.topology, "topology", "both", "shared, own or both")
	flag.Float64Var(&o.seconds, "seconds", 0, "of virtual time in which requests arrive, all phases in proportion; 0: the scenario's own")
	flag.Uint64Var(&o.seed, "seed", fleet.Seed, "of the arrivals and the server")
	flag.BoolVar(&o.series, "series", false, "also print arrivals, load and goodput by the second")
	flag.BoolVar(&o.targets, "targets", true, "also hold "+peers.Ours+" against its targets")
	flag.BoolVar(&o.write, "write", true, "rewrite the section of docs/performance.md and the plots, if all runs are made")
	flag.StringVar(&o.docs, "docs", "", "the directory to write to, whatever runs are made; empty: the repository's docs")
	flag.StringVar(&o.plots, "plots", "svg", "their format: svg, or png for a look at them")
	flag.StringVar(&o.keep, "keep", "", "a file that keeps results: what it has is not run again")
	flag.Parse()
	// net/http logs that a RoundTripper returned both a response and an error.
	log.SetOutput(io.Discard) //nolint:forbidigo // a command may
	debug.SetGCPercent(400)   // nearly all that a run allocates is short-lived: a third less work
	bubble.Main(o.run)
}

func (o options) run(t *testing.T) error {
	scenarios, err := fleet.Named(o.scenario)
	if err != nil {
		return err
	}
	who, err := peers.Named(o.peer)
	if err != nil {
		return err
	}
	topologies := []fleet.Topology{fleet.Shared, fleet.Own}
	switch t := fleet.Topology(o.topology); t {
	case fleet.Shared, fleet.Own:
		topologies = []fleet.Topology{t}
	case "both":
	default:
		return fmt.Errorf("no topology %q: shared, own or both", t)
	}
	var runs []fleet.Config
	for _, s := range scenarios {
		if o.seconds > 0 {
			s = s.Scaled(time.Duration(o.seconds * float64(time.Second)))
		}
		for _, topology := range topologies {
			for _, p := range who {
				runs = append(runs, fleet.Config{Scenario: s, Peer: p, Topology: topology, Seed: o.seed})
			}
		}
	}
	var kept *fleet.Kept
	if o.keep != "" {
		if kept, err = fleet.Keep(o.keep); err != nil {
			return err
		}
	}
	_, _ = fmt.Fprintln(os.Stdout, fleet.Header())
	results := fleet.RunAll(t, runs, kept, func(r fleet.Result) {
		_, _ = fmt.Fprintln(os.Stdout, r)
		o.more(r)
	})
	return errors.Join(kept.Close(), o.report(results))
}

// aimed reports whether the targets of the result's scenario are for its peer.
func aimed(r fleet.Result) bool {
	if r.Scenario.Name == "tail" {
		return strings.HasPrefix(r.Peer.Name, peers.OursHedged)
	}
	return r.Peer.Name == peers.Ours
}

func (o options) more(r fleet.Result) {
	if o.targets && aimed(r) {
		for _, target := range r.Targets() {
			_, _ = fmt.Fprintln(os.Stdout, "    ", target)
		}
	}
	if o.series {
		_, _ = fmt.Fprintln(os.Stdout, "     second arrivals load goodput")
		for i := range r.Load {
			_, _ = fmt.Fprintf(os.Stdout, "     %6d %8d %4d %7d\n", i, at(r.Arrivals, i), r.Load[i], at(r.Goodput, i))
		}
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
	var targets []fleet.Result
	for _, r := range results {
		if aimed(r) {
			targets = append(targets, r)
		}
	}
	if err := fleet.Draw(docs, o.plots, results); err != nil {
		return err
	}
	return report.Write(docs, "fleet", fleet.Markdown(results, targets))
}
