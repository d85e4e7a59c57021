package resilienthttp

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/scope"
	"github.com/resilienthttp/resilienthttp/internal/window"
)

// Breaker is a circuit breaker: it stops sending to a server that does nothing
// but fail, for the sake of both sides. The callers get their answer at once
// instead of after a timeout, and the server gets the quiet that it needs to
// come back. (The pattern is from Michael Nygard's Release It!; that it should
// judge a ratio over a sliding window, with a minimum of requests, and not
// count failures in a row, is what Hystrix and resilience4j have taught.)
//
// Each scope, by default a host, has a circuit of its own:
//
//   - Closed, requests go out, and their results are counted. The circuit opens
//     when FailureRatio of the results of the last Window are failures, and
//     there are at least MinRequests of them.
//   - Open, requests are refused until Cooldown is over. The cooldown doubles
//     every time that the circuit opens again without having closed, up to
//     MaxCooldown. Up to a quarter of it is added at random, also to
//     MaxCooldown, lest a thousand clients come back in the same instant.
//   - Half-open, as many as Probes requests are let through. When that many
//     have succeeded, the circuit closes and its count begins afresh; when one
//     fails, it opens again.
//
// Where fields are left at 0, three more rules hold; docs/defaults.md has the
// figures that argue for them. A field that is set turns its rule off: then the
// Breaker does what is said above, and no more.
//
//   - With MinRequests and Window both 0, a circuit also opens when nothing but
//     failures has come for two seconds and five calls, all within the Window.
//     A client that makes a call a second would otherwise go on for twenty.
//   - With Cooldown and MaxCooldown both 0, the cooldown follows the latency of
//     the failure: see there. And no retry is made while a circuit is not
//     closed: its few places are for new calls.
//   - With Cooldown and MaxCooldown both 0, a circuit that has closed after slow
//     failures, timeouts above all, does not let everybody in at once: a server
//     with more work than it can do in time would only be drowned again. It
//     looks for the number of requests in flight that the server can bear,
//     raising it as answers come and cutting it when they fail, and refuses the
//     others. For clients that seldom have two requests in flight, that is a
//     pause after each, in proportion to how long it took, and of half a Window
//     at most after an answer. Slow is a failure that
//     took 100ms, and twice as long as an answer usually does. The limit ends
//     when it had nothing to do for a Window, or nothing has failed for four
//     and nothing is in flight.
//
// Failures are answers of 500 and above, transport errors, and attempt
// timeouts. Other answers are successes, save 429: that says nothing about the
// server's health while the circuit is closed, and that there is life in it
// when half-open. A call that the caller gave up says nothing.
//
// A probe has its place for one cooldown. If there is no result by then, since
// it hangs, or its goroutine is gone, the place is free for another one; the
// result counts nevertheless if it comes while the circuit is still half-open
// for the same time, or else a server slower than the cooldown could never be
// let back in. A probe that succeeded keeps its place, so that a half-open
// circuit asks no more of the server than the answers it still needs. A result
// that arrives after the circuit has changed is of a time that is over, and
// ignored.
//
// The zero value is ready for use, with the defaults below. A Breaker is safe
// for concurrent use and may be shared by several Transports, which then learn
// from each other. A request to a scope whose circuit is closed passes without
// a lock. The fields are read at first use and must not change after it; a
// Breaker must not be copied after first use. It holds the few thousand
// circuits that were used last, and of those that are not closed as many as it
// can; a circuit that was forgotten begins anew, closed.
type Breaker struct {
	// FailureRatio is the share of failures at which a circuit opens.
	// 0: 0.5. Negative, or NaN: circuits never open. Above 1: 1.
	FailureRatio float64

	// MinRequests is how many results there must be in the Window before
	// their ratio is judged. 0: 20, or where Window is 0 too and nothing but
	// failures has come for two seconds, five calls. Negative: 1.
	MinRequests int

	// Window is for how long a result counts. It slides in steps of a
	// sixteenth. 0 or negative: 10s. The least is a millisecond.
	Window time.Duration

	// Cooldown is how long a circuit stays open at first. 0: 100ms, or where
	// MaxCooldown is 0 too, twice as long as the failure took that opened it, if
	// that is more, but no more than 1s. Negative: the least that there is, a
	// millisecond.
	Cooldown time.Duration

	// MaxCooldown is how long, not counting what is added at random, a circuit
	// stays open at most. 0: 30s, or where Cooldown is 0 too, eight times as
	// long as the failed probe took, if that is less, but at least 100ms: a
	// server that fails at once is asked again soon, since that costs nobody
	// anything, and callers are served as soon as it is back. Negative, or less
	// than Cooldown: Cooldown, which then never grows.
	MaxCooldown time.Duration

	// Probes is how many requests a half-open circuit lets through, and how
	// many must succeed for it to close. 0: 3. Negative: 1.
	Probes int

	// OnChange, if not nil, is called after each change of a circuit, by the
	// goroutine whose request or result brought it about, which waits for it.
	// It is called without a lock held, so it may use the Breaker; and it may
	// be called by several goroutines at once, also for one scope, in which
	// case From and To tell the order.
	OnChange func(BreakerChange)

	once     sync.Once
	rules    breakerRules
	circuits scope.Map[string, circuit]
}

