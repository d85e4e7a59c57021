package sharedquota

import (
	"math"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/hold"
	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
	"github.com/resilienthttp/resilienthttp/quotastore"
)

// FixedRule returns the token bucket of the fixed limit. Its burst is reduced by the tokens that processes may hold. What
// is left must last for some store calls, so a burst of less than half a second is raised.
func FixedRule(limit float64, burst int) quotastore.Rule {
	const longest, most = 366 * 24 * time.Hour, math.MaxInt32 - maxShared
	limit = min(limit, most)
	burst = max(min(burst, most), int(math.Ceil(limit/2)))
	window := time.Duration(min(float64(burst)/limit*float64(time.Second)+1, float64(longest)))
	held := int(limit * 2 * callInterval.Seconds())
	return quotastore.Rule{Limit: burst, Window: window, Burst: burst - held}
}

// serverRule returns the rule for a server's quota of any kind: at most the limit in each window. The window is whole
// seconds and a slack, because a token is used a little later than it is taken.
func serverRule(limit int64, window time.Duration) quotastore.Rule {
	return quotastore.Rule{Limit: int(limit), Window: window + min(window/64, 2*callInterval), Sliding: true}
}

// The store keeps one number for a key: the tokens that were taken. So a rule is stored as this
// number of a separate key: the limit, followed by windowBits with the window in seconds.
const (
	windowBits = 17
	maxShared  = 1<<22 - 1 // maximum of a limit
)

func number(r quotastore.Rule) int64 { return int64(r.Limit)<<windowBits | int64(r.Window/time.Second) }

// takeRule is a Take of the rule's key.
func (q *Quota) takeRule(want, least, limit int64, apply applyFunc) *storeCall {
	return q.take("|rule", want, least, quotastore.Rule{Limit: int(limit), Window: waitqueue.Horizon, Sliding: true}, apply)
}

// readRule reads the rule of other processes. Their limit may be old, but a longer window has been seen.
func (q *Quota) readRule() *storeCall {
	most := min(int64(maxShared+1)<<windowBits, math.MaxInt)
	return q.takeRule(0, 0, most, func(t quotastore.Result, _ time.Duration) {
		q.stored = most - int64(t.Remaining) // a Take of nothing shows what was taken: the number itself
		limit, window := q.stored>>windowBits, time.Duration(q.stored&(1<<windowBits-1))*time.Second
		if q.rule.Limit > 0 {
			limit = int64(q.rule.Limit)
		}
		if limit > 0 && window > q.rule.Window {
			q.rule = serverRule(limit, window)
		}
	})
}

// writeRule writes the rule to the store. An older one is deleted first.
func (q *Quota) writeRule() *storeCall {
	if q.stored != 0 {
		return q.takeRule(math.MinInt, 0, 1, func(quotastore.Result, time.Duration) { q.stored = 0 })
	}
	n := number(q.rule)
	return q.takeRule(n, n, n, func(quotastore.Result, time.Duration) { q.stored = n })
}

// first is the request that is sent alone to learn the rule.
type first struct {
	sent    time.Duration // 0: none is in flight
	nothing bool          // a response has shown no quota
}

// takeWithoutRule takes a permit while the rule is unknown. A store that is down delays no request.
func (q *Quota) takeWithoutRule(now time.Duration) (Permit, bool) {
	switch {
	case q.first.nothing:
		return permitNone, true
	case q.stored < 0 && !q.outage.down, now-q.first.sent < hold.Hanging:
		return permitNone, false
	}
	q.first.sent = now
	return permitFirst, true
}

// Observation is what a response shows about a shared quota.
type Observation struct {
	Served       bool
	Limit        int64 // 0: the response has no quota
	Window       time.Duration
	BlockedUntil time.Time // the quota is exhausted until then; zero: it is not exhausted
}

// Observe learns from the response to a request with the permit.
func (q *Quota) Observe(o Observation, p Permit, t time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.since(t)
	if p == permitFirst {
		q.first = first{nothing: o.Served && o.Limit == 0}
	}
	// The rule must fit into its number in the store.
	limit, window := min(o.Limit, maxShared, math.MaxInt>>windowBits), min(max(o.Window.Round(time.Second), time.Second), waitqueue.Horizon)
	if fixed := q.rule.Burst > 0; !fixed && limit > 0 && (limit != int64(q.rule.Limit) || window > q.rule.Window) {
		// The first request had no token, but the server has counted it.
		if p == permitFirst {
			q.allocation.owe(now)
		}
		q.rule = serverRule(limit, window)
	}
	if until := min(o.BlockedUntil.Sub(q.origin), now+waitqueue.Horizon); until > max(now, q.after) {
		q.block, q.after = o.BlockedUntil, until
	}
	q.Dispatch(t)
}
