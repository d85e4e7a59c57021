// Package sharedquota is one process's part of a quota that processes share by a quotastore.Store. Each of these
// sentences is one file:
//
//   - allocation.go: a process takes twice what it used in the last callInterval in advance, and returns the rest.
//   - outage.go: while the store does not respond in time, the process uses an equal share, and reports it before it
//     takes more. Heartbeats in the store show how many processes there are.
//   - rule.go: the rule is the fixed limit, or what the server shows. The store keeps it for processes that start.
//     While it is unknown, the first request of a process is sent alone.
//   - store.go: a process calls the store at most once in callInterval, and not without requests.
package sharedquota

import (
	"math"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/hold"
	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
	"github.com/resilienthttp/resilienthttp/quotastore"
)

// Quota is one shared quota. It is safe for concurrent use, and must not be copied.
type Quota struct {
	store quotastore.Store
	key   string

	mu sync.Mutex // guards the following fields
	waitqueue.Queue[Permit]
	rule   quotastore.Rule // Limit 0: unknown; not Sliding: the fixed limit
	stored int64           // number of the store's rule; 0: none; negative: not read
	origin time.Time       // zero point of the times
	timed
}

// timed is what a process forgets if its clock is set back. Times are since the origin.
type timed struct {
	latest     time.Duration
	first      first
	allocation allocation
	outage     outage
	members    members
	call       callStatus
	after      time.Duration // the store has no tokens before
	block      time.Time     // to write for all processes; zero: none
}

// Permit is the kind of permit that admitted a request.
type Permit uint8

const (
	permitNone  Permit = iota // the rule is unknown
	permitFirst               // the request is sent alone
	permitToken
)

// New returns the process's part of a server's quota. key is its key in the store.
func New(store quotastore.Store, key string) *Quota {
	q := &Quota{store: store, key: key, stored: -1}
	q.Gate, q.Mu = q, &q.mu
	return q
}

// NewFixed returns the process's part of a scope's fixed limit.
func NewFixed(store quotastore.Store, scope string, limit float64, burst int) *Quota {
	q := New(store, "limit|"+scope)
	q.Fixed, q.rule = true, FixedRule(limit, burst)
	q.stored = number(q.rule)
	return q
}

// since returns a time since the origin, which is long before the first time. If the clock was set back (a second
// synctest bubble), all times of before are wrong.
func (q *Quota) since(t time.Time) time.Duration {
	if q.latest == 0 || hold.WentBack(q.origin.Add(q.latest), t) {
		q.origin, q.timed = t.Add(-waitqueue.Horizon), timed{members: members{n: 1}, call: callStatus{timeout: firstTimeout}}
	}
	q.latest = t.Sub(q.origin)
	return q.latest
}

// Remaining returns the remaining tokens of the store and of this process. It is false before the first allocation.
func (q *Quota) Remaining() (int64, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return max(q.allocation.inStore+q.allocation.tokens, 0), q.allocation.at > 0
}

// Enter takes a permit. A call that must not wait for the quota waits for the store: nothing else begins a store call.
func (q *Quota) Enter(t time.Time, limits waitqueue.Limits) (Permit, bool, *waitqueue.Rejection) {
	if limits.MaxWait < 0 {
		limits.MaxWait = firstTimeout
	}
	return q.Queue.Enter(t, limits)
}

// Take implements waitqueue.Gate.
func (q *Quota) Take(t time.Time, _ int64) (Permit, bool) {
	now := q.since(t)
	switch {
	case q.rule.Limit == 0:
		return q.takeWithoutRule(now)
	case q.allocation.use(now, q.rule.Window), q.useShare(now):
		return permitToken, true
	}
	return permitNone, false
}

// Return implements waitqueue.Gate.
func (q *Quota) Return(p Permit, _ time.Time) {
	if p == permitFirst {
		q.first.sent = 0 // another one may be the first at once
	} else if p == permitToken {
		q.allocation.tokens++
	}
}

// Estimate implements waitqueue.Gate. The usage of other processes is unknown.
func (q *Quota) Estimate(t time.Time, ahead waitqueue.Load, _ int64) (at time.Time, blocked bool) {
	now := q.since(t)
	wait := max(q.after-now, 0)
	// What this process has and what the store had are used first; the rest comes at the rule's rate.
	if beyond := ahead.Calls - q.allocation.tokens - q.allocation.inStore; beyond > 0 && q.rule.Limit > 0 {
		wait += q.interval(float64(beyond))
	}
	return t.Add(wait), false
}

// interval returns the time in which so many tokens are added, at most the Horizon.
func (q *Quota) interval(tokens float64) time.Duration {
	return time.Duration(min(float64(q.rule.Window)/float64(q.rule.Limit)*tokens, float64(waitqueue.Horizon)))
}

// Dispatch implements waitqueue.Gate. It begins a store call if one is due.
func (q *Quota) Dispatch(t time.Time) {
	now := q.since(t)
	if q.call.running && now >= q.call.began+q.call.timeout {
		q.fail(now) // before the grants, which may then use the share
	}
	q.GrantAll(t)
	wake := q.proceed(now)
	// The first request may hang: then another one is sent to learn the rule.
	if again := q.first.sent + hold.Hanging; q.Len() > 0 && again > now {
		wake = min(wake, again)
	}
	if q.Len() > 0 && q.outage.down && q.rule.Limit > 0 { // their share grows with time, whatever the store does
		wake = min(wake, max(q.after, q.outage.next))
	}
	if wake == math.MaxInt64 { // never
		q.WakeAt(time.Time{}, t)
	} else {
		q.WakeAt(q.origin.Add(wake), t)
	}
}
