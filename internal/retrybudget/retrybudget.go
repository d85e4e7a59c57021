// Package retrybudget is the engine behind the retry budget and the ratio of
// hedges: a bucket of tokens for each scope, out of which the requests are paid
// that a client sends beside its calls.
//
// A call adds a part of a token. A retry takes one before it waits, or after a timeout
// up to five. A retry that succeeds returns what it took and adds two. The bucket starts
// with Rules.Tokens and holds that many, plus what the calls of the last Recent have added.
package retrybudget

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/window"
)

const (
	// Recent is the time during which calls raise the capacity of a bucket. It is
	// short, so that the tokens of a good minute do not meet the server in its
	// first bad second.
	Recent = 1250 * time.Millisecond

	// slowCost is the most that a retry after a timeout takes: a server that does
	// not respond in time has more requests than it can serve already.
	slowCost = 5

	// reward is what a retry that succeeds adds, beside what it took.
	reward = 2

	// rounding keeps ten times a tenth from being less than one.
	rounding = 1e-9
)

// Rules describe a bucket. All uses of one bucket must bring the same Rules.
type Rules struct {
	Origin time.Time // times are measured from here; not after the first use
	Ratio  float64   // of a token that each call adds
	Tokens float64   // in the bucket at the start, and its capacity without calls
	Static bool      // a retry takes one token, and its success returns nothing
}

// Checked returns the rules with values that are safe to calculate with: a negative
// number or NaN is 0, and none is infinite.
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

// Bucket is the token bucket of one scope. The zero value is full. It is safe for
// concurrent use. Deposit takes no lock, because every call makes one. Admit takes
// a lock: to compare and to take must be one step.
//
// Deposits are added when the next token is asked for. The result is the same as if
// each were added at once: if the bucket was full in between, it is full now, because
// its capacity contains the calls since then.
type Bucket struct {
	recent window.Counter // calls
	calls  atomic.Int64   // all of them, ever

	mu     sync.Mutex
	begun  bool
	tokens float64
	added  int64 // calls whose tokens are in the bucket
}

// Deposit adds the tokens of one call.
func (b *Bucket) Deposit(now time.Time, rules *Rules) {
	b.recent.Add(now.Sub(rules.Origin), Recent, 1, 0)
	b.calls.Add(1)
}

// Request is what tokens are asked for.
type Request struct {
	Slow  bool // the retry follows a timeout: it takes all tokens that there are, at most five
	Batch bool // the bucket must be more than half full

	// Rejected is true if the retry follows a 429 that asks for no wait. Its success returns
	// nothing: a rate limit that admits a retry rejects another request for it.
	Rejected bool
}

// Admit takes the tokens for one request, or reports that there are too few. The
// caller must call Done or Cancel on the Permit once.
func (b *Bucket) Admit(now time.Time, rules *Rules, r Request) (Permit, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	capacity := b.fill(now, rules)
	cost := 1.0
	if r.Slow && !rules.Static {
		cost = max(1, math.Floor(min(b.tokens+rounding, slowCost)))
	}
	if b.tokens+rounding < cost || r.Batch && b.tokens <= capacity/2 {
		return Permit{}, false
	}
	b.tokens -= cost
	return Permit{&withdrawal{from: b, rules: rules, cost: cost, kept: r.Rejected}}, true
}

// fill adds the tokens of the calls since the last time, and returns the capacity. The
// bucket is locked.
func (b *Bucket) fill(now time.Time, rules *Rules) (capacity float64) {
	if !b.begun {
		b.begun, b.tokens = true, rules.Tokens
	}
	calls := b.calls.Load() // before the capacity, which then contains them
	b.tokens += rules.Ratio * float64(calls-b.added)
	b.added = calls
	recent, _ := b.recent.Sum(now.Sub(rules.Origin), Recent)
	capacity = rules.Tokens + rules.Ratio*float64(recent)
	b.tokens = min(b.tokens, capacity)
	return capacity
}

// Status is the content of a bucket, in tokens.
type Status struct{ Used, Remaining float64 }

// Status returns how many tokens are in the bucket, and how many more it would hold.
func (b *Bucket) Status(now time.Time, rules *Rules) Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	capacity := b.fill(now, rules)
	return Status{Used: capacity - b.tokens, Remaining: b.tokens}
}

// Permit is the right to send one request. The zero Permit takes nothing from anywhere.
type Permit struct{ *withdrawal }

type withdrawal struct {
	from  *Bucket
	rules *Rules
	cost  float64
	kept  bool // its success returns nothing
	ended bool // Done or Cancel was called; guarded by from.mu
}

// Done records the result of the request. Calls after the first, or after Cancel, have
// no effect.
func (p Permit) Done(succeeded bool) {
	if p.withdrawal == nil {
		return
	}
	back := 0.0
	if succeeded && !p.kept && !p.rules.Static {
		back = p.cost + reward
	}
	p.end(back)
}

// Cancel returns the tokens of a request that was not sent. Calls after the first, or
// after Done, have no effect.
func (p Permit) Cancel() {
	if p.withdrawal != nil {
		p.end(p.cost)
	}
}

func (p Permit) end(back float64) {
	p.from.mu.Lock()
	defer p.from.mu.Unlock()
	if !p.ended {
		p.ended = true
		p.from.tokens += back
	}
}
