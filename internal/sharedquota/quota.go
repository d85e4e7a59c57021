// Package sharedquota is one process's part of a quota that many processes share by a
// quotastore.Store.
//
// The process takes an allocation of the quota ahead, and uses it without asking the store:
// twice what it used in the last callInterval, and what its queue needs. After another
// callInterval it gives back what it has not used. So there is at most one store call in
// callInterval, and none without requests.
//
// If the store does not answer within storeTimeout, the process uses an equal share of the
// quota, and reports its usage when the store is back, before it takes any more.
//
// The rule is the fixed limit, or is learned from the server's headers and shared through
// the store. While the rule is unknown, the first request of a process goes alone.
package sharedquota

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
	"github.com/resilienthttp/resilienthttp/quotastore"
)

// Quota is one quota that is shared. It is safe for concurrent use, and must not be copied.
type Quota struct {
	store  quotastore.Store
	origin time.Time
	key    string
	static bool // the rule is the fixed limit

	mu sync.Mutex // guards what follows
	waitqueue.Queue[Permit]
	rule   quotastore.Rule // Limit 0: unknown
	window time.Duration   // the server's; the rule's is a little longer
	state  ruleState

	tokens  int64     // left of the allocation
	taken   time.Time // when it was taken
	used    int64     // since review
	review  time.Time
	need    int64     // in callInterval, before that
	called  time.Time // when the last store call began
	calling bool      // it has not returned
	after   time.Time // the store has nothing before
	inStore int64     // what other processes can take too, by the last store call

	probed   time.Time // when a request was sent alone, to learn the rule; zero: none is in flight
	noFields bool      // the server has shown no rule

	answered   bool      // the store has answered or failed once
	down       bool      // it does not answer in time
	share      float64   // requests that may be sent meanwhile
	shareAt    time.Time // when there were so many
	debt       int64     // requests sent without the store's knowledge, in this window
	debtAt     time.Time // when the last of them was
	members    float64   // how many processes there are, by the last count
	nextCount  time.Time // when they are counted next; zero: the store has never answered
	blockUntil time.Time // to be written for all processes; zero: nothing
}

const (
	// callInterval is the shortest time between two store calls.
	callInterval = 100 * time.Millisecond

	// storeTimeout is how long a request waits for a store call, and firstTimeout for the
	// first one of a process, which has to connect.
	storeTimeout, firstTimeout = 20 * time.Millisecond, 250 * time.Millisecond

	// probeTime is how long the first request of a process goes alone, at most.
	probeTime = time.Second

	// callTimeout ends a store call. It is longer than a request waits, so that a slow
	// store's results are not lost, nor its connections.
	callTimeout = time.Second

	// retryInterval is the longest time until a store that had nothing is asked again.
	retryInterval = time.Second

	// allocationTTL is how long an allocation is kept that could not be given back.
	allocationTTL = time.Second

	// maxSlack bounds how much longer the store's window is than the server's. A token that
	// was taken a little earlier is used a little later.
	maxSlack = 200 * time.Millisecond

	// Each process writes a heartbeat in this interval, which counts for heartbeatTTL: the
	// other processes count three or four times, the own one four.
	heartbeat, heartbeatTTL, heartbeats = 2 * time.Second, 7 * time.Second, 3.5

	// maxCountDelay is how late a heartbeat may be while requests wait for tokens.
	maxCountDelay = 3 * callInterval
)

// Permit is what a request was admitted by.
type Permit uint8

const (
	permitNone  Permit = iota // the rule is unknown
	permitFirst               // the request goes alone
	permitToken
	permitShare // the store is down
)

// New returns the part of a server's quota, with the key in the store.
func New(store quotastore.Store, origin time.Time, key string) *Quota {
	q := &Quota{store: store, origin: origin, key: key, members: 1}
	q.Gate, q.Mu = q, &q.mu
	return q
}

// NewStatic returns the part of a scope's fixed limit.
func NewStatic(store quotastore.Store, origin time.Time, scope string, limit float64, burst int) *Quota {
	q := New(store, origin, "limit|"+scope)
	q.static, q.state, q.rule = true, agreed, StaticRule(limit, burst)
	q.window = q.rule.Window
	return q
}

func (q *Quota) steady(now time.Time) time.Time { return q.origin.Add(now.Sub(q.origin)) }

// Remaining is what the other processes have left, and this one's allocation. It returns
// false before the first one.
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

// takeWithoutRule takes a permit while the rule is unknown. A store that does not answer
// holds no request up, and a request whose response does not come holds up the next for
// probeTime alone.
func (q *Quota) takeWithoutRule(now time.Time) (Permit, bool) {
	switch {
	case q.noFields:
		return permitNone, true
	case q.state == unasked && !q.down, now.Sub(q.probed) < probeTime:
		return permitNone, false
	}
	q.probed = now
	return permitFirst, true
}

// ttl is how long an allocation may be used.
func (q *Quota) ttl() time.Duration { return min(allocationTTL, q.rule.Window/2) }

// fill adds to the share what has come since.
func (q *Quota) fill(now time.Time) {
	rate := q.rate()
	q.share = min(q.share+now.Sub(q.shareAt).Seconds()*rate, max(rate*callInterval.Seconds(), 1))
	q.shareAt = now
}

// rate is this process's equal share, in requests per second.
func (q *Quota) rate() float64 {
	return float64(q.rule.Limit) / q.rule.Window.Seconds() / q.members
}

// Cancel returns a permit that was not used.
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

// Estimate implements waitqueue.Gate. What other processes take is unknown.
func (q *Quota) Estimate(now time.Time, ahead int64) (time.Time, bool) {
	now = q.steady(now)
	at := later(now, q.after)
	if beyond := ahead - q.tokens - q.inStore; q.rule.Limit > 0 && beyond > 0 {
		wait := float64(q.rule.Window) * float64(beyond) / float64(q.rule.Limit)
		at = at.Add(time.Duration(min(wait, float64(waitqueue.Horizon))))
	}
	return at, false
}

// Dispatch implements waitqueue.Gate. It begins a store call if there is a reason and the
// time has come.
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
	if q.answered {
		return storeTimeout
	}
	return firstTimeout
}

// fail is called if the store does not answer in time: from now on the share counts.
func (q *Quota) fail(now time.Time) {
	if q.answered = true; !q.down {
		q.down, q.share, q.shareAt = true, 1, now
	}
}

// next begins a store call if it is time, and returns when to look again; zero: never.
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

// sooner is the earlier of two times; a zero wake is none.
func sooner(wake, at time.Time) time.Time {
	if wake.IsZero() || at.Before(wake) {
		return at
	}
	return wake
}

// later is the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

var errPanic = errors.New("the store panicked")

// call makes a store call. A goroutine waits for it, and exits with it.
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

// returned is called when a store call has a result.
func (q *Quota) returned(c *storeCall, result quotastore.Result, now time.Time) {
	q.answered = true
	if q.nextCount.IsZero() {
		q.nextCount = now // soon, even if requests always wait
	}
	c.apply(result, now)
}
