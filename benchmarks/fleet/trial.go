package fleet

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/resilienthttp/resilienthttp/benchmarks/internal/bubble"
	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// Trial holds the runs of a composition: by a bare client, and by libraries if enough of the
// bare client's calls fail.
type Trial struct {
	Composition
	Bare Result
	Of   []Result // of the libraries, in the order of the request
}

// counts reports whether some of the calls fail, but not nearly all.
func counts(bare Result) bool {
	return bare.Offered >= minCalls && bare.Success() <= 0.99 && bare.Success() >= minSuccess
}

// run makes the runs of the composition. With always, libraries run even if it does not count.
func (c Composition) run(t *testing.T, libraries []peers.Peer, always bool) Trial {
	t.Helper()
	config := func(p peers.Peer) Config {
		return Config{Scenario: c.Scenario, Peer: p, Topology: c.Topology, Seed: c.Seed}
	}
	bare, err := peers.Named("bare")
	if err != nil {
		t.Fatal(err)
	}
	trial := Trial{Composition: c, Bare: Run(t, config(bare[0]))}
	if always || counts(trial.Bare) {
		for _, p := range libraries {
			trial.Of = append(trial.Of, Run(t, config(p)))
		}
	}
	return trial
}

// Random runs n compositions of the seed that count, in parallel, and calls done with each.
func Random(t *testing.T, seed uint64, n int, libraries []peers.Peer, done func(Trial)) []Trial {
	t.Helper()
	var all []Trial
	for number := 0; len(all) < n; {
		const batch = 8
		bubble.All(batch, func(i int) (trial Trial) {
			c := Compose(seed, number+i)
			t.Run(c.Scenario.Name, func(t *testing.T) { trial = c.run(t, libraries, false) })
			return trial
		}, func(trial Trial) {
			if len(trial.Of) > 0 && len(all) < n {
				all = append(all, trial)
				done(trial)
			}
		})
		number += batch
	}
	return all
}

// Alone runs one composition, even if it does not count.
func Alone(t *testing.T, seed uint64, number int, libraries []peers.Peer) Trial {
	t.Helper()
	return Compose(seed, number).run(t, libraries, true)
}

// Harmed returns a line for each library that is worse than the bare client.
func (t Trial) Harmed() (lines []string) {
	for _, r := range t.Of {
		if Pair(r, t.Bare).Harmed() {
			lines = append(lines, "harmed: "+t.line(r))
		}
	}
	return lines
}

// line compares a library with the bare client.
func (t Trial) line(r Result) string {
	p := Pair(r, t.Bare)
	return fmt.Sprintf("%-4d %s %+.4f (%.1f sd of %d calls): bare %.4f, measured %.4f, %.2f attempts per call: %s",
		t.Number, r.Peer.Name, p.Mean, math.Abs(p.Mean)/max(p.Error, 1e-9), p.Calls, t.Bare.Success(), r.Success(), r.AttemptsPerCall(), t.Scenario.Note)
}

// String lists all libraries.
func (t Trial) String() string {
	lines := []string{fmt.Sprintf("%-4d %s", t.Number, t.Scenario.Note), Header(), Line([]Result{t.Bare})}
	for _, r := range t.Of {
		lines = append(lines, Line([]Result{r}), "     "+t.line(r))
	}
	return strings.Join(lines, "\n")
}

// Tally summarizes the trials of a library.
type Tally struct {
	Peer   string
	Trials int
	Harmed int
	Worst  float64 // minimum of the mean differences
	In     int     // number of that composition
	Mean   float64 // of all differences
	Better int     // trials with a gain of the size of a harm

	Attempts float64 `json:",omitempty"` // per call, mean of the trials
}

// Tallies returns a tally for each library.
func Tallies(trials []Trial) (all []Tally) {
	for _, t := range trials {
		for i, r := range t.Of {
			if len(all) == i {
				all = append(all, Tally{Peer: r.Peer.Name, Worst: 1})
			}
			all[i].count(t.Number, Pair(r, t.Bare))
			all[i].Attempts += r.AttemptsPerCall()
		}
	}
	for i := range all {
		all[i].Mean /= float64(all[i].Trials)
		all[i].Attempts /= float64(all[i].Trials)
	}
	return all
}

func (t *Tally) count(number int, p Paired) {
	t.Trials++
	t.Mean += p.Mean
	if p.Mean < t.Worst {
		t.Worst, t.In = p.Mean, number
	}
	if p.Harmed() {
		t.Harmed++
	}
	if (Paired{Mean: -p.Mean, Error: p.Error}).Harmed() {
		t.Better++
	}
}

// String returns one line.
func (t Tally) String() string {
	return fmt.Sprintf("%-24s %d compositions: %d harmed (%.1f %%), %d better, worst %+.4f (composition %d), mean %+.4f, %.2f attempts per call",
		t.Peer, t.Trials, t.Harmed, 100*float64(t.Harmed)/float64(max(t.Trials, 1)), t.Better, t.Worst, t.In, t.Mean, t.Attempts)
}
