// Fleet compares HTTP client libraries in simulated failures of one server, in virtual
// time: see package fleet. Without flags it prints a scoreboard:
//
//	go run ./benchmarks/cmd/fleet
//
// runs each scenario once with this library and with a bare client, and prints the figures
// and then the verdicts. It changes no file. These flags select a part:
//
//	go run ./benchmarks/cmd/fleet -group=small,blips
//	go run ./benchmarks/cmd/fleet -group=ride-quick -peer=ours
//	go run ./benchmarks/cmd/fleet -scenario=outage,7 -peer=ours,bare -seeds=3
//	go run ./benchmarks/cmd/fleet -random=300
//	go run ./benchmarks/cmd/fleet -random=300 -peer=ours,variants
//	go run ./benchmarks/cmd/fleet -random-only=17 -peer=ours,aws-sdk-go-v2
//	go run ./benchmarks/cmd/fleet -zoo=1000 -seed=7
//	go run ./benchmarks/cmd/fleet -zoo-draw=17 -seed=7
//	go run ./benchmarks/cmd/fleet -gate=60 -seed=7
//
// -zoo and -zoo-draw run drawn rate limiters (package zoo): a summary of the criteria that are missed,
// and a line for each draw that misses one, with the flags that repeat it. -gate runs as many drawn
// limiters and random compositions, and fails if far more miss than did when the rates below were
// measured.
//
// With -seeds=3 a figure is the mean of three seeds. With -all the other libraries run too.
//
// Try a configuration of this library, as JSON of package config:
//
//	go run ./benchmarks/cmd/fleet -scenario=brownout -config='{"Budget": {"Static": true}}'
//
// Write the results:
//
//	go run ./benchmarks/cmd/fleet -write           # this library; other libraries keep their stored results
//	go run ./benchmarks/cmd/fleet -all -write      # all libraries: an hour
//	go run ./benchmarks/cmd/fleet -scenario=gates -write
//
// The first command runs three seeds and 300 random compositions. It writes
// benchmarks/results/scenarios.md and targets.md. Then
// UPDATE_DOCS=1 go test ./benchmarks/fleet -run=Overview writes the table of docs/performance.md.
// -all adds libraries.md. The third command writes load-shedding.md.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/resilienthttp/resilienthttp"
	"github.com/resilienthttp/resilienthttp/benchmarks/fleet"
	"github.com/resilienthttp/resilienthttp/benchmarks/internal/bubble"
	"github.com/resilienthttp/resilienthttp/benchmarks/internal/report"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
	"github.com/resilienthttp/resilienthttp/benchmarks/zoo"
	"github.com/resilienthttp/resilienthttp/config"
)

type options struct {
	group, scenario, peer, topology, out, config string
	seed                                         uint64
	seeds, random, only, zoo, zooDraw, gate      int
	write, all, remember                         bool
}

// The defaults of -write.
const (
	allSeeds        = 3
	allCompositions = 300
)

func main() {
	var o options
	flag.BoolVar(&o.all, "all", false, "also run the other libraries")
	flag.StringVar(&o.group, "group", "", "comma-separated groups of scenarios: "+strings.Join(fleet.Groups(), ", ")+", ride-quick (a sample of ride)")
	flag.StringVar(&o.scenario, "scenario", "all", "comma-separated: all, gates, life, the number of a row, or names of scenarios")
	flag.StringVar(&o.peer, "peer", "", "comma-separated: ours, variants (ours with mechanisms switched off), defaults, all, or names: "+strings.Join(peers.Names(), ", ")+" (default ours,bare)")
	flag.StringVar(&o.topology, "topology", "both", "shared (one Transport for all callers), own (one per client) or both")
	flag.Uint64Var(&o.seed, "seed", fleet.Seed, "seed of the arrivals and the server")
	flag.IntVar(&o.seeds, "seeds", 0, "number of seeds, starting at -seed; 0: 1, or with -write 3 for this library and a bare client")
	flag.BoolVar(&o.write, "write", false, "write benchmarks/results; needs all runs, or all of -scenario=gates")
	flag.StringVar(&o.out, "out", "", "write the results of any runs below this directory instead of the repository")
	flag.IntVar(&o.random, "random", 0, "run only `n` random compositions of faults with the libraries in -peer and a bare client")
	flag.IntVar(&o.only, "random-only", -1, "run only the random composition with this number")
	flag.IntVar(&o.zoo, "zoo", 0, "run only `n` drawn rate limiters with the library in -peer, a bare client and an oracle")
	flag.IntVar(&o.zooDraw, "zoo-draw", -1, "run only the drawn rate limiter with this number")
	flag.IntVar(&o.gate, "gate", 0, "run only `n` drawn rate limiters and n random compositions with this library; fail if far more miss than did so before")
	flag.BoolVar(&o.remember, "remember", false, "store the results of other libraries in benchmarks/fleet/peers.json, as -all -write does")
	flag.StringVar(&o.config, "config", "", "a configuration of this library as `JSON` of package config, in addition to the scenario's own")
	flag.Parse()
	// net/http logs that a RoundTripper returned both a response and an error.
	log.SetOutput(io.Discard) //nolint:forbidigo // a command may
	debug.SetGCPercent(400)   // nearly all that a run allocates is short-lived: a third less work
	bubble.Main(o.run)
}

