package resilienthttp

import (
	"math"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/allowance"
	"github.com/resilienthttp/resilienthttp/internal/scope"
)

// Budget caps the retries that fail at a share of the calls.
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
// A retry that succeeds has cost nobody anything that was not worth it: it gives
// back what it took, and makes room for one more. So for each scope, in any
// Window,
//
//	retries that fail ≤ Ratio × calls + retries that succeed + MinPerSecond × Window in seconds
//
// however many goroutines ask at once: where half of the retries help, they are
// free, and where nothing succeeds, the share caps them all. A call counts once,
// when its first attempt is sent. A retry that is not over yet counts whole if the
// failure was an overload (a timeout, 429, 503, 529) or no retry has succeeded in the
// Window, and half otherwise or where it is of the minimum. Three more
// rules keep many clients that lose a server in the same moment from drowning it:
//
//   - The share is not saved up: it must also cover what is taken in the last
//     tenth of the Window; what it does not cover comes from the minimum.
//   - While nobody is known to be served (nothing has succeeded for three
//     seconds, or two calls in a row have failed, or the circuit is not closed),
//     the minimum is for one call at a time, which may have all its retries.
//   - And if most of what failed in that row was slow, of a server that has
//     answered before, one retry takes the whole minimum of a Window; the further
//     calls in the row have none.
//
// Calls of all priorities share a scope's room, and those that matter least stand back:
// one of PriorityBatch is repeated only while less than half of the room is taken, waits
// longer for it by the share that is taken, and makes no hedge from half of it on.
//
// To hold the line, calls are forgotten up to a sixteenth of Window before their
// time, and retries that others followed closely up to a fifteenth after it. A
// retry is granted before it waits for its turn: one that is not sent after all
// is given back. Hedges have a share of their own: see [Hedge].
//
// The zero value is ready for use, with the defaults below; to write a default
// out changes nothing. A Budget is safe for concurrent use and may be shared by
// several Transports, whose calls are then counted together. The fields are read
// at first use and must not change after it; a Budget must not be copied after
// first use. It holds the counts of the few thousand scopes that were used last;
// one that was forgotten begins anew.
type Budget struct {
	// Ratio is how many retries that fail each call makes room for.
	// 0: 0.1. Negative, or NaN: no cap at all. It may be above 1.
	Ratio float64

	// MinPerSecond is how many retries there may be in each second on top of
	// that, so that a client with few calls can retry too. It is granted for the
	// whole Window at once: by default, ten retries may follow the first call
	// immediately. 0: 1. Negative, or NaN: none.
	MinPerSecond float64

	// Window is for how long a call makes room for retries, and a retry takes
	// up room. 0 or negative: 10s. The least is a millisecond.
	Window time.Duration

	// Static makes the fields above all there is: retries, whatever comes of
	// them, ≤ Ratio × calls + MinPerSecond × Window in seconds.
	Static bool

	once   sync.Once
	off    bool
	rule   allowance.Rule
	scopes scope.Map[scope.Key, allowance.Allowance]
}

const (
	defaultBudgetRatio        = 0.1
	defaultBudgetMinPerSecond = 1
	defaultBudgetWindow       = 10 * time.Second
)

// withDefaults freezes the fields, and reports whether there is a cap.
func (b *Budget) withDefaults(now time.Time) bool {
	b.once.Do(func() {
		b.off = b.Ratio < 0 || math.IsNaN(b.Ratio)
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
		b.rule = allowance.Rule{
			Origin: now, Window: length, Ratio: ratio, Floor: perSecond * length.Seconds(), Static: b.Static,
		}.Checked()
		b.scopes.Clone = scope.Key.Clone
	})
	return !b.off
}

// called counts a call, of which the first attempt is being sent.
func (b *Budget) called(key scope.Key, now time.Time) {
	if b.withDefaults(now) {
		b.scopes.Get(key).Called(now, &b.rule)
	}
}

// admit asks for a retry. The ticket has to be told what came of it, or given
// back.
func (b *Budget) admit(key scope.Key, now time.Time, ask allowance.Ask) (allowance.Ticket, bool) {
	if !b.withDefaults(now) {
		return allowance.Ticket{}, true
	}
	return b.scopes.Get(key).Admit(now, &b.rule, ask)
}

// covers reports whether the share of the calls would cover a retry, or there is
// no cap: then it is no more than the calls make up for.
func (b *Budget) covers(key scope.Key, now time.Time) bool {
	return !b.withDefaults(now) || b.scopes.Get(key).Covers(now, &b.rule)
}

// used is the share of the room that is taken, from 0 to 1; where there is no cap, 0.
func (b *Budget) used(key scope.Key, now time.Time) float64 {
	if !b.withDefaults(now) {
		return 0
	}
	return b.scopes.Get(key).Used(now, &b.rule)
}
