package sharedquota

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/hold"
	"github.com/resilienthttp/resilienthttp/quotastore"
)

const (
	// callInterval is the shortest time between two store calls.
	callInterval = 100 * time.Millisecond

	// storeTimeout is how long a request waits for a store call. The first one has to connect.
	storeTimeout, firstTimeout = 20 * time.Millisecond, 250 * time.Millisecond
)

type callStatus struct {
	running        bool
	began, timeout time.Duration
}

// storeCall is one store call. apply is called with its result, under the lock.
type storeCall struct {
	do    func(ctx context.Context) (quotastore.Result, error)
	apply applyFunc
}

type applyFunc func(t quotastore.Result, now time.Duration)

// take is a Take of the quota's key, or of a key beside it.
func (q *Quota) take(beside string, want, least int64, r quotastore.Rule, apply applyFunc) *storeCall {
	return &storeCall{func(ctx context.Context) (quotastore.Result, error) {
		return q.store.Take(ctx, q.key+beside, int(want), int(least), r)
	}, apply}
}

func (q *Quota) writeBlock() *storeCall {
	until := q.block
	q.block = time.Time{} // a failed write is not repeated: this process obeys its own block
	return &storeCall{func(ctx context.Context) (quotastore.Result, error) {
		return quotastore.Result{}, q.store.Block(ctx, q.key, until)
	}, func(quotastore.Result, time.Duration) {}}
}

// proceed begins a store call if one is due. It returns when to call it again.
func (q *Quota) proceed(now time.Duration) (wake time.Duration) {
	if due := q.call.began + callInterval; !q.call.running && now < due {
		return due
	}
	if !q.call.running {
		if next := q.nextCall(now); next != nil {
			q.call.running, q.call.began = true, now
			go q.run(next)
		}
	}
	switch {
	// The end of a running call wakes the queue, and without requests there is nothing to do.
	case q.call.running && q.outage.down, !q.call.running && q.Len() == 0 && q.allocation.tokens == 0:
		return math.MaxInt64 // never
	case q.call.running:
		return q.call.began + q.call.timeout
	case q.after > now: // other processes may return tokens before
		return min(q.after, now+callInterval)
	}
	return now + callInterval
}

// nextCall returns the store call that is due, or nil. The first heartbeat follows the first allocation.
func (q *Quota) nextCall(now time.Duration) *storeCall {
	a := &q.allocation
	a.measure(now, q.rule.Window)
	want := a.lacks(q.Len())
	// Before the time that the store gave, other processes may return tokens.
	ready := now >= min(q.after, q.call.began+hold.Hanging)
	switch {
	case q.block.After(q.origin.Add(now)):
		return q.writeBlock()
	case q.outage.down && q.Len() == 0 && a.need == 0 && a.tokens >= 0:
		return nil // the next request makes a store call
	case q.stored < 0:
		return q.readRule()
	case q.rule.Limit == 0:
		return nil
	case a.tokens < 0:
		return q.report()
	case q.outage.down:
		return q.takeTokens(0) // the store may be back
	case q.stored != number(q.rule):
		return q.writeRule()
	case now >= q.members.next && q.after > 0:
		return q.countMembers()
	case want < 0, want > 0 && ready:
		return q.takeTokens(want)
	}
	return nil
}

func (q *Quota) run(c *storeCall) {
	ctx, cancel := context.WithTimeout(context.Background(), hold.Hanging) // not storeTimeout, so that a slow store's results and connections are not lost
	defer cancel()
	result, err := quotastore.Result{}, errors.New("the store panicked")
	defer func() {
		_ = recover() // the store is the program's code, and no caller is above this goroutine
		q.mu.Lock()
		defer q.mu.Unlock()
		t := time.Now()
		now := q.since(t)
		if q.call.running = false; err == nil {
			c.apply(result, now)
		}
		// A late result is used, but requests must not wait for a store that is so slow.
		if err != nil || now > q.call.began+q.call.timeout {
			q.fail(now)
		} else {
			q.outage.down, q.call.timeout = false, storeTimeout
		}
		q.Dispatch(t)
	}()
	result, err = c.do(ctx)
}
