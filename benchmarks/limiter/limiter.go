// Package limiter has the rate limiters of simulated servers, and the headers in which they tell their quotas.
package limiter

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Kind is a kind of limiter.
type Kind string

// The kinds of limiter.
const (
	FixedWindow   Kind = "window"      // Quota units in each window
	SlidingWindow Kind = "sliding"     // Quota units in any time of the length Window
	TokenBucket   Kind = "bucket"      // Burst units, refilled with Quota units per Window
	GCRA          Kind = "gcra"        // the same, counted as a time (generic cell rate algorithm)
	Concurrency   Kind = "concurrency" // Quota requests at once
)

// Kinds returns the kinds.
func Kinds() []Kind { return []Kind{FixedWindow, SlidingWindow, TokenBucket, GCRA, Concurrency} }

// Unit is what a limit counts.
type Unit string

// The units.
const (
	Requests Unit = "requests"
	Tokens   Unit = "tokens" // a request costs a drawn number of tokens
)

// Split tells which requests share the units of a limit.
type Split string

// The splits.
const (
	All     Split = ""      // all requests
	ByPath  Split = "path"  // the requests of one path
	ByModel Split = "model" // the requests with one value of a header
)

// Limit is one limit of a server.
type Limit struct {
	Name   string // in dialects that name quotas
	Kind   Kind
	Quota  int
	Window time.Duration
	Burst  int  // of a TokenBucket and GCRA
	Clock  bool // a FixedWindow starts at multiples of Window; default: with its first request
	Unit   Unit
	Split  Split
	Secret bool // no header shows it
}

// PerSecond is the number of units that are granted per second. A Concurrency limit grants them
// by the time for which a request holds a slot.
func (l Limit) PerSecond(held time.Duration) float64 {
	if l.Kind == Concurrency {
		return float64(l.Quota) / held.Seconds()
	}
	return float64(l.Quota) / l.Window.Seconds()
}

// Capacity is the maximum number of units at once.
func (l Limit) Capacity() int {
	if l.Kind == TokenBucket || l.Kind == GCRA {
		return l.Burst
	}
	return l.Quota
}

// Refill is the time in which capacity units are granted: the window that criteria count.
func (l Limit) Refill() time.Duration {
	if l.Kind == TokenBucket || l.Kind == GCRA {
		return time.Duration(float64(l.Window) * float64(l.Burst) / float64(l.Quota))
	}
	return l.Window
}

// Continuous reports whether units are granted one by one, and not all at one moment.
func (l Limit) Continuous() bool { return l.Kind != FixedWindow }

func (l Limit) String() string {
	text := fmt.Sprintf("%s of %d", l.Kind, l.Quota)
	switch l.Kind {
	case Concurrency:
	case TokenBucket, GCRA:
		text += fmt.Sprintf(" in %v, burst %d", l.Window, l.Burst)
	default:
		text += fmt.Sprintf(" in %v", l.Window)
	}
	if l.Unit == Tokens {
		text += " of tokens"
	}
	if l.Split != All {
		text += " per " + string(l.Split)
	}
	if l.Secret {
		text += ", secret"
	}
	return text
}

// Meter counts the units of one Limit. Times are since the start of the model's clock and never
// go back. It is not safe for concurrent use.
type Meter interface {
	// Earliest is the first time, not before now, at which cost units are granted if nothing
	// else is taken meanwhile.
	Earliest(now time.Duration, cost int) time.Duration
	// Take takes units that are granted now, or up to all that are left for a rejected request. until is when the request ends.
	Take(now, until time.Duration, cost int)
	// Left returns the remaining units, and the time until all units are available.
	Left(now time.Duration) (remaining int, reset time.Duration)
}

// New returns the meter of a limit, with all units.
func New(l Limit) Meter {
	switch l.Kind {
	case FixedWindow:
		return &windowMeter{Limit: l, begins: -l.Window}
	case SlidingWindow:
		return &slidingMeter{Limit: l}
	case TokenBucket, GCRA:
		return &bucketMeter{Limit: l, step: float64(l.Window) / float64(l.Quota)}
	case Concurrency:
	}
	return &slotMeter{Limit: l}
}

