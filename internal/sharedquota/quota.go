// Package sharedquota is one process's part of a quota that processes share by a
// quotastore.Store.
//
// The process takes an allocation of the quota in advance, and uses it without store calls. The
// allocation is twice the usage in the last callInterval, plus the length of the queue. After
// another callInterval the process returns what it has not used. So there is at most one store
// call in callInterval, and none without requests.
//
// If the store does not respond within storeTimeout, the process uses an equal share of the
// quota. When the store is back, the process reports its usage before it takes more.
//
// The rule is the fixed limit, or is learned from the server's headers and shared through the
// store. While the rule is unknown, the first request of a process is sent alone.
package sharedquota

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
	"github.com/resilienthttp/resilienthttp/quotastore"
)

// Quota is one shared quota. It is safe for concurrent use, and must not be copied.
type Quota struct {
	store  quotastore.Store
	origin time.Time
	key    string
	fixed  bool // the rule is the fixed limit

	mu sync.Mutex // guards the following fields
	waitqueue.Queue[Permit]
	rule   quotastore.Rule // Limit 0: unknown
	window time.Duration   // the server's window; that of the rule is a little longer
	state  ruleState

	tokens  int64     // remaining tokens of the allocation
	taken   time.Time // when the allocation was taken
	used    int64     // tokens used since review
	review  time.Time
	need    int64     // tokens used per callInterval before review
	called  time.Time // when the last store call began
	calling bool      // the last store call has not returned
	after   time.Time // the store has no tokens before
	inStore int64     // remaining tokens in the store at the last store call

	probed   time.Time // when a request was sent alone to learn the rule; zero: none in flight
	noFields bool      // the server does not advertise a quota

	responded  bool      // the store has responded or failed once
	down       bool      // the store does not respond in time
	share      float64   // requests that may be sent while the store is down
	shareAt    time.Time // when share was computed
	debt       int64     // requests in this window that the store does not know
	debtAt     time.Time // when the last of them was sent
	members    float64   // estimated number of processes
	nextCount  time.Time // when the processes are counted next; zero: the store has never responded
	blockUntil time.Time // the block to write for all processes; zero: none
}

const (
	// callInterval is the shortest time between two store calls.
	callInterval = 100 * time.Millisecond

	// storeTimeout is how long a request waits for a store call. firstTimeout is the same for the
	// first call of a process, which has to connect.
	storeTimeout, firstTimeout = 20 * time.Millisecond, 250 * time.Millisecond

	// probeTime is the longest time for which the other requests wait for the first one of a
	// process.
	probeTime = time.Second

	// callTimeout ends a store call. It is longer than storeTimeout, so that the results and
	// connections of a slow store are not lost.
	callTimeout = time.Second

	// retryInterval is the longest time until the next call of a store that had no tokens.
	retryInterval = time.Second

	// allocationTTL is how long an allocation may be used.
	allocationTTL = time.Second

	// maxSlack is the maximum by which the store's window is longer than the server's, because a
	// token is used a little later than it is taken.
	maxSlack = 200 * time.Millisecond

	// Each process writes a heartbeat in this interval. It counts for heartbeatTTL, so another
	// process is counted three or four times, and the own one four times.
	heartbeat, heartbeatTTL, heartbeats = 2 * time.Second, 7 * time.Second, 3.5

	// maxCountDelay is the maximum delay of a heartbeat while requests wait for tokens.
	maxCountDelay = 3 * callInterval
)

// Permit is the kind of permit that admitted a request.
type Permit uint8

const (
	permitNone  Permit = iota // the rule is unknown
	permitFirst               // the request is sent alone
	permitToken
	permitShare // the store is down
)

// New returns the process's part of a server's quota. key is its key in the store.
func New(store quotastore.Store, origin time.Time, key string) *Quota {
	q := &Quota{store: store, origin: origin, key: key, members: 1}
	q.Gate, q.Mu = q, &q.mu
	return q
}

// NewFixed returns the process's part of a scope's fixed limit.
func NewFixed(store quotastore.Store, origin time.Time, scope string, limit float64, burst int) *Quota {
	q := New(store, origin, "limit|"+scope)
	q.fixed, q.state, q.rule = true, agreed, FixedRule(limit, burst)
	q.window = q.rule.Window
	return q
}

func (q *Quota) steady(now time.Time) time.Time { return q.origin.Add(now.Sub(q.origin)) }

// Remaining returns the remaining tokens of the store and of this process. It returns false
// before the first allocation.
func (q *Quota) Remaining() (int64, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.inStore + q.tokens, !q.taken.IsZero()
}

// Take implements waitqueue.Gate.
func (q *Quota) Take(now time.Time) (Permit, bool) {
	now = q.steady(now)
	switch {
	case q.rule.Limit == 0:
		return q.takeWithoutRule(now)
	case q.tokens > 0 && now.Sub(q.taken) < q.ttl():
		q.tokens--
		q.used++
		return permitToken, true
	case q.down && !q.after.After(now):
		if q.fill(now); q.share >= 1 {
			q.share--
			q.debt, q.debtAt = q.debt+1, now
			q.used++
			return permitShare, true
		}
	}
	return permitNone, false
}

