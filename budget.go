package resilienthttp

import (
	"math"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/retrybudget"
	"github.com/resilienthttp/resilienthttp/internal/scope"
)

// Budget limits retries by a bucket of tokens for each scope. A call adds Ratio of a
// token. A retry takes one before it waits, and after a timeout all that there are, at
// most five. A retry that succeeds returns what it took and adds two; after a 429 that
// asks for no wait it returns nothing. The bucket starts with MinTokens, and holds
// MinTokens plus what the calls of the last 1.25 s have added. If it has too few tokens,
// the call ends, and Stop of its last Attempt is ErrBudgetExhausted.
//
// The count is exact under concurrent use. Tokens of a retry that is not sent are
// returned. Calls of all priorities share a bucket; a call of PriorityBatch is retried or
// hedged only while it is more than half full. Hedges have a ratio of their own: see [Hedge].
//
// The zero value has the defaults below. A Budget is safe for concurrent use, may be
// shared by Transports, and must not be modified or copied after its first use. It keeps
// some 4096 scopes. See docs/defaults.md.
type Budget struct {
	// Ratio is the part of a token that a call adds. Zero means 0.1. A negative number
	// or NaN means no limit on retries. It may be above 1.
	Ratio float64

	// MinTokens is the number of tokens at the start, which is also the capacity for a
	// client that makes no calls. Zero means 5. A negative number means none.
	MinTokens int

	// Static disables adaptive behavior: every retry takes one token, also after a
	// timeout, and a retry that succeeds returns and adds nothing.
	Static bool

	once   sync.Once
	off    bool
	rules  retrybudget.Rules
	scopes scope.Map[scope.Key, retrybudget.Bucket]
}

const (
	defaultBudgetRatio     = 0.1
	defaultBudgetMinTokens = 5
)

// withDefaults reads the fields once, and reports whether there is a limit.
func (b *Budget) withDefaults(now time.Time) bool {
	b.once.Do(func() {
		b.off = b.Ratio < 0 || math.IsNaN(b.Ratio)
		ratio, tokens := b.Ratio, b.MinTokens
		if ratio == 0 {
			ratio = defaultBudgetRatio
		}
		if tokens == 0 {
			tokens = defaultBudgetMinTokens
		}
		b.rules = retrybudget.Rules{Origin: now, Ratio: ratio, Tokens: float64(tokens), Static: b.Static}.Checked()
		b.scopes.Clone = scope.Key.Clone
	})
	return !b.off
}

// called counts a call when its first attempt is sent.
func (b *Budget) called(key scope.Key, now time.Time) {
	if b.withDefaults(now) {
		b.scopes.Get(key).Deposit(now, &b.rules)
	}
}

// admit takes the tokens for a retry. The caller must call Done or Cancel on the permit.
func (b *Budget) admit(key scope.Key, now time.Time, r retrybudget.Request) (retrybudget.Permit, bool) {
	if !b.withDefaults(now) {
		return retrybudget.Permit{}, true
	}
	return b.scopes.Get(key).Admit(now, &b.rules, r)
}

// status returns what the bucket of a scope contains. It creates no bucket.
func (b *Budget) status(key scope.Key, now time.Time) BudgetStatus {
	if !b.withDefaults(now) {
		return BudgetStatus{Remaining: -1}
	}
	bucket := b.scopes.Peek(key)
	if bucket == nil {
		bucket = new(retrybudget.Bucket)
	}
	return BudgetStatus(bucket.Status(now, &b.rules))
}
