package sharedquota

import (
	"time"

	"github.com/resilienthttp/resilienthttp/quotastore"
)

// outage is what a process does without the store. internal/hold does not fit: the share is used, and no call waits.
type outage struct {
	down bool
	next time.Duration // when the share suffices for the next request
}

// fail begins an outage, because the store does not respond in time.
func (q *Quota) fail(now time.Duration) {
	if q.call.timeout = storeTimeout; !q.outage.down {
		q.outage = outage{true, now}
	}
}

// useShare uses the share for a request, which is a debt. Unused share counts for callInterval.
func (q *Quota) useShare(now time.Duration) bool {
	if !q.outage.down || now < max(q.after, q.outage.next) {
		return false
	}
	// A pause saves up no share: a burst of it could exceed the quota together with those of the others.
	q.outage.next = max(q.outage.next, now-callInterval) + q.interval(q.members.n)
	q.allocation.owe(now)
	return true
}

// report counts the debt, also above the limit. Otherwise other processes would take the quota first.
func (q *Quota) report() *storeCall {
	above := q.rule
	if above.Burst += maxShared; above.Sliding {
		above.Limit += maxShared
	}
	return q.take("", -q.allocation.tokens, 1, above, func(t quotastore.Result, _ time.Duration) {
		q.allocation.tokens += int64(t.Allowed)
	})
}

// Each process writes a heartbeat in this interval. It counts for heartbeatTTL, so another process is counted three or
// four times, and the own one four times.
const heartbeat, heartbeatTTL = 2 * time.Second, 7 * time.Second

type members struct {
	n    float64       // an estimate
	next time.Duration // when the next heartbeat is due
}

// countMembers writes a heartbeat, and counts those of all processes.
func (q *Quota) countMembers() *storeCall {
	rule := quotastore.Rule{Limit: maxShared, Window: heartbeatTTL, Sliding: true}
	return q.take("|holders", 1, 0, rule, func(t quotastore.Result, now time.Duration) {
		found := (float64(maxShared-t.Remaining) - 0.5) * float64(heartbeat) / float64(heartbeatTTL)
		q.members = members{max(found, 1), now + heartbeat}
	})
}
