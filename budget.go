package resilienthttp

import (
	"math"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/scope"
	"github.com/resilienthttp/resilienthttp/internal/window"
)

// Budget caps retries and hedges, together, at a share of the calls.
//
// A limit on the attempts of one call does not protect a server: when all calls
// fail, four attempts each are four times the load, at the very moment when the
// server can bear it least, and three such clients in a row make it
// sixty-fourfold. With a budget, a server that is down sees a tenth more
// requests than usual and one per second, while a call that fails for a reason
// of its own is still retried as often as it needs. (Google's Site Reliability
// Engineering describes this in "Handling Overload" and "Addressing Cascading
// Failures"; the terms here are those of Finagle's RetryBudget: a share of the
// calls, a minimum per second for clients with few of them, a sliding window of
// ten seconds.)
//
// Whenever a retry or a hedge is granted, it and those that were granted on its
// scope in the Window before it, and not given back, are no more than
//
//	Ratio × calls in that Window + MinPerSecond × Window in seconds
//
// rounded down, however many goroutines ask at once. A call counts once, when
// its first attempt is sent. Nothing is saved up for longer than Window. To hold
// the line, calls are forgotten up to a sixteenth of Window before their time, and
// retries that others followed closely up to a fifteenth after it. A retry is
// granted before it waits for its turn: one that is not sent after all is given
// back.
//
// A Budget whose fields are all 0 grants less than that formula, for the sake of a
// server that is down; docs/defaults.md has the figures. With any field set, it is
// the formula alone.
//
//   - The share is not saved up: of the last eighth of the Window, no more is
//     granted than Ratio of the calls of that time, or else the savings of ten
//     good seconds would meet the server in its first bad one.
//   - What the minimum gives for failures that look like overload (timeouts, 429,
//     503, 504, 529, and what Classify calls throttled), on a scope that has
//     answered before, is for few calls at a time: one, or a third of those there
//     were of late. Each may have all its retries, and then it is another's turn.
//     A thousand clients with a minimum each are a thousand times the minimum.
//
// The zero value is ready for use, with the defaults below. A Budget is safe
// for concurrent use and may be shared by several Transports, whose calls are
// then counted together. The fields are read at first use and must not change
// after it; a Budget must not be copied after first use. It holds the counts of
// the few thousand scopes that were used last; one that was forgotten begins
// anew.
type Budget struct {
	// Ratio is how many retries and hedges each call makes room for.
	// 0: 0.1. Negative, or NaN: no cap at all. It may be above 1.
	Ratio float64

	// MinPerSecond is how many retries and hedges there may be in each second
	// on top of that, so that a client with few calls can retry too. It is
	// granted for the whole Window at once: by default, ten retries may follow
	// the first call immediately. 0: 1. Negative, or NaN: none.
	MinPerSecond float64

	// Window is for how long a call makes room for retries, and a retry takes
	// up room. 0 or negative: 10s. The least is a millisecond.
	Window time.Duration

	once   sync.Once
	off    bool
	rule   allowanceRule
	scopes scope.Map[string, allowance]
}

const (
	defaultBudgetRatio        = 0.1
	defaultBudgetMinPerSecond = 1
	defaultBudgetWindow       = 10 * time.Second
)

func (b *Budget) freeze(now time.Time) {
	b.once.Do(func() {
		if b.Ratio < 0 || math.IsNaN(b.Ratio) {
			b.off = true
			return
		}
		ratio, perSecond, length := b.Ratio, b.MinPerSecond, b.Window
		if ratio == 0 {
			ratio = defaultBudgetRatio
		}
		if perSecond == 0 {
			perSecond = defaultBudgetMinPerSecond
		}
		if length <= 0 {
			length = defaultBudgetWindow
		}
		b.rule = newAllowanceRule(now, length, ratio, perSecond*length.Seconds(), 0)
		if b.Ratio == 0 && b.MinPerSecond == 0 && b.Window == 0 {
			b.rule.lately = 2 * (b.rule.window / window.Buckets)
		}
	})
}

// deposit counts a call, of which the first attempt is being sent.
func (b *Budget) deposit(scope string, now time.Time) {
	if b.freeze(now); b.off {
		return
	}
	b.scopes.Get(scope).called(now, &b.rule)
}

// withdraw asks for a retry or a hedge. If there is one left, it is taken; if
// it is not sent after all, it has to be given back with refund. A retry of what
// looks like overload brings a place, to be vacated at the end of its call.
func (b *Budget) withdraw(scope string, now time.Time, place *budgetPlace) (budgetToken, bool) {
	if b.freeze(now); b.off {
		return budgetToken{}, true
	}
	return b.scopes.Get(scope).take(now, &b.rule, place)
}

// covers reports whether the share of the calls would cover a retry, or there is
// no cap: then it is no more than the calls make up for.
func (b *Budget) covers(scope string, now time.Time) bool {
	if b.freeze(now); b.off {
		return true
	}
	a := b.scopes.Get(scope)
	a.mu.Lock()
	defer a.mu.Unlock()
	share, taken, _ := a.share(now.Sub(b.rule.origin), &b.rule)
	return float64(taken+1) <= share
}

// allowanceRule is what an allowance allows within each window: ratio for each
// call, and floor on top of that; but least, if that is more.
type allowanceRule struct {
	origin time.Time // window.Counter and window.Tally count the time from here
	window time.Duration

	ratio, floor, least float64

	// lately, if not 0, is the time in which the share of the calls must be
	// taken, and makes the floor scarce while a server is overloaded.
	lately time.Duration
}

