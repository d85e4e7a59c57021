package resilienthttp

import (
	"math"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/retrybudget"
	"github.com/resilienthttp/resilienthttp/internal/scope"
)

// Budget limits retries by a bucket of tokens for each scope. A call adds Ratio of a token. A
// retry takes one before it waits, and after a timeout all that there are, at most five. A
// retry that succeeds returns what it took and adds two; after a 429 that asks for no wait it
// returns nothing. The bucket starts with MinTokens, and holds MinTokens plus what the calls
// of the last 1.25 s have added. If it has too few tokens, the call ends with
// ErrBudgetExhausted as its StopReason.
//
// The zero value has the defaults below. A Budget is safe for concurrent use, may be shared
// by Transports, and must not be modified or copied after its first use. It keeps some 4096
// scopes. Priorities share a bucket. See docs/defaults.md.
type Budget struct {
	// Ratio is the part of a token that a call adds. Zero means 0.1. A negative number or
	// NaN means no limit on retries. It may be above 1.
	Ratio float64

	// MinTokens is the number of tokens at the start, which is also the capacity for a client
	// that makes no calls. Zero means 5. A negative number means none.
	MinTokens int

	// Static disables adaptive behavior: every retry takes one token, and a retry that
	// succeeds returns and adds nothing.
	Static bool

	once   sync.Once
	off    bool
	rules  retrybudget.Rules
	scopes scope.Map[string, budgetScope]
}

// budgetScope is the bucket of one scope.
type budgetScope struct {
	scope.Refs
	retrybudget.Bucket
}

const (
	defaultBudgetRatio     = 0.1
	defaultBudgetMinTokens = 5
)

// scope returns the bucket of a scope, or nil if retries have no limit.
func (b *Budget) scope(name string) *budgetScope {
	b.once.Do(b.configure)
	if b.off {
		return nil
	}
	return b.scopes.Get(name)
}

// peek is scope without making a bucket: an unknown scope has a full one.
func (b *Budget) peek(name string) *budgetScope {
	b.once.Do(b.configure)
	if b.off {
		return nil
	}
	if s := b.scopes.Peek(name); s != nil {
		return s
	}
	return &budgetScope{}
}

func (b *Budget) configure() {
	b.off = b.Ratio < 0 || math.IsNaN(b.Ratio)
	ratio, tokens := b.Ratio, b.MinTokens
	if ratio == 0 {
		ratio = defaultBudgetRatio
	}
	if tokens == 0 {
		tokens = defaultBudgetMinTokens
	}
	b.rules = retrybudget.Rules{Origin: time.Now(), Ratio: ratio, Tokens: float64(tokens), Static: b.Static}.Checked()
	b.scopes.Held = (*budgetScope).Held
}

// status returns the content of a bucket.
func (b *Budget) status(s *budgetScope, now time.Time) retrybudget.Status {
	if s == nil {
		return retrybudget.Status{Remaining: -1}
	}
	return s.Status(now, &b.rules)
}
