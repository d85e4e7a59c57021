package sharedquota

import (
	"context"
	"math"
	"time"

	"github.com/resilienthttp/resilienthttp/quotastore"
)

// storeCall is the arguments of one store call: a Take, or a Block if until is set.
type storeCall struct {
	key       string
	want, min int
	rule      quotastore.Rule
	until     time.Time
	apply     func(t quotastore.Result, now time.Time) // called with the result, under the lock
}

func (c *storeCall) do(ctx context.Context, store quotastore.Store) (quotastore.Result, error) {
	if c.until.IsZero() {
		return store.Take(ctx, c.key, c.want, c.min, c.rule)
	}
	return quotastore.Result{}, store.Block(ctx, c.key, c.until)
}

// nextCall returns a function for the next store call, or nil, and when the call is due. The
// function must be called under the lock.
func (q *Quota) nextCall(now time.Time) (prepare func() storeCall, at time.Time) {
	q.measure(now)
	want := q.wants()
	take := func() storeCall { return q.takeTokens(want) }
	switch {
	case q.blockUntil.After(now):
		return q.block, now
	case q.down && q.idle():
		return nil, now // the next request makes a store call
	case q.state == unread:
		return q.readRule, now
	case q.rule.Limit == 0:
		return nil, now
	case q.debt > 0 && q.rule.Sliding:
		return q.report, now
	case q.debt > 0:
		return q.report, q.ready()
	case q.down && q.Len() > 0:
		return take, now // the store may be back
	case q.state == differs:
		return q.clearRule, now
	case q.state == learned:
		return q.writeRule, now
	case q.mustCount(now):
		return q.countMembers, now
	case want > 0:
		return take, q.ready()
	case want < 0:
		return take, now
	}
	return nil, now
}

func (q *Quota) idle() bool { return q.Len() == 0 && q.used == 0 && q.need == 0 && q.debt == 0 }

// ready returns when to call the store for more tokens. Other processes may return tokens before
// the time that the store gave.
func (q *Quota) ready() time.Time {
	at := q.after
	if again := q.called.Add(retryInterval); at.After(again) {
		at = again
	}
	if late := q.nextCount.Add(maxCountDelay); !q.nextCount.IsZero() && at.After(late) {
		at = late
	}
	return at
}

// mustCount reports whether a heartbeat is due. While requests wait for tokens it is delayed,
// because its store call would delay theirs.
func (q *Quota) mustCount(now time.Time) bool {
	return !q.nextCount.IsZero() && !q.nextCount.After(now) && (q.Len() == 0 || now.Sub(q.nextCount) >= maxCountDelay)
}

// measure updates the usage. It drops tokens that have left the store's window: returning them
// would reduce the quota of other processes.
func (q *Quota) measure(now time.Time) {
	if elapsed := now.Sub(q.review); elapsed >= callInterval {
		q.need = int64(math.Ceil(float64(q.used) * float64(callInterval) / float64(elapsed)))
		q.used, q.review = 0, now
	}
	if q.tokens > 0 && now.Sub(q.taken) >= q.ttl() {
		q.tokens = 0
	}
	if q.debt > 0 && now.Sub(q.debtAt) >= q.window {
		q.debt = 0
	}
}

// wants returns how many tokens the allocation lacks, or a negative number if it has too many. A
// process with few requests takes none in advance.
func (q *Quota) wants() int64 {
	target := q.Len()
	if q.need > 0 {
		target += 2 * max(q.need, q.used)
	}
	if q.rule.Limit > 0 {
		target = min(target, int64(float64(q.rule.Capacity())/q.members)+1)
	}
	switch {
	case q.down, q.Len() == 0 && q.tokens >= q.need && q.tokens <= 2*target:
		return 0
	case q.tokens > 2*target:
		return target - q.tokens
	}
	return max(target-q.tokens, 0)
}

// takeTokens takes tokens from the store, or returns some.
func (q *Quota) takeTokens(want int64) storeCall {
	if want < 0 {
		q.tokens += want // they must not be used during the store call
	}
	c := storeCall{key: q.key, want: int(want), min: int(min(max(want, 0), 1)), rule: q.rule}
	c.apply = func(t quotastore.Result, now time.Time) {
		if want > 0 {
			q.after = now.Add(t.RetryAfter)
		}
		if t.Allowed > 0 {
			q.tokens += int64(t.Allowed)
			q.taken = now
		}
		q.inStore = int64(t.Remaining)
	}
	return c
}

// report counts the requests that the store does not know. For a window it uses a rule with a
// higher limit, so that they count although the limit is exceeded. Otherwise other processes
// would take the quota first. For a bucket, the requests above its capacity must wait.
func (q *Quota) report() storeCall {
	debt, sliding := q.debt, q.rule.Sliding
	inWindow := min(debt, int64(float64(q.rule.Limit)/q.members)+2) // the maximum in one window
	c := storeCall{key: q.key, want: int(inWindow), min: 1, rule: q.rule}
	if sliding {
		c.rule.Limit += maxShared
	}
	c.apply = func(t quotastore.Result, now time.Time) {
		if !sliding {
			q.after = now.Add(t.RetryAfter)
		}
		if int64(t.Allowed) == inWindow {
			t.Allowed = int(debt)
		}
		q.debt -= min(int64(t.Allowed), q.debt)
	}
	return c
}

func (q *Quota) block() storeCall {
	until := q.blockUntil
	return storeCall{key: q.key, until: until, apply: func(quotastore.Result, time.Time) {
		q.after = until
		if q.blockUntil.Equal(until) {
			q.blockUntil = time.Time{}
		}
	}}
}

// countMembers writes a heartbeat, and estimates the number of processes from the number of
// heartbeats.
func (q *Quota) countMembers() storeCall {
	const maxHeartbeats = 1 << 20
	rule := quotastore.Rule{Limit: maxHeartbeats, Window: heartbeatTTL, Sliding: true}
	return storeCall{key: q.key + "|holders", want: 1, rule: rule, apply: func(t quotastore.Result, now time.Time) {
		found := (float64(maxHeartbeats-t.Remaining) - 0.5) / heartbeats
		q.members = max((q.members+found)/2, found*(1-1/heartbeats), 1)
		if q.nextCount = q.nextCount.Add(heartbeat); q.nextCount.Before(now) {
			q.nextCount = now.Add(heartbeat)
		}
	}}
}
