package quota

import (
	"context"
	"math"
	"time"

	"github.com/resilienthttp/resilienthttp/quotastore"
)

// slidingRule is that of a server's quota, whatever it makes of it: with no more than
// the limit in any window, a fixed window, a sliding one and a token bucket are all
// kept. What is taken at the end of a window may be sent a little later: so the window
// is longer by the slack.
func slidingRule(limit int64, window time.Duration) quotastore.Rule {
	return quotastore.Rule{Limit: int(limit), Window: window + min(window/64, mostSlack), Sliding: true}
}

// A rule is kept in the store as what was taken of a key of its own: it is the one
// number that a Store keeps. It is the limit, and after that the window in seconds. The
// longest window is that of Longest.
const (
	windowBits = 17
	mostShared = 1<<22 - 1 // a limit that is larger is taken for this
	ruleKept   = 24 * time.Hour
)

func ruleNumber(limit int64, window time.Duration) int64 {
	return limit<<windowBits | int64(math.Ceil(window.Seconds()))
}

// readRule asks the store for what another process has learned.
func (p *lease) readRule() trip {
	most := int(min(int64(mostShared+1)<<windowBits, math.MaxInt))
	key, rule := p.key+"|rule", quotastore.Rule{Limit: most, Window: ruleKept, Sliding: true}
	return func(ctx context.Context, store quotastore.Store) (func(time.Time), error) {
		t, err := store.Take(ctx, key, 0, 0, rule)
		return func(time.Time) { p.agree(int64(rule.Limit - t.Remaining)) }, err
	}
}

// agree compares the rule with what the store knows; 0: nothing.
func (p *lease) agree(number int64) {
	limit, window := number>>windowBits, time.Duration(number&(1<<windowBits-1))*time.Second
	switch {
	case p.from != unasked: // something has been learned meanwhile
	case p.rule.Limit == 0 && (limit <= 0 || window <= 0):
		p.from = unknown
	case p.rule.Limit == 0:
		p.rule, p.window, p.from = slidingRule(limit, window), window, agreed
	case number == 0:
		p.from = learned
	default:
		if !p.told && window > p.window { // the others have seen more; a shorter one would forget what they took
			p.rule, p.window = slidingRule(int64(p.rule.Limit), window), window
		}
		if p.from = differs; number == ruleNumber(int64(p.rule.Limit), p.window) {
			p.from = agreed
		}
	}
}

// clearRule makes room for a newer one.
func (p *lease) clearRule() trip {
	key, rule := p.key+"|rule", quotastore.Rule{Limit: 1, Window: ruleKept, Sliding: true}
	return func(ctx context.Context, store quotastore.Store) (func(time.Time), error) {
		_, err := store.Take(ctx, key, math.MinInt, 0, rule)
		return func(time.Time) { p.from = learned }, err
	}
}

// writeRule tells the store what was learned, if it knows nothing.
func (p *lease) writeRule() trip {
	number := int(ruleNumber(int64(p.rule.Limit), p.window))
	key, rule := p.key+"|rule", quotastore.Rule{Limit: number, Window: ruleKept, Sliding: true}
	return func(ctx context.Context, store quotastore.Store) (func(time.Time), error) {
		t, err := store.Take(ctx, key, number, number, rule)
		return func(time.Time) {
			if p.from = agreed; !t.OK {
				p.from = unasked // it knows something
			}
		}, err
	}
}

// word is what an answer says of the quota that is shared.
type word struct {
	answered  bool
	limit     int64 // 0: nothing
	window    time.Duration
	told      bool // by the server, and not what it looks like
	remaining int64
	whole     time.Time // when it is whole again
	flying    int64     // those that may be of the same window, and are not answered
	refills   bool      // all the time: then it says nothing of what remains in a window
	shut      time.Time // until then it is proven to be used up; zero: it is not
}

// hear learns from the answer to a request that had such a turn.
func (p *lease) hear(w word, k kind, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now = p.limiter.steady(now)
	if k == ofScout {
		p.scouting = false
	}
	switch {
	case w.limit > 0 && !p.static:
		p.learn(w, k, now)
	case k == ofScout && w.answered:
		p.mute = true
	}
	if w.limit > 0 && !w.refills {
		if w.whole.Sub(p.whole) > p.window/2 {
			p.owed = min(p.owed, w.flying) // the others were of the window before
		}
		p.said, p.heard, p.whole = w.remaining, now, w.whole
	}
	if w.shut.After(now) && w.shut.After(p.shut) && (w.shut.Sub(p.after) > resetSlack || p.after.Before(now)) {
		p.shut = w.shut
	}
	p.pump(now)
}

// learn goes by what the server says of the rule. How long a window is that it does not
// tell, is what was seen at the longest.
func (p *lease) learn(w word, k kind, now time.Time) {
	limit, window := min(w.limit, mostShared, math.MaxInt>>windowBits), max(w.window.Round(time.Second), time.Second)
	if limit == int64(p.rule.Limit) && (window == p.window || window < p.window && !w.told) {
		return
	}
	if p.rule.Limit == 0 && k == ofScout {
		p.owed, p.spent = 1, now
	}
	p.rule, p.window, p.told, p.mute = slidingRule(limit, window), window, w.told, false
	if p.from != unasked { // else it asks first: what was seen may be less than what the others know
		p.from = learned
	}
}

// wordOf is what an answer means for the quota that is shared: that of the shortest
// window whose requests can be counted. Of longer ones all hear often enough. It is
// called after the bucket has learned from the answer.
func (b *bucket) wordOf(a *Answer, now time.Time) word {
	w := word{answered: true, flying: b.inflight.Load() + 1}
	b.mu.Lock()
	defer b.mu.Unlock()
	now = b.tick(now)
	for i := range b.axes {
		q := &b.axes[i]
		if q.mentioned != b.version || q.belief.wrong || q.costed || q.limit <= 0 || q.window <= 0 {
			continue
		}
		if w.limit == 0 || q.window < w.window {
			w.limit, w.window, w.told, w.remaining = q.limit, q.window, q.told, max(q.left(now), 0)
			w.whole, w.refills = q.reset, q.refill.known()
		}
		if a.refused() && q.low <= 0 {
			w.shut = later(w.shut, q.reset)
		}
	}
	if a.refused() && a.proof() != noProof && a.AsksToWait {
		w.shut = later(w.shut, now.Add(min(a.RetryAfter, b.limiter.MaxClosed)))
	}
	return w
}