// unchanged reports whether the scenarios run as they are, in both topologies.
func (o options) unchanged() bool {
	return o.group == "" && o.topology == "both" && o.config == ""
}

// whole reports whether all scenarios run.
func (o options) whole() bool {
	return o.scenario == "all" && o.unchanged() && (o.peer == "" || o.peer == "all")
}

// gates reports whether exactly the runs with gates are made.
func (o options) gates() bool {
	return o.scenario == "gates" && o.unchanged() && o.peer == ""
}

func (o options) run(t *testing.T) error {
	if err := o.check(); err != nil {
		return err
	}
	if o.gate > 0 {
		return o.runGate(t)
	}
	if o.zoo > 0 || o.zooDraw >= 0 {
		return o.runZoo(t)
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
	rows := fleet.Rows{}
	if rows.Peers, err = fleet.ReadPeerResults(); err != nil {
		return err
	}
	say(fleet.Header())
	fleet.RunAll(t, runs, func(r fleet.Result) {
		if row := rows.Add(r); len(row) == o.seedsOf(r.Config) {
			say(fleet.Line(row))
		}
	})
	if text := rows.PhaseText(); text != "" {
		say("\n" + text)
	}
	say("\n" + rows.VerdictText())
	if text := rows.RideText(); text != "" {
		say(text)
	}
	if o.remember {
		err = remember(&rows, nil)
	}
	return errors.Join(err, o.report(t, &rows))
}

// check reports flags that contradict each other.
func (o options) check() error {
	switch {
	case o.write && !o.whole() && !o.gates():
		return errors.New("fleet: -write needs all runs, or all of -scenario=gates (-out writes any runs to another directory)")
	case o.group != "" && o.scenario != "all":
		return errors.New("fleet: want -group or -scenario, not both")
	case o.zoo > 0 && o.zooDraw >= 0:
		return errors.New("fleet: want -zoo or -zoo-draw, not both")
	case !slices.Contains([]string{"shared", "own", "both"}, o.topology):
		return fmt.Errorf("fleet: no topology %q (want shared, own or both)", o.topology)
	case o.config == "":
		return nil
	case o.remember || o.random > 0 || o.only >= 0 || o.zoo > 0 || o.zooDraw >= 0:
		return errors.New("fleet: -config is for scenarios, without -remember")
	}
	if err := config.Read(strings.NewReader(o.config), &resilienthttp.Transport{}); err != nil {
		return fmt.Errorf("fleet: -config: %w", err)
	}
	return nil
}

// remember stores the results of other libraries.
func remember(rows *fleet.Rows, tallies []fleet.Tally) error {
	root, err := report.Root()
	if err != nil {
		return err
	}
	return fleet.StorePeerResults(root, rows, tallies)
}

// runs returns the runs that the flags select.
func (o options) runs() (runs []fleet.Config, err error) {
	find, names := fleet.Named, o.scenario
	if o.group != "" {
		find, names = fleet.InGroups, o.group
	}
	scenarios, err := find(names)
	if err != nil {
		return nil, err
	}
	for _, s := range scenarios {
		if o.config != "" {
			s = s.With(fleet.Configured(o.config))
		}
		libraries, err := o.peers(s)
		if err != nil {
			return nil, err
		}
		for _, topology := range []fleet.Topology{fleet.Shared, fleet.Own} {
			if o.topology != "both" && o.topology != string(topology) {
				continue
			}
			for _, p := range libraries {
				c := fleet.Config{Scenario: s, Peer: p, Topology: topology}
				for i := range o.seedsOf(c) {
					if c.Seed = o.seed + uint64(i); s.RunsIn(topology) {
						runs = append(runs, c)
					}
				}
			}
		}
	}
	return runs, nil
}

// peers returns the libraries of a scenario. With -all, all libraries run the base scenarios,
// and those that this library is compared with run the others.
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

// seedsOf returns the number of seeds of a run. With -write, runs of this library and of a
// bare client have three; with gates, the runs that have targets.
func (o options) seedsOf(c fleet.Config) int {
	switch {
	case o.seeds > 0:
		return o.seeds
	case !o.write:
	case o.gates() && c.Scenario.Targets != nil,
		o.whole() && (c.Peer.Name == "bare" || strings.HasPrefix(c.Peer.Name, peers.Ours)):
		return max(allSeeds, c.Scenario.Seeds)
	}
	return max(1, c.Scenario.Seeds)
}

// compositions runs random compositions.
func (o options) compositions(t *testing.T) ([]fleet.Tally, error) {
	switch {
	case o.peer != "":
	case o.all:
		o.peer = "ours,go-retryablehttp,aws-sdk-go-v2"
	default:
		o.peer = "ours"
	}
	libraries, err := fleet.Scenario{}.Peers(o.peer)
	if err != nil {
		return nil, err
	}
	if o.only >= 0 {
		trial := fleet.Alone(t, o.seed, o.only, libraries)
		say(trial)
		return nil, nil
	}
	trials := fleet.Random(t, o.seed, o.random, libraries, func(trial fleet.Trial) {
		for _, line := range trial.Harmed() {
			say(o.repeats(trial, line))
		}
	})
	tallies := fleet.Tallies(trials)
	for _, tally := range tallies {
		say(tally)
	}
	return tallies, nil
}

func say(line any) { _, _ = fmt.Fprintln(os.Stdout, line) }

// report writes the results if -write or -out asks for it.
func (o options) report(t *testing.T, rows *fleet.Rows) error {
	if !o.write && o.out == "" {
		return nil
	}
	root, err := report.Root()
	if err != nil {
		return err
	}
	root = cmp.Or(o.out, root)
	if o.scenario == "gates" {
		return report.WriteResults(root, "load-shedding", command+" -scenario=gates -write", fleet.GateResults(rows))
	}
	tallies, err := o.drawn(t, rows)
	if err != nil {
		return err
	}
	err = errors.Join(
		report.WriteResults(root, "scenarios", command+" -write", fleet.ScenarioResults(rows, tallies)),
		report.WriteResults(root, "targets", command+" -write", fleet.TargetResults(rows)))
	if err != nil || !o.all && o.peer != "all" {
		return err
	}
	err = report.WriteResults(root, "libraries", command+" -all -write", fleet.LibraryResults(rows))
	if err != nil || o.out != "" {
		return err
	}
	return remember(rows, tallies)
}

const command = "go run ./benchmarks/cmd/fleet"

// drawn runs the random compositions of a whole run. Libraries that are not run keep their
// stored results.
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
		stored, ok := rows.Peers.Tallies[name]
		if ok && !slices.ContainsFunc(tallies, func(t fleet.Tally) bool { return t.Peer == name }) {
			tallies = append(tallies, stored)
		}
	}
	return tallies, nil
}

