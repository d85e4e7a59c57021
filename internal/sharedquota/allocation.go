package sharedquota

import (
	"math"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
	"github.com/resilienthttp/resilienthttp/quotastore"
)

// allocation is the part of the quota that the process has taken in advance.
type allocation struct {
	tokens int64         // negative: a debt, the requests that the store has not counted
	at     time.Duration // when the tokens were taken, or the last of the debt was sent

	used   int64 // requests since review
	review time.Duration
	need   int64 // requests per callInterval before review

	inStore int64 // remaining tokens in the store at the last store call
}

// use uses a token for a request. Tokens may be used for a second, or half of a short window.
func (a *allocation) use(now, window time.Duration) bool {
	if a.tokens <= 0 || now-a.at >= min(time.Second, window/2) {
		return false
	}
	a.tokens, a.used = a.tokens-1, a.used+1
	return true
}

// owe counts a request without a token.
func (a *allocation) owe(now time.Duration) {
	a.tokens, a.used, a.at = min(a.tokens, 0)-1, a.used+1, now
}

// measure updates the usage, and drops tokens and debts that have left the store's window.
func (a *allocation) measure(now, window time.Duration) {
	if elapsed := now - a.review; elapsed >= callInterval {
		a.need = int64(math.Ceil(float64(a.used) * float64(callInterval) / float64(elapsed)))
		a.used, a.review = 0, now
	}
	if now-a.at >= window {
		a.tokens = 0
	}
}

// lacks returns how many tokens are missing, or a negative number if there are too many.
func (a *allocation) lacks(waiting int64) int64 {
	target := waiting + 2*a.need // for this callInterval and the next, in which the store call runs
	enough := waiting == 0 && a.tokens >= a.need
	if enough && a.tokens <= 2*target {
		return 0
	}
	return target - a.tokens
}

func (q *Quota) takeTokens(want int64) *storeCall {
	a := &q.allocation
	if want < 0 {
		a.tokens += want // they must not be used during the store call
	}
	return q.take("", want, min(want, 1), q.rule, func(t quotastore.Result, now time.Duration) {
		if want > 0 {
			q.after = now + min(t.RetryAfter, waitqueue.Horizon)
		}
		if t.Allowed > 0 {
			a.tokens += int64(t.Allowed)
			a.at = now
		}
		a.inStore = int64(t.Remaining)
	})
}
