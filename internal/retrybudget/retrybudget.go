// Package retrybudget is the engine of the retry budget and of the ratio of hedges. Each scope
// has a bucket of tokens. A retry or hedge takes tokens.
//
// A call adds a part of a token. A retry takes Request.Cost tokens (one, when none has succeeded for five seconds) before it
// waits, or when its turn has come, and five after a timeout when it is sent (see line and turns). A retry that succeeds returns its tokens and
// adds two. The bucket starts with Rules.Tokens. It holds that many, plus the tokens that calls have added in the last
// Recent. See docs/retry-budget.md.
package retrybudget

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/window"
)

const (
	// Recent is the time for which a call raises the capacity of a bucket. It is short: the
	// tokens of a healthy minute must not be spent in the first second of an outage.
	Recent = 1250 * time.Millisecond

	patience = 5 * time.Second // a retry costs a token when none has succeeded for so long

	slowCost = 5 // cost after a timeout, when the server has too many requests already
	reward   = 2 // tokens that a successful retry adds

	quietCalls = 10 // without a rejection by a limit, after which a success earns tokens again
)

// Rules describe a bucket. All uses of one bucket must have the same Rules.
type Rules struct {
	Origin time.Time // zero point of the times; must not be after the first use
	Ratio  float64   // tokens that each call adds
	Tokens float64   // tokens at the start, and the capacity without calls
	Static bool      // a retry takes one token, and its success returns none
}

// Checked returns rules without infinity. Negative numbers and NaN become 0.
func (r Rules) Checked() Rules {
	clamp := func(x float64) float64 {
		if x > 0 {
			return min(x, 1e12)
		}
		return 0
	}
	r.Ratio, r.Tokens = clamp(r.Ratio), clamp(r.Tokens)
	return r
}

// Bucket is the token bucket of one scope. The zero value is full. It is safe for concurrent use.
// Deposit takes no lock, because each call makes one.
//
// Admit adds the tokens of all calls since the previous Admit. The result is the same as if each
// call had added its tokens at once.
type Bucket struct {
	recent window.Window[atomic.Int32] // recent calls
	calls  atomic.Int64                // number of all calls
	came   atomic.Int64                // when one last came: nanoseconds since Rules.Origin

	mu     sync.Mutex
	begun  bool  // tokens has its first value
	added  int64 // calls that tokens contains
	tokens float64

	asked   time.Time // the last Admit; zero: a retry has succeeded since
	useless time.Time // the first Admit since then, or since none was asked for as long as patience

	rejected   time.Time // when a limit last rejected a request
	rejectedOf int64     // calls then

	timeouts *line       // of retries that wait; nil: none has waited
	turns    *turns      // of those without tokens; nil: none has waited
	waiting  atomic.Bool // some wait for their turn
}

// Deposit adds the tokens of one call.
func (b *Bucket) Deposit(rules *Rules, now time.Time) {
	at := now.Sub(rules.Origin)
	b.recent.At(at, Recent, window.Buckets).Add(1)
	b.calls.Add(1)
	b.came.Store(int64(at))
	if b.waiting.Load() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.turns.called(now)
	}
}

// Rejected notes that a limit has rejected a request. Until quietCalls have come and Recent has passed, a retry that follows such a
// rejection earns nothing if it succeeds, because the server rejects another request for it.
func (b *Bucket) Rejected(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rejected, b.rejectedOf = now, b.calls.Load()
}

// quiet reports whether no limit has rejected a request lately. The bucket is locked.
func (b *Bucket) quiet(now time.Time) bool {
	return b.calls.Load()-b.rejectedOf >= quietCalls && now.Sub(b.rejected).Abs() > Recent
}

// Request describes the request that needs tokens.
type Request struct {
	Slow  bool    // the retry follows a timeout: it takes five tokens, or Rules.Tokens if that is less
	Batch bool    // the bucket must be more than half full
	Cost  float64 // tokens of a retry that is not Slow, as long as retries succeed; 0: one

	Limited bool // the retry follows a rejection by a limit
}

// Admit takes the tokens for one request, or returns false if there are too few. The caller must
// call Done or Cancel on the Permit once.
func (b *Bucket) Admit(r Request, rules *Rules, now time.Time) (Permit, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting.Load() {
		// Those that wait for their turn were there before.
		return Permit{}, false
	}
	return b.take(r, rules, now)
}

