package limiter

import (
	"fmt"
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
	// Take takes units that are granted now. until is when the request ends.
	Take(now, until time.Duration, cost int)
	// Fine takes up to cost units for a rejected request.
	Fine(now time.Duration, cost int)
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
	case TokenBucket:
		return &bucketMeter{Limit: l, tokens: float64(l.Burst)}
	case GCRA:
		return &gcraMeter{Limit: l, step: float64(l.Window) / float64(l.Quota)}
	case Concurrency:
	}
	return &slotMeter{Limit: l}
}