// takeWithoutRule takes a permit while the rule is unknown. A store that is down delays no
// request. A request without a response delays the next one by probeTime only.
func (q *Quota) takeWithoutRule(now time.Time) (Permit, bool) {
	switch {
	case q.noFields:
		return permitNone, true
	case q.state == unread && !q.down, now.Sub(q.probed) < probeTime:
		return permitNone, false
	}
	q.probed = now
	return permitFirst, true
}

func (q *Quota) ttl() time.Duration { return min(allocationTTL, q.rule.Window/2) }

// fill adds the requests that have become available since the last fill.
func (q *Quota) fill(now time.Time) {
	rate := q.rate()
	q.share = min(q.share+now.Sub(q.shareAt).Seconds()*rate, max(rate*callInterval.Seconds(), 1))
	q.shareAt = now
}

// rate returns this process's equal share, in requests per second.
func (q *Quota) rate() float64 {
	return float64(q.rule.Limit) / q.rule.Window.Seconds() / q.members
}

// Cancel returns an unused permit.
func (q *Quota) Cancel(p Permit, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.Return(p, now)
	q.Dispatch(q.steady(now))
}

// Return implements waitqueue.Gate.
func (q *Quota) Return(p Permit, _ time.Time) {
	switch p {
	case permitNone:
	case permitFirst:
		q.probed = time.Time{}
	case permitToken:
		q.tokens++
		q.used--
	case permitShare:
		q.share++
		q.debt--
		q.used--
	}
}

// Estimate implements waitqueue.Gate. The usage of other processes is unknown.
func (q *Quota) Estimate(now time.Time, ahead int64) (time.Time, bool) {
	now = q.steady(now)
	at := later(now, q.after)
	if beyond := ahead - q.tokens - q.inStore; q.rule.Limit > 0 && beyond > 0 {
		wait := float64(q.rule.Window) * float64(beyond) / float64(q.rule.Limit)
		at = at.Add(time.Duration(min(wait, float64(waitqueue.Horizon))))
	}
	return at, false
}

// Dispatch implements waitqueue.Gate. It begins a store call if one is due.
func (q *Quota) Dispatch(now time.Time) {
	now = q.steady(now)
	if q.calling && !q.down && now.Sub(q.called) >= q.timeout() {
		q.fail(now)
	}
	for q.Len() > 0 {
		p, ok := q.Take(now)
		if !ok {
			break
		}
		q.Grant(p)
	}
	q.WakeAt(q.next(now), now)
}

func (q *Quota) timeout() time.Duration {
	if q.responded {
		return storeTimeout
	}
	return firstTimeout
}

// fail switches to the equal share, because the store does not respond in time.
func (q *Quota) fail(now time.Time) {
	if q.responded = true; !q.down {
		q.down, q.share, q.shareAt = true, 1, now
	}
}

// next begins a store call if one is due. It returns when to call next again; zero means never.
func (q *Quota) next(now time.Time) (wake time.Time) {
	if !q.calling {
		prepare, at := q.nextCall(now)
		at = later(at, q.called.Add(callInterval))
		switch {
		case prepare != nil && !at.After(now):
			q.call(prepare(), now)
		case prepare != nil:
			wake = at
		case q.tokens > 0:
			wake = q.review.Add(callInterval)
		}
	}
	if q.calling && !q.down {
		wake = q.called.Add(q.timeout())
	}
	if q.Len() == 0 {
		return wake
	}
	if again := q.probed.Add(probeTime); again.After(now) {
		wake = sooner(wake, again)
	}
	if q.down && q.rule.Limit > 0 {
		q.fill(now)
		lacking := max(1-q.share, 0) / q.rate()
		at := now.Add(time.Duration(min(lacking, waitqueue.Horizon.Seconds())*float64(time.Second)) + 1)
		wake = sooner(wake, later(at, q.after))
	}
	return wake
}

// sooner returns the earlier of two times. A zero wake means none.
func sooner(wake, at time.Time) time.Time {
	if wake.IsZero() || at.Before(wake) {
		return at
	}
	return wake
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

var errPanic = errors.New("the store panicked")

// call makes a store call in a goroutine, which ends with it.
func (q *Quota) call(c storeCall, now time.Time) {
	q.calling, q.called = true, now
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		result, err := quotastore.Result{}, errPanic
		defer func() {
			_ = recover()
			q.mu.Lock()
			defer q.mu.Unlock()
			now := q.steady(time.Now())
			q.calling = false
			if err != nil || now.Sub(q.called) > q.timeout() {
				q.fail(now)
			} else {
				q.down = false
			}
			if err == nil {
				q.returned(&c, result, now)
			}
			q.Dispatch(now)
		}()
		result, err = c.do(ctx, q.store)
	}()
}

func (q *Quota) returned(c *storeCall, result quotastore.Result, now time.Time) {
	q.responded = true
	if q.nextCount.IsZero() {
		q.nextCount = now // so that the first heartbeat is not delayed
	}
	c.apply(result, now)
}
