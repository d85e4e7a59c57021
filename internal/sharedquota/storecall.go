package sharedquota

import (
	"context"
	"math"
	"time"

	"github.com/resilienthttp/resilienthttp/quotastore"
)

// operation prepares a store call, under the quota's lock.
type operation func() storeCall

// storeCall has all that it needs. It returns what to do with the answer, under the lock.
type storeCall func(context.Context, quotastore.Store) (apply func(now time.Time), err error)

// operation is the next store call, and when it is due; nil: none.
func (q *Quota) operation(now time.Time) (op operation, at time.Time) {
	q.measure(now)
	want := q.wants()
	switch {
	case q.blockUntil.After(now):
		return q.block, now
	case q.down && q.idle():
		return nil, now // the next request will see
	case q.state == unasked:
		return q.readRule, now
	case q.rule.Limit == 0:
		return nil, now
	case q.debt > 0 && q.rule.Sliding:
		return q.report, now
	case q.debt > 0:
		return q.report, q.ready()
	case q.down && q.Len() > 0:
		return q.order(0), now // is it back?
	case q.state == differs:
		return q.clearRule, now
	case q.state == learned:
		return q.writeRule, now
	case q.excess && q.serverLeft < q.inStore && now.Before(q.reset):
		return q.correct, now
	case q.removed > 0 && !q.restoreAt.After(now):
		return q.restore, now
	case q.mustCount(now):
		return q.countMembers, now
	case want > 0:
		return q.order(want), q.ready()
	case want < 0:
		return q.order(want), now
	case q.removed > 0:
		return q.restore, q.restoreAt
	}
	return nil, now
}

// idle reports whether there are no requests, and nothing to report.
func (q *Quota) idle() bool { return q.Len() == 0 && q.used == 0 && q.need == 0 && q.debt == 0 }

// ready is when to ask for more, or to count. What other processes give back comes earlier
// than the store can know.
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

// measure updates what was used, and forgets what has left the store's window: it would be
// given back at the cost of others.
func (q *Quota) measure(now time.Time) {
	if elapsed := now.Sub(q.review); elapsed >= callInterval {
		q.need = int64(math.Ceil(float64(q.used) * float64(callInterval) / float64(elapsed)))
		q.used, q.review = 0, now
	}
	if q.tokens > 0 && now.Sub(q.taken) >= q.ttl() {
		q.tokens = 0
	}
	if q.removed > 0 && now.Sub(q.removedAt) >= q.window {
		q.removed = 0
	}
	if q.debt > 0 && now.Sub(q.debtAt) >= q.window {
		q.debt = 0
	}
}

// wants is how many tokens the allocation lacks, or has too many of. A process with few
// requests takes none ahead.
func (q *Quota) wants() int64 {
	target := q.Len()
	if q.need > 0 {
		target += 2 * max(q.need, q.used)
	}
	if q.rule.Limit > 0 {
		target = min(target, int64(float64(q.rule.Most())/q.members)+1)
	}
	switch {
	case q.down, q.Len() == 0 && q.tokens >= q.need && q.tokens <= 2*target:
		return 0
	case q.tokens > 2*target:
		return target - q.tokens
	}
	return max(target-q.tokens, 0)
}

// order takes a part of the quota, or gives some back.
func (q *Quota) order(want int64) operation {
	return func() storeCall { return q.takeFromStore(want) }
}

func (q *Quota) takeFromStore(want int64) storeCall {
	if want < 0 {
		q.tokens += want // they must not be used while they are given back
	}
	key, rule := q.key, q.rule
	return func(ctx context.Context, store quotastore.Store) (func(time.Time), error) {
		t, err := store.Take(ctx, key, int(want), int(min(max(want, 0), 1)), rule)
		return func(now time.Time) {
			if want > 0 {
				q.after = now.Add(t.RetryAfter)
			}
			if t.Taken > 0 {
				q.tokens += int64(t.Taken)
				q.taken = now
			}
			if q.state == agreed && !q.static && !q.told && t.RetryAfter > 2*callInterval {
				q.state = unasked // there is time to see whether others know of a longer window
			}
			q.inStore = int64(t.Remaining)
			// The server's count is older than the store's. Without others, and in less than
			// the slack, the store's is never more: see ServerRule.
			q.excess = q.inStore > q.serverLeft && now.Sub(q.serverAt) < q.slack()
		}, err
	}
}

