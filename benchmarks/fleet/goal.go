package fleet

import (
	"fmt"
	"math"
	"time"
)

// Goal is one line of what this library is to reach in a scenario.
type Goal struct {
	What    string
	Measure func(Result) float64
	Want    float64
	Least   bool                 // it is to be at least that, not at most
	Aim     bool                 // wished for, not required
	Why     string               // it is as it is, if it is not reached
	In      Topology             // ""; both
	Worst   bool                 // of several seeds the worst counts, not the mean
	Times   func(Result) float64 // what is wanted is that many times what a bare client has of this
	Plus    func(Result) float64 // what is wanted is that much more than a bare client has of this
	OrBare  bool                 // what a bare client has is enough, to a thousandth

	format  string
	seconds bool // it is a time, which has no end if what is waited for does not come
}

func atMost(what string, measure func(Result) float64, want float64, format string) Goal {
	return Goal{What: what, Measure: measure, Want: want, format: format}
}

func atLeast(what string, measure func(Result) float64, want float64, format string) Goal {
	return Goal{What: what, Measure: measure, Want: want, Least: true, format: format}
}

func recoversWithin(want time.Duration) Goal {
	return atMost("seconds until goodput is back", backAfter, want.Seconds(), "%.1f").inSeconds().ofWorst()
}

func (g Goal) inSeconds() Goal { g.seconds = true; return g }

func (g Goal) shared() Goal { g.In = Shared; return g }

func (g Goal) own() Goal { g.In = Own; return g }

func (g Goal) aim() Goal { g.Aim = true; return g }

func (g Goal) ofWorst() Goal { g.Worst = true; return g }

func (g Goal) orBare() Goal { g.OrBare = true; return g }

func (g Goal) because(why string) Goal { g.Why = why; return g }

func (g Goal) timesBare(measure func(Result) float64) Goal { g.Times = measure; return g }

func (g Goal) plusBare(measure func(Result) float64) Goal { g.Plus = measure; return g }

// ofBare is what the goal asks of a bare client; nil: nothing.
func (g Goal) ofBare() func(Result) float64 {
	if g.Times != nil {
		return g.Times
	}
	return g.Plus
}

// over is what the goal measures, over several seeds.
func (g Goal) over(results []Result) float64 {
	return combined(results, func(r Result) float64 { return r.Goals[g.What] }, g.Worst, g.Least)
}

// combined is the mean, or the worst: the least where much is good.
func combined(results []Result, measure func(Result) float64, worst, least bool) float64 {
	var sum, far float64
	for i, r := range results {
		v := measure(r)
		sum += v
		if i == 0 || (v < far) == least {
			far = v
		}
	}
	if worst {
		return far
	}
	return sum / float64(len(results))
}

// Target is a goal, and what came of it.
type Target struct {
	What     string
	Want     string
	Measured string
	Bare     string // of a bare client, if it was run
	Reached  bool
	MissedBy string // how far the measure is from what is wanted; "": it is reached, or never came
	Aim      bool
	Why      string
}

// Targets holds results of several seeds against the goals of their scenario, with
// those of a bare client and what the best peer has beside, in the same topology,
// if there are any.
func Targets(ours, bare Row, best float64) (targets []Target) {
	s := ours[0].Scenario
	for _, g := range s.Goals {
		if g.In == "" || g.In == ours[0].Topology {
			if t, ok := g.target(ours, bare); ok {
				targets = append(targets, t)
			}
		}
	}
	targets = append(targets, harm(ours, bare, best)...)
	for i := range targets {
		if targets[i].Why == "" {
			targets[i].Why = s.Why
		}
	}
	return targets
}

// target holds the results against the goal, which may need those of a bare client.
func (g Goal) target(ours, bare []Result) (t Target, ok bool) {
	want := g.Want
	if g.ofBare() != nil {
		if len(bare) == 0 {
			return t, false
		}
		has := combined(bare, func(r Result) float64 { return r.Bare[g.What] }, false, false)
		if g.Times != nil {
			want *= has
		} else {
			want += has
		}
	}
	if g.OrBare && len(bare) > 0 {
		if b := g.over(bare); g.Least {
			want = min(want, b-0.001)
		} else {
			want = max(want, b+0.001)
		}
	}
	measured := g.over(ours)
	sign, reached := "≤ ", measured <= want
	if g.Least {
		sign, reached = "≥ ", measured >= want
	}
	t = Target{What: g.What, Want: sign + g.text(want), Measured: g.text(measured), Reached: reached, Aim: g.Aim, Why: g.Why}
	t.miss(measured, want, g.text)
	if len(bare) > 0 {
		t.Bare = g.text(g.over(bare))
	}
	return t, true
}

// miss sets MissedBy.
func (t *Target) miss(measured, want float64, text func(float64) string) {
	if by := math.Abs(measured - want); !t.Reached && text(measured) != neverText {
		t.MissedBy = text(by)
	}
}

const neverText = "never"

func (g Goal) text(v float64) string {
	if g.seconds && v >= never.Seconds() {
		return neverText
	}
	return fmt.Sprintf(g.format, v)
}

// What every row must keep to, beside its goals: not worse than a bare client by
// more than worse, wherever at least worth of what is sent is answered, and within
// beside of the best peer, or of what the server can serve while calls come: who
// waits until none come any more has the server to himself, which says nothing.
// Where workers make one call after another, those who wait make fewer of them, and
// shares of calls cannot be compared.
const (
	worse  = 0.01
	worth  = 0.2
	beside = 0.02
)

func harm(ours, bare Row, best float64) (targets []Target) {
	s := ours[0].Scenario
	if s.Load.Workers > 0 {
		return nil
	}
	best = min(best, s.ceiling())
	text := func(v float64) string { return fmt.Sprintf("%.4f", v) }
	rule := func(what string, want float64) Target {
		t := Target{What: what, Want: "≥ " + text(want), Measured: text(success(ours)), Reached: success(ours) >= want}
		t.miss(success(ours), want, text)
		return t
	}
	if len(bare) > 0 && success(bare) >= worth {
		targets = append(targets, rule("success, beside bare", success(bare)-worse))
	}
	if best >= worth {
		targets = append(targets, rule("success, beside the best peer", best-beside))
	}
	return targets
}

// success is the mean over several seeds.
func success(row Row) float64 { return row.average(Result.Success) }

// shown is what the plot shows of a row.
func shown(row Row) float64 {
	s := row[0].Scenario
	switch s.Shows {
	case "":
		return success(row)
	case met:
		return row.average(Result.SuccessDuring)
	}
	return row.average(func(r Result) float64 { return r.Goals[s.Shows] })
}