// newAllowanceRule takes ratio, floor and least as they come: negative ones and
// NaN are 0, and none is infinite. The origin may be any time that is not after
// the first use, if all times are of one monotonic clock.
func newAllowanceRule(origin time.Time, length time.Duration, ratio, floor, least float64) allowanceRule {
	clamp := func(x float64) float64 {
		if x > 0 {
			return min(x, 1e12) // so that no product is infinite, and no sum NaN
		}
		return 0
	}
	return allowanceRule{
		origin: origin,
		window: max(length, window.MinLength),
		ratio:  clamp(ratio), floor: clamp(floor), least: clamp(least),
	}
}

// allowance counts the calls of one scope, and what was taken on their account,
// over a sliding window. The zero value is ready for use; every use must bring
// the same rule. It is safe for concurrent use. To count a call takes no lock,
// since every call does that; to take takes one, since the decision and the
// count must be one, and only calls in trouble do it.
type allowance struct {
	calls window.Counter

	mu     sync.Mutex
	taken  *tallies // nil until something is taken: most scopes never do
	places int      // that calls have
}

// tallies are what was taken: all of it, and where the share cannot be saved up,
// also of the share of late, and beyond it.
type tallies struct{ all, share, floor window.Tally }

// called counts one call.
func (a *allowance) called(now time.Time, rule *allowanceRule) {
	a.calls.Add(now.Sub(rule.origin), rule.window, 1, 0)
}

// take takes one, if the rule allows one more in the window that ends now, and
// with it a place, if place is not nil and the rule demands one.
func (a *allowance) take(now time.Time, rule *allowanceRule, place *budgetPlace) (budgetToken, bool) {
	at := now.Sub(rule.origin)
	a.mu.Lock()
	defer a.mu.Unlock()
	// Calls that come while this sums make it allow more, never less: it is as
	// if they had come before.
	calls, _ := a.calls.Sum(at, rule.window)
	allowed := max(rule.ratio*float64(calls)+rule.floor, rule.least)
	if a.taken == nil {
		if allowed < 1 {
			return budgetToken{}, false
		}
		a.taken = new(tallies)
	}
	if float64(a.taken.all.Sum(at, rule.window)+1) > allowed {
		return budgetToken{}, false
	}
	t := &taking{from: a}
	if rule.lately > 0 && !a.takePart(t, at, rule, place) {
		return budgetToken{}, false
	}
	t.mark = a.taken.all.Add(at, rule.window, 1)
	return budgetToken{t}, true
}

// takePart takes one of the share of the calls of late, or else of the floor.
func (a *allowance) takePart(t *taking, at time.Duration, rule *allowanceRule, place *budgetPlace) bool {
	share, ofShare, calls := a.share(at, rule)
	switch {
	case float64(ofShare+1) <= share:
		t.part, t.partMark = &a.taken.share, a.taken.share.Add(at, rule.lately, 1)
	case float64(ofShare+a.taken.floor.Sum(at, rule.window)+1) > share+rule.floor:
		return false
	case place != nil && !place.take(a, calls):
		return false
	default:
		t.part, t.partMark = &a.taken.floor, a.taken.floor.Add(at, rule.window, 1)
	}
	return true
}

// share is how many the calls, those of late or of the window, make room for,
// and how many of these were taken. The allowance is locked.
func (a *allowance) share(at time.Duration, rule *allowanceRule) (share float64, taken, calls uint64) {
	if rule.lately > 0 {
		calls, _ = a.calls.Newest(at, rule.window, 2)
	} else {
		calls, _ = a.calls.Sum(at, rule.window)
	}
	switch {
	case a.taken == nil:
	case rule.lately > 0:
		taken = a.taken.share.Sum(at, rule.lately)
	default:
		taken = a.taken.all.Sum(at, rule.window)
	}
	return rule.ratio * float64(calls), taken, calls
}

// budgetPlace is a call's right to the floor while a server is overloaded. There
// is one for every third call of late, and one at least: a client that makes a
// call now and then has one call in trouble at a time, and a thousand of these
// clients, each with a floor for all of its calls, would be a flood. The zero
// budgetPlace is none.
type budgetPlace struct{ of *allowance }

// take takes a place, if the call has none. The allowance is locked.
func (p *budgetPlace) take(a *allowance, calls uint64) bool {
	if p.of != nil {
		return true
	}
	if a.places >= max(int(calls/3), 1) {
		return false
	}
	a.places++
	p.of = a
	return true
}

func (p *budgetPlace) vacate() {
	if p.of == nil {
		return
	}
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.of.places--
	p.of = nil
}

// budgetToken is the right to send one retry or hedge. The zero budgetToken is
// one that was not taken from anywhere.
type budgetToken struct{ *taking }

type taking struct {
	from     *allowance
	mark     window.Mark
	part     *window.Tally // of which it was taken as well; nil: none
	partMark window.Mark
	back     bool // guarded by from.mu
}

// refund gives the token back, for it was not used. It is taken off the time at
// which it was taken, so a token that is given back late makes no room for more
// than one. A second refund does nothing: it would give back somebody else's.
func (t budgetToken) refund() {
	if t.taking == nil {
		return
	}
	t.from.mu.Lock()
	defer t.from.mu.Unlock()
	if !t.back {
		t.back = true
		t.from.taken.all.Undo(t.mark, 1)
		if t.part != nil {
			t.part.Undo(t.partMark, 1)
		}
	}
}
