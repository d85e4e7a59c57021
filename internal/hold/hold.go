// Package hold is the state of something that is away: a server, a store, a gateway. While it is held, single calls
// test it, and a success ends the hold. Then the calls that have waited are released one after the other.
//
// The package is pure: times are arguments, and the owner's lock guards the values.
package hold

import (
	"math"
	"math/rand/v2"
	"time"
)

// Hanging is how long others wait for one that has no answer: it may hang.
const Hanging = time.Second

// Hold plans the tests of one that is away. The zero value holds nothing.
type Hold struct {
	since time.Time     // zero: nothing is held
	next  time.Time     // when a test may be sent
	step  time.Duration // between two tests, without jitter
}

// Begin begins a hold. The first test may be sent after the step.
func (h *Hold) Begin(now time.Time, step time.Duration) {
	*h = Hold{since: now, next: now.Add(jittered(step)), step: step}
}

// End ends the hold. It returns how long it lasted; 0 if there was none.
func (h *Hold) End(now time.Time) (lasted time.Duration) {
	if h.Held() {
		lasted = max(now.Sub(h.since), 0)
	}
	*h = Hold{}
	return lasted
}

// Held reports whether there is a hold.
func (h *Hold) Held() bool { return !h.since.IsZero() }

// Since returns when the hold began.
func (h *Hold) Since() time.Time { return h.since }

// Next returns when a test may be sent. A clock that was set back, as in the next testing/synctest bubble, is behind the
// beginning: then it may be sent at once. A smaller step is the delay between reading the clock and getting the lock.
func (h *Hold) Next(now time.Time) time.Time {
	if WentBack(h.since, now) {
		return now
	}
	return h.next
}

// Test notes that a test is sent. It may hang, so the next one may follow after a step, with or without its result.
func (h *Hold) Test(now time.Time) { h.next = now.Add(jittered(h.step)) }

// Cancel notes that a test has no result. Another one may follow at once.
func (h *Hold) Cancel(now time.Time) { h.next = now }

// Fail notes that a test has failed. The step doubles up to the longest one, and no test follows before the pause is over.
func (h *Hold) Fail(now time.Time, pause, longest time.Duration) {
	if h.step < longest {
		h.step += min(h.step, longest-h.step)
	}
	if after := now.Add(jittered(pause)); after.After(h.next) {
		h.next = after
	}
}

// WentBack reports whether the clock was set back since a time.
func WentBack(since, now time.Time) bool { return since.Sub(now) > time.Second }

// jittered adds up to a quarter at random, so that many clients do not test at once.
func jittered(d time.Duration) time.Duration {
	return d + rand.N(max(min(d/4, math.MaxInt64-d), 0)+1)
}

// Release spaces the calls that have waited for a Hold. The zero value releases them at once.
type Release struct {
	next     time.Time
	interval time.Duration
}

// Begin plans the release of a number of calls: one in each interval, but all within the longest time.
func (r *Release) Begin(now time.Time, calls int, interval, longest time.Duration) {
	*r = Release{next: now, interval: min(interval, longest/time.Duration(max(calls, 1)))}
}

// Next returns when the next call may be released.
func (r *Release) Next() time.Time { return r.next }

// Take notes that a call is released. least is the least interval until the next one.
func (r *Release) Take(now time.Time, least time.Duration) { r.next = now.Add(max(r.interval, least)) }
