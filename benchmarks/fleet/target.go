package fleet

import (
	"fmt"
	"math"
	"time"
)

// Target is a required or desired result of this library in a scenario.
type Target struct {
	What      string
	Measure   func(Result) float64
	Want      float64
	AtLeast   bool                 // Want is a minimum; default: a maximum
	Goal      bool                 // desired, not required
	Reason    string               // why the target is missed, if it is missed
	In        Topology             // "": both
	WorstSeed bool                 // compares the worst seed; default: the mean of the seeds
	Times     func(Result) float64 // the bare client's value, multiplied by Want; nil: none
	Plus      func(Result) float64 // the bare client's value, added to Want; nil: none
	OrBare    bool                 // the bare client's value, within 0.001, is sufficient
	NoVerdict bool                 // measured, without a target

	format  string
	seconds bool // Measure is a time in seconds; an hour means never
}

func atMost(what string, measure func(Result) float64, want float64, format string) Target {
	return Target{What: what, Measure: measure, Want: want, format: format}
}

func atLeast(what string, measure func(Result) float64, want float64, format string) Target {
	return Target{What: what, Measure: measure, Want: want, AtLeast: true, format: format}
}

func recoversWithin(want time.Duration) Target {
	return atMost("recovery time, s", recoverySeconds, want.Seconds(), "%.1f").inSeconds().worstSeed()
}

func (g Target) inSeconds() Target { g.seconds = true; return g }

func (g Target) shared() Target { g.In = Shared; return g }

func (g Target) perClient() Target { g.In = Own; return g }

func (g Target) goal() Target { g.Goal = true; return g }

func (g Target) worstSeed() Target { g.WorstSeed = true; return g }

func (g Target) onlyIf(isTarget bool) Target { g.NoVerdict = !isTarget; return g }

func (g Target) orBare() Target { g.OrBare = true; return g }

func (g Target) reason(text string) Target { g.Reason = text; return g }

func (g Target) timesBare(measure func(Result) float64) Target { g.Times = measure; return g }

func (g Target) plusBare(measure func(Result) float64) Target { g.Plus = measure; return g }

// ofBare is the bare client's value that the target depends on; nil: none.
func (g Target) ofBare() func(Result) float64 {
	if g.Times != nil {
		return g.Times
	}
	return g.Plus
}

// over is the measured value over several seeds.
func (g Target) over(results []Result) float64 {
	return combined(results, func(r Result) float64 { return r.Targets[g.What] }, g.WorstSeed, g.AtLeast)
}

// combined is the mean, or the worst value: the minimum if more is better.
func combined(results []Result, measure func(Result) float64, worst, moreIsBetter bool) float64 {
	var sum, far float64
	for i, r := range results {
		v := measure(r)
		sum += v
		if i == 0 || (v < far) == moreIsBetter {
			far = v
		}
	}
	if worst {
		return far
	}
	return sum / float64(len(results))
}

// Verdict is a target and its measured value.
type Verdict struct {
	What     string
	Want     string
	Measured string
	Bare     string // of a bare client; "": not run
	Reached  bool
	MissedBy string // the distance to the target; "": reached, or never
	Goal     bool
	Reason   string
}

// Verdicts compares the results of several seeds with the targets of their scenario,
// with a bare client (may be empty) and with the success of the best peer (0: unknown).
// All are of one topology.
func Verdicts(ours, bare Row, best float64) (targets []Verdict) {
	s := ours[0].Scenario
	for _, g := range s.Targets {
		if !g.NoVerdict && (g.In == "" || g.In == ours[0].Topology) {
			if t, ok := g.verdict(ours, bare); ok {
				targets = append(targets, t)
			}
		}
	}
	targets = append(targets, ruleVerdicts(ours, bare, best)...)
	for i := range targets {
		if targets[i].Reason == "" {
			targets[i].Reason = s.Reason
		}
	}
	return targets
}

// verdict compares the results with the target; ok is false if it needs the results of a
// bare client and there are none.
func (g Target) verdict(ours, bare []Result) (t Verdict, ok bool) {
	want := g.Want
	if g.ofBare() != nil {
		if len(bare) == 0 {
			return t, false
		}
		value := combined(bare, func(r Result) float64 { return r.Bare[g.What] }, false, false)
		if g.Times != nil {
			want *= value
		} else {
			want += value
		}
	}
	if g.OrBare && len(bare) > 0 {
		if b := g.over(bare); g.AtLeast {
			want = min(want, b-0.001)
		} else {
			want = max(want, b+0.001)
		}
	}
	t = g.judge(g.over(ours), want)
	if len(bare) > 0 {
		t.Bare = g.text(g.over(bare))
	}
	return t, true
}

// judge compares a measured value with the wanted one.
func (g Target) judge(measured, want float64) Verdict {
	sign, reached := "≤ ", measured <= want
	if g.AtLeast {
		sign, reached = "≥ ", measured >= want
	}
	t := Verdict{What: g.What, Want: sign + g.text(want), Measured: g.text(measured), Reached: reached, Goal: g.Goal, Reason: g.Reason}
	if !reached && t.Measured != neverText {
		t.MissedBy = g.text(math.Abs(measured - want))
	}
	return t
}

const neverText = "never"

func (g Target) text(v float64) string {
	if g.seconds && v >= never.Seconds() {
		return neverText
	}
	return fmt.Sprintf(g.format, v)
}

// Two rules hold for every row. Success is at most bareMargin below a bare client, if at
// least minSuccess of the bare client's calls succeed. Success is at most peerMargin below
// the best peer. The capacity of the server during the calls limits the peer's value,
// because a client that waits until the calls have ended has the server alone. The rules
// do not apply to workers that send one call after another: a slow client sends fewer.
const (
	bareMargin = 0.01
	minSuccess = 0.2
	peerMargin = 0.02

	vsBare = "success, vs bare"
	vsPeer = "success, vs best peer"
)

func ruleVerdicts(ours, bare Row, best float64) (targets []Verdict) {
	s := ours[0].Scenario
	if s.Load.Workers > 0 {
		return nil
	}
	best = min(best, s.ceiling())
	rule := func(what string, want float64) Verdict {
		return atLeast(what, Result.Success, want, "%.4f").judge(success(ours), want)
	}
	if len(bare) > 0 && success(bare) >= minSuccess {
		targets = append(targets, rule(vsBare, success(bare)-bareMargin))
	}
	if best >= minSuccess {
		targets = append(targets, rule(vsPeer, best-peerMargin))
	}
	return targets
}

// success is the mean over the seeds.
func success(row Row) float64 { return row.average(Result.Success) }

// shown is the value in scenarios.md.
func shown(row Row) float64 {
	s := row[0].Scenario
	switch s.Shows {
	case "":
		return success(row)
	case met:
		return row.average(Result.SuccessDuring)
	}
	return row.average(func(r Result) float64 { return r.Targets[s.Shows] })
}
