package quota

import (
	"context"
	"math"
	"time"

	"github.com/resilienthttp/resilienthttp/quotastore"
)

// errand is what a trip to the store is for. It is called when that begins, under the
// lease's lock.
type errand func() trip

// trip knows all that it needs, and gives back what is to be done with the answer, under
// the lease's lock.
type trip func(context.Context, quotastore.Store) (answer func(now time.Time), err error)

// errand is what the store is to be asked or told next, and when; nil: nothing.
func (p *lease) errand(now time.Time) (do errand, at time.Time) {
	p.measure(now)
	want := p.wants()
	switch {
	case p.shut.After(now):
		return p.close, now
	case p.down && p.idle():
		return nil, now // whoever comes next will see
	case p.from == unasked:
		return p.readRule, now
	case p.rule.Limit == 0:
		return nil, now
	case p.owed > 0 && p.rule.Sliding:
		return p.report, now
	case p.owed > 0:
		return p.report, p.ready()
	case p.down && p.len() > 0:
		return p.order(0), now // is it back?
	case p.from == differs:
		return p.clearRule, now
	case p.from == learned:
		return p.writeRule, now
	case p.excess && p.said < p.remains && now.Before(p.whole):
		return p.correct, now
	case p.taken > 0 && !p.restored.After(now):
		return p.restore, now
	case p.uncounted(now):
		return p.countHolders, now
	case want > 0:
		return p.order(want), p.ready()
	case want < 0:
		return p.order(want), now
	case p.taken > 0:
		return p.restore, p.restored
	}
	return nil, now
}

// idle reports whether nobody calls, and there is nothing to tell.
func (p *lease) idle() bool { return p.len() == 0 && p.used == 0 && p.need == 0 && p.owed == 0 }

// ready is when to ask for more, or to count. What others give back comes earlier than
// the store can know.
func (p *lease) ready() time.Time {
	at := p.after
	if again := p.left.Add(askAgain); at.After(again) {
		at = again
	}
	if late := p.count.Add(countLate); !p.count.IsZero() && at.After(late) {
		at = late
	}
	return at
}

// measure looks at what was used.
func (p *lease) measure(now time.Time) {
	if elapsed := now.Sub(p.review); elapsed >= tripEvery {
		p.need = int64(math.Ceil(float64(p.used) * float64(tripEvery) / float64(elapsed)))
		p.used, p.review = 0, now
	}
	// What was taken or spent so long ago has left the store's window: it would be given
	// back at the cost of others, and counted for what they may take now.
	if p.tokens > 0 && now.Sub(p.since) >= p.keeps() {
		p.tokens = 0
	}
	if p.taken > 0 && now.Sub(p.off) >= p.window {
		p.taken = 0
	}
	if p.owed > 0 && now.Sub(p.spent) >= p.window {
		p.owed = 0
	}
}

// wants is how many tokens the slice lacks, or has too many of. Who calls only now and
// then takes none ahead.
func (p *lease) wants() int64 {
	target := p.len()
	if p.need > 0 {
		target += 2 * max(p.need, p.used)
	}
	if p.rule.Limit > 0 {
		target = min(target, int64(float64(p.rule.Most())/p.holders)+1)
	}
	switch {
	case p.down, p.len() == 0 && p.tokens >= p.need && p.tokens <= 2*target:
		return 0
	case p.tokens > 2*target:
		return target - p.tokens
	}
	return max(target-p.tokens, 0)
}

// order takes a part of the quota, or gives some back.
func (p *lease) order(want int64) errand {
	return func() trip { return p.slice(want) }
}