// The ratios of draws that this library misses, each measured on 600 draws: limiters of the zoo that miss
// a criterion, and random compositions that are harmed. The gate compares fresh draws with twice these.
const (
	zooMissed    = 0.137
	randomHarmed = 0.047
)

// runGate runs fresh draws of both boards with this library. It prints a line that repeats each miss.
func (o options) runGate(t *testing.T) error {
	ours, err := peers.Named(peers.Ours)
	if err != nil {
		return err
	}
	missed, harmed := 0, 0
	zoo.Trials(t, o.seed, 0, o.gate, ours[0], func(trial zoo.Trial) {
		if len(trial.Judge()) > 0 {
			missed++
			say(trial.Line())
		}
	})
	fleet.Random(t, o.seed, o.gate, ours, func(trial fleet.Trial) {
		for _, line := range trial.Harmed() {
			harmed++
			say(o.repeats(trial, line))
		}
	})
	say(fmt.Sprintf("%d draws of each board: %d limiters missed, at most %d; %d compositions harmed, at most %d",
		o.gate, missed, mostMisses(o.gate, zooMissed), harmed, mostMisses(o.gate, randomHarmed)))
	if missed > mostMisses(o.gate, zooMissed) || harmed > mostMisses(o.gate, randomHarmed) {
		return errors.New("fleet: -gate: more than twice as many misses as the draws of the last measurement had")
	}
	return nil
}

// mostMisses is twice the expected number of misses of n draws, or four standard deviations above it: few
// misses are expected of 60 compositions, and twice as many of them are often chance.
func mostMisses(n int, rate float64) int {
	expected := float64(n) * rate
	return int(max(2*expected, expected+4*math.Sqrt(expected*(1-rate))))
}

// repeats prefixes the line of a composition with the flags that repeat it.
func (o options) repeats(trial fleet.Trial, line string) string {
	return fmt.Sprintf("-seed %d -random-only %d: %s", o.seed, trial.Number, line)
}

// runZoo runs drawn rate limiters with each library in -peer.
func (o options) runZoo(t *testing.T) error {
	libraries, err := fleet.Scenario{}.Peers(cmp.Or(o.peer, peers.Ours))
	if err != nil {
		return err
	}
	first, n := 0, o.zoo
	if o.zooDraw >= 0 {
		first, n = o.zooDraw, 1
	}
	for _, library := range libraries {
		if len(libraries) > 1 {
			say(library.Name + ":")
		}
		trials := zoo.Trials(t, o.seed, first, n, library, func(trial zoo.Trial) {
			if o.zooDraw >= 0 || len(trial.Judge()) > 0 {
				say(trial.Line())
			}
		})
		say(zoo.Summarize(trials))
	}
	return nil
}
