package fleet

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/resilienthttp/resilienthttp/benchmarks/peers"
)

// Trial is a composition that was run: by a bare client first, and, if that had
// something to mend there, by libraries.
type Trial struct {
	Composition
	Bare Result
	Of   []Result // the libraries', in the order in which they were asked for
}

// counts reports whether there is trouble, and not nearly nothing but it.
func counts(bare Result) bool {
	return bare.Offered >= minCalls && bare.Success() <= 0.99 && bare.Success() >= minSuccess
}

// run makes the composition's runs.
func (c Composition) run(t *testing.T, who []peers.Peer) Trial {
	t.Helper()
	config := func(p peers.Peer) Config {
		return Config{Scenario: c.Scenario, Peer: p, Topology: c.Topology, Seed: c.Seed}
	}
	bare, err := peers.Named("bare")
	if err != nil {
		t.Fatal(err)
	}
	trial := Trial{Composition: c, Bare: Run(t, config(bare[0]))}
	if counts(trial.Bare) {
		for _, p := range who {
			trial.Of = append(trial.Of, Run(t, config(p)))
		}
	}
	return trial
}

// Random runs n of the seed's compositions, those that count, and calls done with
// each. As many run at a time as there are processors.
func Random(t *testing.T, seed uint64, n int, who []peers.Peer, done func(Trial)) []Trial {
	t.Helper()
	var all []Trial
	for number := 0; len(all) < n; {
		batch := make([]Trial, 4*runtime.GOMAXPROCS(0))
		limit := make(chan struct{}, runtime.GOMAXPROCS(0))
		var group sync.WaitGroup
		for i := range batch {
			c := Compose(seed, number+i)
			limit <- struct{}{}
			group.Go(func() {
				defer func() { <-limit }()
				t.Run(c.Scenario.Name, func(t *testing.T) { batch[i] = c.run(t, who) })
			})
		}
		group.Wait()
		number += len(batch)
		for _, trial := range batch {
			if len(trial.Of) > 0 && len(all) < n {
				all = append(all, trial)
				done(trial)
			}
		}
	}
	return all
}

// Alone runs one composition, whether or not it counts.
func Alone(t *testing.T, seed uint64, number int, who []peers.Peer) Trial {
	t.Helper()
	c := Compose(seed, number)
	trial := c.run(t, who)
	for i := len(trial.Of); i < len(who); i++ {
		trial.Of = append(trial.Of, Run(t, Config{Scenario: c.Scenario, Peer: who[i], Topology: c.Topology, Seed: c.Seed}))
	}
	return trial
}

// Harmed are the lines of the libraries that did worse than the bare client.
func (t Trial) Harmed() (lines []string) {
	for _, r := range t.Of {
		if Pair(r, t.Bare).Harmed() {
			lines = append(lines, "harmed: "+t.line(r))
		}
	}
	return lines
}

// line is how a library did in the trial.
func (t Trial) line(r Result) string {
	p := Pair(r, t.Bare)
	return fmt.Sprintf("%-4d %s %+.4f (%.1f sd of %d calls): bare %.4f, has %.4f, %.2f attempts per call: %s",
		t.Number, r.Peer.Name, p.Mean, math.Abs(p.Mean)/max(p.Error, 1e-9), p.Calls, t.Bare.Success(), r.Success(), r.AttemptsPerCall(), t.Scenario.Note)
}

// String tells of all libraries.
func (t Trial) String() string {
	lines := []string{fmt.Sprintf("%-4d %s", t.Number, t.Scenario.Note), Header(), Line([]Result{t.Bare})}
	for _, r := range t.Of {
		lines = append(lines, Line([]Result{r}), "     "+t.line(r))
	}
	return strings.Join(lines, "\n")
}

// Tally is what a library makes of many trials.
type Tally struct {
	Peer   string
	Trials int
	Harmed int
	Worst  float64 // the least mean of the differences
	In     int     // the number of that composition
	Mean   float64 // of all differences
	Better int     // in so many, by as much as would be harm
}

// Tallies are one for each library.
func Tallies(trials []Trial) (all []Tally) {
	for _, t := range trials {
		for i, r := range t.Of {
			if len(all) == i {
				all = append(all, Tally{Peer: r.Peer.Name, Worst: 1})
			}
			all[i].count(t.Number, Pair(r, t.Bare))
		}
	}
	for i := range all {
		all[i].Mean /= float64(all[i].Trials)
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

// String is one line.
func (t Tally) String() string {
	return fmt.Sprintf("%-24s %d compositions: %d harmed (%.1f %%), %d better, worst %+.4f (composition %d), mean %+.4f",
		t.Peer, t.Trials, t.Harmed, 100*float64(t.Harmed)/float64(max(t.Trials, 1)), t.Better, t.Worst, t.In, t.Mean)
}