// take is Admit for a locked bucket.
func (b *Bucket) take(r Request, rules *Rules, now time.Time) (Permit, bool) {
	cost, ok := b.cost(r, rules, now)
	if !ok {
		return Permit{}, false
	}
	b.tokens = max(b.tokens-cost, 0)
	w := &withdrawal{from: b, cost: cost, limited: r.Limited}
	if !rules.Static {
		w.reward = cost + reward
	}
	return Permit{w}, true
}

// cost returns the tokens that a request takes, and whether the bucket has them. The bucket is locked.
func (b *Bucket) cost(r Request, rules *Rules, now time.Time) (cost float64, enough bool) {
	capacity := b.fill(rules, now)
	if now.Sub(b.asked) > patience {
		b.useless = now
	}
	b.asked = now
	cost = 1.0
	switch {
	case rules.Static:
	case r.Slow:
		// A small bucket must not make it impossible.
		cost = max(1, min(rules.Tokens, slowCost))
	case r.Cost > 0 && now.Sub(b.useless) <= patience:
		// Retries are of use, or have not been asked for lately. Otherwise each costs a token, however cheap it is.
		cost = r.Cost
	}
	enough = float32(b.tokens) >= float32(cost) // without the rounding error: ten times 0.1 is less than one
	return cost, enough && (!r.Batch || b.tokens > capacity/2)
}

// fill adds the tokens of the calls since the last fill, and returns the capacity. The bucket is locked.
func (b *Bucket) fill(rules *Rules, now time.Time) (capacity float64) {
	if !b.begun { // the zero Bucket does not know the rules, and is full
		b.begun, b.tokens = true, rules.Tokens
	}
	// Before the capacity, which then contains them.
	calls := b.calls.Load()
	b.tokens += rules.Ratio * float64(calls-b.added)
	b.added = calls
	capacity = rules.Tokens + rules.Ratio*float64(b.recentCalls(rules, now))
	b.tokens = min(b.tokens, capacity)
	return capacity
}

func (b *Bucket) recentCalls(rules *Rules, now time.Time) (sum int32) {
	for _, calls := range b.recent.All(now.Sub(rules.Origin), Recent, window.Buckets) {
		sum += calls.Load()
	}
	return sum
}

// Status is the content of a bucket, in tokens.
type Status struct{ Used, Remaining float64 }

// Status returns the tokens in the bucket, and those missing until it is full.
func (b *Bucket) Status(rules *Rules, now time.Time) Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	capacity := b.fill(rules, now)
	return Status{Used: capacity - b.tokens, Remaining: b.tokens}
}

// Permit permits one request. The methods of the zero Permit have no effect.
type Permit struct{ *withdrawal }

type withdrawal struct {
	from         *Bucket
	cost, reward float64 // tokens that return after Cancel, and after a success
	in           *line   // that has returned it; nil: none has
	limited      bool    // it follows a rejection by a limit
	test         bool    // the line of turns has returned it without a token
	ended        bool    // Done or Cancel was called; guarded by from.mu
}

// Result is the result of a request.
type Result struct {
	Succeeded bool
	Slow      bool          // after a timeout, it took so long that it may have been behind a queue
	Asks      time.Duration // the wait for which a limit asks that has rejected it
}

// Done records the result of the request. Later calls of Done and Cancel have no effect.
func (p Permit) Done(r Result) { p.finish(r, false) }

// Cancel returns the tokens of a request that was not sent, once and not after Done.
func (p Permit) Cancel() { p.finish(Result{}, true) }

func (w *withdrawal) finish(r Result, canceled bool) {
	if w == nil {
		return
	}
	w.from.mu.Lock()
	defer w.from.mu.Unlock()
	now := time.Now()
	w.end(r, canceled, now)
	// After the result, because it may have brought tokens for those that wait.
	if w.from.timeouts != nil {
		w.from.timeouts.Dispatch(now)
	}
	if w.from.turns != nil {
		w.from.turns.Dispatch(now)
	}
}

// end is finish for a locked bucket.
func (w *withdrawal) end(r Result, canceled bool, now time.Time) {
	if w == nil || w.ended {
		return
	}
	w.ended = true
	b := w.from
	switch {
	case r.Succeeded:
		// It shows that retries are of use, so they get cheaper, and more: unless a limit rejects another request for it.
		b.asked = time.Time{}
		displaces := w.limited && !b.quiet(now)
		if !displaces {
			b.tokens += w.reward
		}
	case canceled:
		b.tokens += w.cost
	}
	if w.in != nil {
		w.in.ended(r, canceled)
	}
	if w.test {
		b.turns.tested(r, canceled, now)
	}
}
