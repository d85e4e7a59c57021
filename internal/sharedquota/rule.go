package sharedquota

import (
	"math"
	"time"

	"github.com/resilienthttp/resilienthttp/quotastore"
)

// StaticRule is the token bucket of the fixed limit. Its burst is smaller by what the
// processes may hold.
func StaticRule(limit float64, burst int) quotastore.Rule {
	const longest = 366 * 24 * time.Hour
	window := time.Duration(min(float64(burst)/limit*float64(time.Second)+1, float64(longest)))
	held := int(min(limit*2*callInterval.Seconds(), float64(burst-1)))
	return quotastore.Rule{Limit: burst, Window: window, Burst: burst - held}
}

// ServerRule is that of a server's quota, of any kind: with at most the limit in each
// window, a fixed window, a sliding one and a token bucket are all respected. A token that
// was taken at the end of a window may be used a little later, so the window is longer by
// the slack.
func ServerRule(limit int64, window time.Duration) quotastore.Rule {
	return quotastore.Rule{Limit: int(limit), Window: window + min(window/64, maxSlack), Sliding: true}
}

// ruleState is how far the processes agree on the rule.
type ruleState uint8

const (
	unasked ruleState = iota // the store was not asked
	unknown                  // it does not know one
	learned                  // from the server, and to be written to the store
	differs                  // the store has another one, that is older
	agreed                   // the store has the same
)

// A rule is kept in the store as what was taken of a key of its own, the one number that a
// Store keeps: the limit, and after that the window in seconds.
const (
	windowBits = 17
	maxShared  = 1<<22 - 1 // a larger limit is taken for this
	ruleTTL    = 24 * time.Hour
)

func ruleNumber(limit int64, window time.Duration) int64 {
	return limit<<windowBits | int64(math.Ceil(window.Seconds()))
}

// ruleCall is a Take of the rule's own key.
func (q *Quota) ruleCall(want, min, limit int, apply func(t quotastore.Result, now time.Time)) storeCall {
	rule := quotastore.Rule{Limit: limit, Window: ruleTTL, Sliding: true}
	return storeCall{key: q.key + "|rule", want: want, min: min, rule: rule, apply: apply}
}

// readRule asks the store for what another process has learned.
func (q *Quota) readRule() storeCall {
	most := int(min(int64(maxShared+1)<<windowBits, math.MaxInt))
	return q.ruleCall(0, 0, most, func(t quotastore.Result, _ time.Time) { q.compare(int64(most - t.Remaining)) })
}

// clearRule deletes the store's rule, for a newer one.
func (q *Quota) clearRule() storeCall {
	return q.ruleCall(math.MinInt, 0, 1, func(quotastore.Result, time.Time) { q.state = learned })
}

// writeRule writes the rule to the store, if that has none.
func (q *Quota) writeRule() storeCall {
	number := int(ruleNumber(int64(q.rule.Limit), q.window))
	return q.ruleCall(number, number, number, func(t quotastore.Result, _ time.Time) {
		if q.state = agreed; !t.OK {
			q.state = unasked // it has one
		}
	})
}

// compare compares the rule with the store's; 0: it has none.
func (q *Quota) compare(number int64) {
	limit, window := number>>windowBits, time.Duration(number&(1<<windowBits-1))*time.Second
	switch {
	case q.state != unasked: // something was learned meanwhile
	case q.rule.Limit == 0 && (limit <= 0 || window <= 0):
		q.state = unknown
	case q.rule.Limit == 0:
		q.rule, q.window, q.state = ServerRule(limit, window), window, agreed
	case number == 0:
		q.state = learned
	default:
		if window > q.window { // the others have seen more
			q.rule, q.window = ServerRule(int64(q.rule.Limit), window), window
		}
		if q.state = differs; number == ruleNumber(int64(q.rule.Limit), q.window) {
			q.state = agreed
		}
	}
}

// Observation is what a response says of a quota that is shared.
type Observation struct {
	Responded    bool
	Limit        int64 // 0: it says nothing
	Window       time.Duration
	WindowKnown  bool      // the server says the window
	BlockedUntil time.Time // until then the quota is exhausted; zero: it is not
}

// Observe learns from the response to a request that had the permit.
func (q *Quota) Observe(o Observation, p Permit, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now = q.steady(now)
	if p == permitFirst {
		q.probed = time.Time{}
	}
	switch {
	case o.Limit > 0 && !q.static:
		q.learn(o, p, now)
	case p == permitFirst && o.Responded:
		q.noFields = true
	}
	const exact = 10 * time.Millisecond
	if until := o.BlockedUntil; until.After(now) && until.After(q.blockUntil) && (until.Sub(q.after) > exact || q.after.Before(now)) {
		q.blockUntil = until
	}
	q.Dispatch(now)
}

// learn learns the limit, and the longest window.
func (q *Quota) learn(o Observation, p Permit, now time.Time) {
	limit, window := min(o.Limit, maxShared, math.MaxInt>>windowBits), max(o.Window.Round(time.Second), time.Second)
	if limit == int64(q.rule.Limit) && window <= q.window {
		return
	}
	if q.rule.Limit == 0 && p == permitFirst {
		q.debt, q.debtAt = 1, now
	}
	q.rule, q.window, q.noFields = ServerRule(limit, window), window, false
	if q.state != unasked { // else the store is asked first: other processes may have seen more
		q.state = learned
	}
}
