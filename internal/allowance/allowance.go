// Package allowance is the engine behind the retry budget and the share of
// hedges: how much may be sent beside the calls themselves.
//
// It knows calls, times and results. Allowance.Admit gives a Ticket for one
// repetition, or none; the Ticket is told once what came of it (Done), or given
// back (Cancel).
package allowance

import (
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/window"
)

// Allowance counts the calls of one scope, and what was repeated on their account,
// over a sliding window. The zero value is ready for use; every use must bring the
// same Rule. It is safe for concurrent use. To count a call takes no lock, since
// every call does that; to take takes one, since the decision and the count must
// be one, and only calls in trouble do it.
//
// Unless the Rule is static, a repetition that succeeds costs nothing and makes
// room for one more, so that only those that fail are capped: where half of them
// help, they are free. One whose outcome is not known yet counts half; but whole after
// an overload, or of the share while none has succeeded. It is taken from the share of
// the last part of the window before it is taken from the floor.
type Allowance struct {
	calls window.Counter

	mu     sync.Mutex
	spent  *spent // nil until something is taken: most scopes never do
	places int    // calls that hold the floor, while it is for one at a time
}

// spent is what was taken of the share and of the floor: in halves, since what is
// open counts half. Under a static rule there is no difference, and all is of the
// share.
type spent struct {
	window, lately account
	floor          window.Tally
}

// account is what was taken, and what came back, in a window of its own length.
type account struct{ taken, earned window.Tally }

const (
	whole = 2
	half  = 1

	mostFloor = 1 << 40 // for the arithmetic
)

// room is how many halves may still be taken, if calls make room for so many.
func (a *account) room(allowed float64, at, length time.Duration) float64 {
	return whole*allowed + float64(a.earned.Sum(at, length)) - float64(a.taken.Sum(at, length))
}

// Called counts one call.
func (a *Allowance) Called(now time.Time, rule *Rule) {
	a.calls.Add(now.Sub(rule.Origin), rule.Window, 1, 0)
}

// Ask is what a repetition is asked for with.
type Ask struct {
	// Place, if not nil, is the call's right to the floor, which only one call at
	// a time has: for when nobody is known to be served.
	Place *Place
	// Overload says that the failure was that of a server without room: then the
	// repetition counts whole while it is open.
	Overload bool
	// Whole says that the repetition takes all of the floor, if it is not taken
	// from the share.
	Whole bool
	// Share says that it is not for the floor at all.
	Share bool
	// Half says that it is for less than half of the room: none while that much is taken.
	Half bool
}

// Admit takes one, if the rule allows one more in the window that ends now.
func (a *Allowance) Admit(now time.Time, rule *Rule, ask Ask) (Ticket, bool) {
	at := now.Sub(rule.Origin)
	a.mu.Lock()
	defer a.mu.Unlock()
	// Calls that come while this sums make it allow more, never less: it is as
	// if they had come before.
	share := rule.Ratio * float64(a.called(at, rule))
	floor := max(rule.Floor, rule.Least-share)
	if a.spent == nil {
		if share+floor < 1 {
			return Ticket{}, false
		}
		a.spent = new(spent)
	}
	if ask.Half && a.used(at, rule) >= 0.5 {
		return Ticket{}, false
	}
	t := &taking{from: a, rule: rule, halves: half}
	if ask.Overload || rule.Static {
		t.halves = whole
	}
	switch {
	case rule.Static:
		if a.spent.window.room(share+floor, at, rule.Window) < whole {
			return Ticket{}, false
		}
	case a.covered(at, rule):
		if a.spent.window.earned.Sum(at, rule.Window) == 0 {
			t.halves = whole // none has helped yet
		}
	case ask.Share:
		return Ticket{}, false
	default:
		floor := uint64(whole * min(floor, mostFloor))
		cost := uint64(whole)
		if ask.Whole {
			cost = max(cost, floor)
			t.halves = cost
		}
		if a.spent.floor.Sum(at, rule.Window)+cost > floor || ask.Place != nil && !ask.Place.take(a) {
			return Ticket{}, false
		}
		t.ofFloor = true
	}
	t.put(at)
	return Ticket{t}, true
}

// Status is what is taken of an allowance, and what is left.
type Status struct {
	Calls int     // of the window
	Taken float64 // what repetitions count for that have failed, or are not over yet
	Room  float64 // for so many more
}

// Status tells what is known now. It changes nothing.
func (a *Allowance) Status(now time.Time, rule *Rule) Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status(now.Sub(rule.Origin), rule)
}

// Used is the share of all the room that is taken, from 0 to 1.
func (a *Allowance) Used(now time.Time, rule *Rule) float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.used(now.Sub(rule.Origin), rule)
}

// used is Used, locked.
func (a *Allowance) used(at time.Duration, rule *Rule) float64 {
	s := a.status(at, rule)
	if s.Taken == 0 {
		return 0
	}
	return s.Taken / (s.Taken + s.Room)
}

// status is Status, locked.
func (a *Allowance) status(at time.Duration, rule *Rule) Status {
	calls, s := a.called(at, rule), a.spent
	if s == nil {
		s = &noneSpent
	}
	share := rule.Ratio * float64(calls)
	floor := max(rule.Floor, rule.Least-share)
	taken, ofFloor := s.window.taken.Sum(at, rule.Window), s.floor.Sum(at, rule.Window)
	status := Status{Calls: int(calls), Taken: float64(taken+ofFloor) / whole}
	if rule.Static {
		status.Room = max(s.window.room(share+floor, at, rule.Window), 0) / whole
		return status
	}
	ofShare := min(s.window.room(share, at, rule.Window), s.lately.room(rule.Ratio*a.calledLately(at, rule), at, rule.lately()))
	status.Room = (max(ofShare, 0) + max(whole*floor-float64(ofFloor), 0)) / whole
	return status
}

// noneSpent is what is spent where nothing was taken.
var noneSpent spent //nolint:gochecknoglobals // never written to

func (a *Allowance) called(at time.Duration, rule *Rule) uint64 {
	calls, _ := a.calls.Sum(at, rule.Window)
	return calls
}

// calledLately is how many calls there were in the last part of the window, by the
// rate of the buckets that make it up.
func (a *Allowance) calledLately(at time.Duration, rule *Rule) float64 {
	calls, _, covered := a.calls.Newest(at, rule.Window, 2)
	return float64(calls) * float64(rule.lately()) / float64(covered)
}

// Covers reports whether the share of the calls would cover one more: then it is
// no more than the calls make up for.
func (a *Allowance) Covers(now time.Time, rule *Rule) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.covered(now.Sub(rule.Origin), rule)
}

// covered is Covers, locked.
func (a *Allowance) covered(at time.Duration, rule *Rule) bool {
	s := a.spent
	if s == nil {
		s = &noneSpent
	}
	return s.window.room(rule.Ratio*float64(a.called(at, rule)), at, rule.Window) >= whole &&
		(rule.Static || s.lately.room(rule.Ratio*a.calledLately(at, rule), at, rule.lately()) >= whole)
}

// Place is a call's right to the floor while only one call at a time has it. The
// zero Place is none. It is its call's, and not safe for concurrent use.
type Place struct{ of *Allowance }

// take takes the place, if the call has none. The allowance is locked.
func (p *Place) take(a *Allowance) bool {
	if p.of != nil {
		return true
	}
	if a.places > 0 {
		return false
	}
	a.places++
	p.of = a
	return true
}

// Leave gives the place to another call. Leaving twice does nothing.
func (p *Place) Leave() {
	if p.of == nil {
		return
	}
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.of.places--
	p.of = nil
}
