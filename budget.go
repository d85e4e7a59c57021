package resilienthttp

import (
	"cmp"
	"math"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/retrybudget"
	"github.com/resilienthttp/resilienthttp/internal/scope"
)

// Budget limits retries by a bucket of tokens for each scope. Each call adds Ratio of a token. A retry takes what its failed
// attempt has cost the server: one token, or a tenth of one if nothing was sent. It is half of one after a quick failure, which
// took less than half of the scope's median latency. When no retry has succeeded for 5 s, each takes one. A retry that waits for the
// circuit takes none, because the circuit paces it. A retry that succeeds returns its tokens and adds two, unless it followed a rejection by a limit that still rejects other requests.
//
// A retry for which the bucket has too few tokens waits for its turn. Calls have their turns in the order in which they began, when
// later calls have brought the tokens. If no call comes, the first is sent as a test. The wait ends when the deadline leaves no
// time for a response; without a deadline 10 s after the beginning of the call, or RateLimit.MaxWait after it if a limit has
// rejected the attempt. If no limit has, a call waits only if its route has not failed for more than 30 s without a
// success. A call that does not wait, or waits without a result, ends with its last response and with ErrBudgetExhausted as its
// StopReason.
//
// After a timeout a retry takes five tokens (Burst if that is less). One is in flight at a time, and one more for each that
// is answered in half the time of the timeout. The others wait for three seconds at most.
//
// A PriorityBatch call, one with several endpoints, and one with a Static Budget, a Static Breaker or a negative
// Breaker.MaxWait wait for neither. See docs/retry-budget.md.
//
// The zero value has the defaults below. A Budget is safe for concurrent use, may be shared by
// Transports, and must not be modified or copied after its first use. It keeps some 16,384
// scopes and those that a Transport uses. Priorities share a bucket.
type Budget struct {
	// Ratio is the number of tokens that a call adds. Zero means 0.1. It may be above 1. A
	// negative number or NaN means no limit on retries.
	Ratio float64

	// Burst is the number of tokens at the start, and the capacity of the bucket without
	// recent calls. Zero means 5. A negative number means none.
	Burst int

	// Static disables adaptive behavior: every retry takes one token, and a retry that succeeds
	// returns and adds nothing.
	Static bool

	once   sync.Once
	off    bool
	rules  retrybudget.Rules
	scopes scope.Map[string, budgetScope]
}

type budgetScope struct {
	scope.Refs
	retrybudget.Bucket
}

const (
	defaultBudgetRatio = 0.1
	defaultBudgetBurst = 5
)

// scope returns the bucket of a scope, or nil if retries have no limit. If only one Transport uses
// the Budget, the bucket is a new one that is in no map.
func (b *Budget) scope(name string, own bool) *budgetScope {
	b.once.Do(b.configure)
	switch {
	case b.off:
		return nil
	case own:
		return new(budgetScope)
	}
	return b.scopes.Get(name)
}

// peek returns the bucket of a scope without creating it. The bucket of an unknown scope is full.
func (b *Budget) peek(name string) *budgetScope {
	b.once.Do(b.configure)
	if b.off {
		return nil
	}
	return cmp.Or(b.scopes.Peek(name), &budgetScope{})
}

func (b *Budget) configure() {
	b.off = b.Ratio < 0 || math.IsNaN(b.Ratio)
	ratio, tokens := cmp.Or(b.Ratio, defaultBudgetRatio), cmp.Or(b.Burst, defaultBudgetBurst)
	b.rules = retrybudget.Rules{Origin: time.Now(), Ratio: ratio, Tokens: float64(tokens), Static: b.Static}.Checked()
	b.scopes.Held = (*budgetScope).Held
}

func (b *Budget) status(s *budgetScope, now time.Time) retrybudget.Status {
	if s == nil {
		return retrybudget.Status{Remaining: -1}
	}
	return s.Status(&b.rules, now)
}