func (p *lease) slice(want int64) trip {
	if want < 0 {
		p.tokens += want // nobody spends what is on its way back
	}
	key, rule := p.key, p.rule
	return func(ctx context.Context, store quotastore.Store) (func(time.Time), error) {
		t, err := store.Take(ctx, key, int(want), int(min(max(want, 0), 1)), rule)
		return func(now time.Time) {
			if want > 0 {
				p.after = now.Add(t.RetryAfter)
			}
			if t.Taken > 0 {
				p.tokens += int64(t.Taken)
				p.since = now
			}
			if p.from == agreed && !p.static && !p.told && t.RetryAfter > 2*tripEvery {
				p.from = unasked // there is time to see whether others know of a longer window
			}
			p.remains = int64(t.Remaining)
			// The server's word is from before the count. Without others, and while less than
			// the slack has passed, the count is never more: see slidingRule.
			p.excess = p.remains > p.said && now.Sub(p.heard) < p.slack()
		}, err
	}
}

// report counts what was spent without the store's knowledge, all of it: in a window also
// above the limit, by a Take under a rule that has so much more. Else the others would take
// first what becomes free. A bucket holds no more than it holds: what it lacks is waited
// for.
func (p *lease) report() trip {
	key, rule, owed := p.key, p.rule, p.owed
	window := min(owed, int64(float64(rule.Limit)/p.holders)+2) // more it cannot have been in one
	if rule.Sliding {
		rule.Limit += mostShared
	}
	return func(ctx context.Context, store quotastore.Store) (func(time.Time), error) {
		t, err := store.Take(ctx, key, int(window), 1, rule)
		return func(now time.Time) {
			if !rule.Sliding {
				p.after = now.Add(t.RetryAfter)
			}
			if int64(t.Taken) == window {
				t.Taken = int(owed)
			}
			p.owed -= min(int64(t.Taken), p.owed)
		}, err
	}
}

// correct takes off the count what the server says that there is not. It is a Take under
// a rule that has so much less, so that it does not matter how many do it at once.
func (p *lease) correct() trip {
	p.excess = false
	key, rule, until := p.key, p.rule, p.whole
	most := rule.Most()
	if rule.Sliding {
		rule.Limit -= int(p.said)
	} else {
		rule.Burst -= int(p.said)
	}
	return func(ctx context.Context, store quotastore.Store) (func(time.Time), error) {
		t, err := store.Take(ctx, key, most, 0, rule)
		return func(now time.Time) {
			if rule.Sliding && t.Taken > 0 {
				p.off = now
				p.taken, p.restored = p.taken+int64(t.Taken), until
			}
		}, err
	}
}

// restore gives back what was taken off, when the server has all of it again. (A bucket
// fills by itself.)
func (p *lease) restore() trip {
	key, rule, taken := p.key, p.rule, p.taken
	return func(ctx context.Context, store quotastore.Store) (func(time.Time), error) {
		_, err := store.Take(ctx, key, -int(taken), 0, rule)
		return func(time.Time) { p.taken -= min(taken, p.taken) }, err
	}
}

// close writes for all that the quota is used up.
func (p *lease) close() trip {
	key, until := p.key, p.shut
	return func(ctx context.Context, store quotastore.Store) (func(time.Time), error) {
		return func(time.Time) {
			p.after = until
			if p.shut.Equal(until) {
				p.shut = time.Time{}
			}
		}, store.Close(ctx, key, until)
	}
}

// holdersRule counts each process as often as it says that it is there.
func holdersRule() quotastore.Rule {
	return quotastore.Rule{Limit: 1 << 20, Window: present, Sliding: true}
}

// uncounted reports whether the processes are to be counted: not while somebody waits for
// tokens, but then a little later.
func (p *lease) uncounted(now time.Time) bool {
	return !p.count.After(now) && (p.len() == 0 || !p.count.IsZero() && now.Sub(p.count) >= countLate)
}

func (p *lease) countHolders() trip {
	key, rule := p.key+"|holders", holdersRule()
	return func(ctx context.Context, store quotastore.Store) (func(time.Time), error) {
		t, err := store.Take(ctx, key, 1, 0, rule)
		return func(now time.Time) {
			found := (float64(rule.Limit-t.Remaining) - 0.5) / presences
			p.holders = max((p.holders+found)/2, found*(1-1/presences), 1)
			if p.count = p.count.Add(saysPresent); p.count.Before(now) {
				p.count = now.Add(saysPresent)
			}
		}, err
	}
}