// report counts all that was sent without the store's knowledge. In a window it does so
// above the limit too, by a rule that has so much more: else other processes would first
// take what becomes free. A bucket holds no more than it holds: the rest waits.
func (q *Quota) report() storeCall {
	key, rule, debt := q.key, q.rule, q.debt
	window := min(debt, int64(float64(rule.Limit)/q.members)+2) // more it cannot have been in one
	if rule.Sliding {
		rule.Limit += maxShared
	}
	return func(ctx context.Context, store quotastore.Store) (func(time.Time), error) {
		t, err := store.Take(ctx, key, int(window), 1, rule)
		return func(now time.Time) {
			if !rule.Sliding {
				q.after = now.Add(t.RetryAfter)
			}
			if int64(t.Taken) == window {
				t.Taken = int(debt)
			}
			q.debt -= min(int64(t.Taken), q.debt)
		}, err
	}
}

// correct removes from the store what the server does not have. It is a Take by a rule that
// has so much less, so that several processes may do it at once.
func (q *Quota) correct() storeCall {
	q.excess = false
	key, rule, until := q.key, q.rule, q.reset
	most := rule.Most()
	if rule.Sliding {
		rule.Limit -= int(q.serverLeft)
	} else {
		rule.Burst -= int(q.serverLeft)
	}
	return func(ctx context.Context, store quotastore.Store) (func(time.Time), error) {
		t, err := store.Take(ctx, key, most, 0, rule)
		return func(now time.Time) {
			if rule.Sliding && t.Taken > 0 {
				q.removedAt = now
				q.removed, q.restoreAt = q.removed+int64(t.Taken), until
			}
		}, err
	}
}

// restore gives back what correct removed, when the server has it again. (A bucket fills by
// itself.)
func (q *Quota) restore() storeCall {
	key, rule, removed := q.key, q.rule, q.removed
	return func(ctx context.Context, store quotastore.Store) (func(time.Time), error) {
		_, err := store.Take(ctx, key, -int(removed), 0, rule)
		return func(time.Time) { q.removed -= min(removed, q.removed) }, err
	}
}

// block blocks the quota for all processes.
func (q *Quota) block() storeCall {
	key, until := q.key, q.blockUntil
	return func(ctx context.Context, store quotastore.Store) (func(time.Time), error) {
		return func(time.Time) {
			q.after = until
			if q.blockUntil.Equal(until) {
				q.blockUntil = time.Time{}
			}
		}, store.Close(ctx, key, until)
	}
}

// membersRule counts each process as often as it has written a heartbeat.
func membersRule() quotastore.Rule {
	return quotastore.Rule{Limit: 1 << 20, Window: heartbeatTTL, Sliding: true}
}

// mustCount reports whether the heartbeat is due: not while requests wait for tokens, but
// then a little later.
func (q *Quota) mustCount(now time.Time) bool {
	return !q.nextCount.After(now) && (q.Len() == 0 || !q.nextCount.IsZero() && now.Sub(q.nextCount) >= maxCountDelay)
}

func (q *Quota) countMembers() storeCall {
	key, rule := q.key+"|holders", membersRule()
	return func(ctx context.Context, store quotastore.Store) (func(time.Time), error) {
		t, err := store.Take(ctx, key, 1, 0, rule)
		return func(now time.Time) {
			found := (float64(rule.Limit-t.Remaining) - 0.5) / heartbeats
			q.members = max((q.members+found)/2, found*(1-1/heartbeats), 1)
			if q.nextCount = q.nextCount.Add(heartbeat); q.nextCount.Before(now) {
				q.nextCount = now.Add(heartbeat)
			}
		}, err
	}
}