// BreakerState is what a circuit does with requests: see [Breaker].
type BreakerState int

const (
	// StateClosed is when requests go out; also that of a scope never heard of.
	StateClosed BreakerState = iota
	// StateHalfOpen is when a few requests go out, to see what becomes of them.
	StateHalfOpen
	// StateOpen is when requests are refused.
	StateOpen
)

// String returns "closed", "half-open" or "open".
func (s BreakerState) String() string {
	switch s {
	case StateClosed:
		return "closed"
	case StateHalfOpen:
		return "half-open"
	case StateOpen:
		return "open"
	}
	return fmt.Sprintf("BreakerState(%d)", int(s))
}

// BreakerChange tells that the circuit of a scope went from one state to
// another. The From of each change of a scope is the To of the one before. At is
// when it happened, and never before the change before.
type BreakerChange struct {
	Scope    string
	From, To BreakerState
	At       time.Time
}

// State returns the state of the circuit of a scope, for dashboards and health
// checks. A circuit whose cooldown is over is half-open, even if no request has
// come yet to make use of it. To ask changes nothing: a scope that is not known
// is closed, and stays unknown.
func (b *Breaker) State(scope string) BreakerState {
	g := b.peek(scope)
	switch {
	case g == nil:
		return StateClosed
	case g.state == StateOpen && !time.Now().Before(g.until):
		return StateHalfOpen
	}
	return g.state
}

const (
	defaultBreakerRatio       = 0.5
	defaultBreakerMinRequests = 20
	defaultBreakerWindow      = 10 * time.Second
	defaultBreakerCooldown    = 100 * time.Millisecond
	defaultBreakerMaxCooldown = 30 * time.Second
	defaultBreakerProbes      = 3

	minBreakerCooldown = time.Millisecond
	mostFirstCooldown  = time.Second // where it follows latencies
)

// breakerRules are the fields of a Breaker as they were at first use, with all
// defaults filled in.
type breakerRules struct {
	off         bool
	origin      time.Time // window.Counter counts the time from here
	ratio       float64
	minRequests uint64
	window      time.Duration
	cooldown    time.Duration
	maxCooldown time.Duration
	probes      int
	onChange    func(BreakerChange)
	early       bool // MinRequests and Window are ours: it may open before MinRequests
	adaptive    bool // Cooldown and MaxCooldown are ours: recovery follows latencies
}

func (b *Breaker) freeze(now time.Time) *breakerRules {
	b.once.Do(func() {
		r := breakerRules{
			off:         b.FailureRatio < 0 || math.IsNaN(b.FailureRatio),
			origin:      now,
			ratio:       defaultBreakerRatio,
			minRequests: defaultBreakerMinRequests,
			window:      defaultBreakerWindow,
			cooldown:    defaultBreakerCooldown,
			maxCooldown: defaultBreakerMaxCooldown,
			probes:      defaultBreakerProbes,
			onChange:    b.OnChange,
			early:       b.MinRequests == 0 && b.Window == 0,
			adaptive:    b.Cooldown == 0 && b.MaxCooldown == 0,
		}
		if b.FailureRatio != 0 {
			r.ratio = min(b.FailureRatio, 1)
		}
		if b.MinRequests != 0 {
			r.minRequests = uint64(max(b.MinRequests, 1))
		}
		if b.Window > 0 {
			r.window = max(b.Window, window.MinLength)
		}
		if b.Cooldown != 0 {
			r.cooldown = max(b.Cooldown, minBreakerCooldown)
		}
		if b.MaxCooldown != 0 {
			r.maxCooldown = b.MaxCooldown
		}
		r.maxCooldown = max(r.maxCooldown, r.cooldown)
		if b.Probes != 0 {
			r.probes = max(b.Probes, 1)
		}
		b.rules = r
		b.circuits.Keep = func(c *circuit) bool {
			g := c.current.Load()
			return g != nil && g.state != StateClosed
		}
	})
	return &b.rules
}

// breakerObserver is told of changes, after OnChange.
type breakerObserver interface{ breakerChanged(BreakerChange) }

// breakerOutcome is what the result of an attempt says about the server.
type breakerOutcome int

const (
	outcomeNone    breakerOutcome = iota // nothing: the caller gave up, or it was never sent
	outcomeSuccess                       // it works
	outcomeFailure                       // it does not
	outcomeAlive                         // it is there, but has enough of us (429)
)