// windowMeter is a FixedWindow.
type windowMeter struct {
	Limit
	begins time.Duration
	used   int
}

// roll begins a new window if the last one is over. A window without a request does not begin
// unless the clock begins it.
func (m *windowMeter) roll(now time.Duration) {
	if now < m.begins+m.Window {
		return
	}
	m.begins, m.used = now, 0
	if m.Clock {
		m.begins = now - now%m.Window
	}
}

func (m *windowMeter) Earliest(now time.Duration, cost int) time.Duration {
	m.roll(now)
	if m.used+cost <= m.Quota {
		return now
	}
	return m.begins + m.Window
}

func (m *windowMeter) Take(now, _ time.Duration, cost int) {
	m.roll(now)
	m.used += cost
}

func (m *windowMeter) Left(now time.Duration) (int, time.Duration) {
	if now >= m.begins+m.Window && !m.Clock {
		return m.Quota, m.Window // it would begin now
	}
	m.roll(now)
	return max(m.Quota-m.used, 0), m.begins + m.Window - now
}

// slidingMeter is a SlidingWindow that knows each request.
type slidingMeter struct {
	Limit
	taken []taken
	used  int
}

type taken struct {
	at   time.Duration
	cost int
}

func (m *slidingMeter) drop(now time.Duration) {
	for len(m.taken) > 0 && m.taken[0].at+m.Window <= now {
		m.used -= m.taken[0].cost
		m.taken = m.taken[1:]
	}
}

func (m *slidingMeter) Earliest(now time.Duration, cost int) time.Duration {
	m.drop(now)
	used, at := m.used, now
	for i := 0; used+cost > m.Quota; i++ {
		used -= m.taken[i].cost
		at = m.taken[i].at + m.Window
	}
	return at
}

func (m *slidingMeter) Take(now, _ time.Duration, cost int) {
	m.drop(now)
	m.taken = append(m.taken, taken{now, cost})
	m.used += cost
}

func (m *slidingMeter) Left(now time.Duration) (int, time.Duration) {
	m.drop(now)
	if len(m.taken) == 0 {
		return m.Quota, m.Window
	}
	return max(m.Quota-m.used, 0), m.taken[len(m.taken)-1].at + m.Window - now
}

const tiny = 1e-6 // sums of fractions are not exact

// bucketMeter is a TokenBucket or GCRA, which grant the same: full is the time at which all units are available.
type bucketMeter struct {
	Limit
	step float64 // time of a unit
	full float64
}

func (m *bucketMeter) Earliest(now time.Duration, cost int) time.Duration {
	at := m.full + float64(cost-m.Burst)*m.step
	if at-float64(now) < 1 {
		return now
	}
	return time.Duration(math.Ceil(at))
}

func (m *bucketMeter) Take(now, _ time.Duration, cost int) {
	m.full = min(max(m.full, float64(now))+float64(cost)*m.step, float64(now)+float64(m.Burst)*m.step)
}

func (m *bucketMeter) Left(now time.Duration) (int, time.Duration) {
	wait := max(m.full-float64(now), 0)
	return max(int(float64(m.Burst)-wait/m.step+tiny), 0), time.Duration(wait)
}

// slotMeter is a Concurrency limit: ends are the times at which requests end, in order.
type slotMeter struct {
	Limit
	ends []time.Duration
}

func (m *slotMeter) free(now time.Duration) {
	for len(m.ends) > 0 && m.ends[0] <= now {
		m.ends = m.ends[1:]
	}
}

func (m *slotMeter) Earliest(now time.Duration, _ int) time.Duration {
	if m.free(now); len(m.ends) < m.Quota {
		return now
	}
	return m.ends[len(m.ends)-m.Quota]
}

func (m *slotMeter) Take(now, until time.Duration, _ int) {
	m.free(now)
	i, _ := slices.BinarySearch(m.ends, until)
	m.ends = slices.Insert(m.ends, i, until)
}

func (m *slotMeter) Left(now time.Duration) (int, time.Duration) {
	if m.free(now); len(m.ends) == 0 {
		return m.Quota, 0
	}
	return max(m.Quota-len(m.ends), 0), m.ends[0] - now
}
