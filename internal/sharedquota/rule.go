package sharedquota

import (
	"math"
	"time"

	"github.com/resilienthttp/resilienthttp/quotastore"
)

// FixedRule returns the token bucket of the fixed limit. Its burst is reduced by the tokens that
// processes may hold.
func FixedRule(limit float64, burst int) quotastore.Rule {
	const longest = 366 * 24 * time.Hour
	window := time.Duration(min(float64(burst)/limit*float64(time.Second)+1, float64(longest)))
	held := int(min(limit*2*callInterval.Seconds(), float64(burst-1)))
	return quotastore.Rule{Limit: burst, Window: window, Burst: burst - held}
}

// ServerRule returns the rule for a server's quota of any kind. At most the limit in each window
// is correct for fixed windows, sliding windows and token buckets. The window is longer by a
// slack, because a token may be used a little later than it is taken.
func ServerRule(limit int64, window time.Duration) quotastore.Rule {
	return quotastore.Rule{Limit: int(limit), Window: window + min(window/64, maxSlack), Sliding: true}
}

// ruleState is the state of the agreement between the processes on the rule.
type ruleState uint8

const (
	unread  ruleState = iota // the store's rule was not read
	unknown                  // the store has no rule
	learned                  // the server has shown the rule, and the store does not have it
	differs                  // the store has an older rule
	agreed                   // the store has the same rule
)

// The store keeps one number for a key: the tokens that were taken. So a rule is stored as this
// number of a separate key: the limit, followed by windowBits with the window in seconds.
const (
	windowBits = 17
	maxShared  = 1<<22 - 1 // maximum of a limit
	ruleTTL    = 24 * time.Hour
)

func ruleNumber(limit int64, window time.Duration) int64 {
	return limit<<windowBits | int64(math.Ceil(window.Seconds()))
}

// ruleCall is a Take of the rule's key.
func (q *Quota) ruleCall(want, min, limit int, apply func(t quotastore.Result, now time.Time)) storeCall {
	rule := quotastore.Rule{Limit: limit, Window: ruleTTL, Sliding: true}
	return storeCall{key: q.key + "|rule", want: want, min: min, rule: rule, apply: apply}
}

// readRule reads the rule that another process has learned.
func (q *Quota) readRule() storeCall {
	most := int(min(int64(maxShared+1)<<windowBits, math.MaxInt))
	return q.ruleCall(0, 0, most, func(t quotastore.Result, _ time.Time) { q.compare(int64(most - t.Remaining)) })
}

// clearRule deletes the store's rule, so that a newer one can be written.
func (q *Quota) clearRule() storeCall {
	return q.ruleCall(math.MinInt, 0, 1, func(quotastore.Result, time.Time) { q.state = learned })
}

// writeRule writes the rule to the store, unless the store has one.
func (q *Quota) writeRule() storeCall {
	number := int(ruleNumber(int64(q.rule.Limit), q.window))
	return q.ruleCall(number, number, number, func(t quotastore.Result, _ time.Time) {
		if q.state = agreed; !t.OK {
			q.state = unread // the store has a rule already
		}
	})
}

// compare compares the rule with the store's number; 0 means that the store has none.
func (q *Quota) compare(number int64) {
	limit, window := number>>windowBits, time.Duration(number&(1<<windowBits-1))*time.Second
	switch {
	case q.state != unread: // a response has shown the rule in the meantime
	case q.rule.Limit == 0 && (limit <= 0 || window <= 0):
		q.state = unknown
	case q.rule.Limit == 0:
		q.rule, q.window, q.state = ServerRule(limit, window), window, agreed
	case number == 0:
		q.state = learned
	default:
		if window > q.window { // other processes have observed a longer window
			q.rule, q.window = ServerRule(int64(q.rule.Limit), window), window
		}
		if q.state = differs; number == ruleNumber(int64(q.rule.Limit), q.window) {
			q.state = agreed
		}
	}
}

// Observation is the content of a response about a shared quota.
type Observation struct {
	Responded    bool
	Limit        int64 // 0: the response has no quota
	Window       time.Duration
	WindowKnown  bool      // the server says the window
	BlockedUntil time.Time // the quota is exhausted until then; zero: it is not exhausted
}

// Observe learns from the response to a request with the permit.
func (q *Quota) Observe(o Observation, p Permit, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now = q.steady(now)
	if p == permitFirst {
		q.probed = time.Time{}
	}
	switch {
	case o.Limit > 0 && !q.fixed:
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

func (q *Quota) learn(o Observation, p Permit, now time.Time) {
	limit, window := min(o.Limit, maxShared, math.MaxInt>>windowBits), max(o.Window.Round(time.Second), time.Second)
	if limit == int64(q.rule.Limit) && window <= q.window {
		return
	}
	if q.rule.Limit == 0 && p == permitFirst {
		q.debt, q.debtAt = 1, now
	}
	q.rule, q.window, q.noFields = ServerRule(limit, window), window, false
	if q.state != unread { // otherwise the store's rule is read first: it may have a longer window
		q.state = learned
	}
}
