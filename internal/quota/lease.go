package quota

import (
	"context"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/quotastore"
)

// lease is this process's part of a quota that many processes share by a
// quotastore.Store, and the line of those who wait for it. How it works:
//
// A slice of the quota is taken ahead and spent without asking anybody: twice what was
// used in the last tripEvery, and what those in line need. What of it has not been used
// by then is given back. So there is one trip to the store in tripEvery at most, and
// none while nobody calls; it is made by a goroutine of its own, that lives as long as
// the trip does.
//
// Whose store does not answer within tripPatience goes on by itself, with what is his
// if all who were there share equally, and tells the store of it when it is back,
// before it takes any more: by then all the others have told of theirs.
//
// The rule is either given (the static ceiling), or learned from the server's headers.
// What the processes have learned they tell each other through the store, so that who
// has just started keeps it too. While nobody knows one, the first goes alone.
//
// What the server says goes above the count, if it is less: others use the quota too, or
// the store has forgotten something.
type lease struct {
	once    sync.Once
	limiter *Limiter
	key     string
	static  bool // the rule is the static ceiling

	mu sync.Mutex // guards what follows
	line
	rule   quotastore.Rule // Limit 0: nobody knows
	window time.Duration   // the server's, of which the rule's is a little more
	told   bool            // the server has said it; else it is the longest that was seen
	from   knowledge

	tokens  int64     // of the slice, that are left
	since   time.Time // when it was taken
	used    int64     // since
	review  time.Time // then
	need    int64     // in tripEvery, before that
	left    time.Time // when the last trip began
	away    bool      // it is under way
	after   time.Time // the store has nothing before
	remains int64     // by its last word, that others can take too

	scouting bool // one goes alone, to find out the rule
	mute     bool // the server has said nothing of one

	met     bool      // the store has answered once, or failed
	down    bool      // it does not answer, or not in time
	share   float64   // tokens that may be spent meanwhile
	shared  time.Time // when there were so many
	owed    int64     // spent without the store's knowledge, in this window
	spent   time.Time // when the last of it was
	holders float64   // how many processes there are, by the last count
	count   time.Time // when they are to be counted next; zero: the store has never answered

	said     int64     // what remains, by the server's word
	heard    time.Time // when it was
	whole    time.Time // when it will be whole again
	excess   bool      // the store had more
	taken    int64     // off the count, to make it what the server says
	off      time.Time // when that was
	restored time.Time // when it is given back
	shut     time.Time // until then it is used up, which is to be written for all
}

const (
	// tripEvery is the least time between two trips to the store.
	tripEvery = 100 * time.Millisecond

	// tripPatience is how long a call waits for one, and firstPatience for the first of a
	// process, which has to connect before: who knows nothing yet would be a stranger to
	// all others.
	tripPatience, firstPatience = 20 * time.Millisecond, 250 * time.Millisecond

	// tripTimeout is when a trip is given up. It is longer than anybody waits for it, so
	// that a slow store's answers are not lost, nor its connections.
	tripTimeout = time.Second

	// askAgain is when a store that had nothing is asked again at the latest.
	askAgain = time.Second

	// sliceKept is how long a slice is kept that could not be given back: after that
	// nobody knows what it is worth.
	sliceKept = time.Second

	// mostSlack bounds how much longer than the server's window that of the store is. What
	// was taken a little before is sent a little later.
	mostSlack = 200 * time.Millisecond

	// saysPresent is how often a process says that it is there, and present how long that
	// counts: of the others three or four times, of itself four.
	saysPresent, present, presences = 2 * time.Second, 7 * time.Second, 3.5

	// countLate is how late that may be, while somebody waits for tokens.
	countLate = 3 * tripEvery
)

// knowledge is what is known of the rule.
type knowledge uint8

const (
	unasked knowledge = iota // whether the store knows it
	unknown                  // it does not
	learned                  // from the server, and to be told to the store
	differs                  // it has another one, that is older
	agreed                   // with the store
)

// kind is what a turn was made of.
type kind uint8

const (
	ofNothing kind = iota // nobody knows a rule
	ofScout               // it goes alone
	ofSlice
	ofShare // the store is down
)

func (l *Limiter) newLease(key string) *lease {
	p := &lease{limiter: l, key: key, holders: 1}
	p.gate, p.line.mu = p, &p.mu
	return p
}

// ceilingLease is that of the static ceiling.
func (l *Limiter) ceilingLease(scope string) *lease {
	p := l.leases.Get(scope)
	p.once.Do(func() {
		p.limiter, p.key, p.holders, p.gate, p.line.mu = l, "limit|"+scope, 1, p, &p.mu
		p.static, p.from = true, agreed
		p.rule = ceilingRule(float64(l.Limit), l.Burst)
		p.window = p.rule.Window
	})
	return p
}

// ceilingRule is the token bucket of the static ceiling, less in its size what may be
// in the hands of the processes.
func ceilingRule(limit float64, burst int) quotastore.Rule {
	const longest = 366 * 24 * time.Hour
	window := time.Duration(min(float64(burst)/limit*float64(time.Second)+1, float64(longest)))
	held := int(min(limit*2*tripEvery.Seconds(), float64(burst-1)))
	return quotastore.Rule{Limit: burst, Window: window, Burst: burst - held}
}

// enter takes a turn, standing in line for it if need be.
func (p *lease) enter(now time.Time, q queueing) (k kind, stood bool, refused *Refusal) {
	p.mu.Lock()
	now = p.limiter.steady(now)
	if p.len() == 0 {
		if k, ok := p.take(now); ok {
			p.pump(now)
			p.mu.Unlock()
			return k, false, nil
		}
	}
	place, refused := p.join(now, q)
	p.mu.Unlock()
	if refused != nil {
		return ofNothing, false, refused
	}
	t, refused := p.stand(place)
	return t.kind, true, refused
}

// busy keeps what says something from being forgotten first.
func (p *lease) busy() bool {
	if !p.mu.TryLock() {
		return true
	}
	defer p.mu.Unlock()
	return p.len() > 0 || p.tokens > 0 || p.owed > 0 || p.taken > 0
}

// take takes one turn, if there is one.
func (p *lease) take(now time.Time) (kind, bool) {
	switch {
	case p.rule.Limit == 0:
		return p.takeUnruled()
	case p.tokens > 0 && now.Sub(p.since) < p.keeps():
		p.tokens--
		p.used++
		return ofSlice, true
	case p.down && !p.after.After(now):
		if p.fill(now); p.share >= 1 {
			p.share--
			p.owed, p.spent = p.owed+1, now
			p.used++
			return ofShare, true
		}
	}
	return ofNothing, false
}

// takeUnruled takes a turn where nobody knows a rule. A store that does not answer holds
// nobody up.
func (p *lease) takeUnruled() (kind, bool) {
	switch {
	case p.mute:
		return ofNothing, true
	case p.from == unasked && !p.down, p.scouting:
		return ofNothing, false
	}
	p.scouting = true
	return ofScout, true
}

// keeps is how long a slice may be spent.
func (p *lease) keeps() time.Duration { return min(sliceKept, p.rule.Window/2) }

// slack is by how much what is taken may be sent later, and a count be newer than a word.
func (p *lease) slack() time.Duration {
	if p.static {
		return mostSlack
	}
	return p.rule.Window - p.window
}

// fill adds to the share what has come since.
func (p *lease) fill(now time.Time) {
	rate := p.rate()
	p.share = min(p.share+now.Sub(p.shared).Seconds()*rate, max(rate*tripEvery.Seconds(), 1))
	p.shared = now
}

// rate is what is this process's in a second, if all share equally.
func (p *lease) rate() float64 {
	return float64(p.rule.Limit) / p.rule.Window.Seconds() / p.holders
}

// cancel returns a turn that was not used.
func (p *lease) cancel(k kind, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.back(Ticket{kind: k}, now)
	p.pump(p.limiter.steady(now))
}

// back implements gate.
func (p *lease) back(t Ticket, _ time.Time) {
	switch t.kind {
	case ofNothing:
	case ofScout:
		p.scouting = false
	case ofSlice:
		p.tokens++
		p.used--
	case ofShare:
		p.share++
		p.owed--
		p.used--
	}
}

// foresee implements gate. What others take of it nobody knows.
func (p *lease) foresee(now time.Time, ahead int64) (time.Time, bool) {
	now = p.limiter.steady(now)
	at := later(now, p.after)
	if beyond := ahead - p.tokens - p.remains; p.rule.Limit > 0 && beyond > 0 {
		wait := float64(p.rule.Window) * float64(beyond) / float64(p.rule.Limit)
		at = at.Add(time.Duration(min(wait, float64(Longest))))
	}
	return at, false
}

// pump implements gate: who is in line goes by what there is, and a trip is made when
// there is a reason and the time has come.
func (p *lease) pump(now time.Time) {
	now = p.limiter.steady(now)
	if p.away && !p.down && now.Sub(p.left) >= p.patience() {
		p.fail(now)
	}
	for p.len() > 0 {
		k, ok := p.take(now)
		if !ok {
			break
		}
		p.grant(Ticket{kind: k})
	}
	p.wakeAt(p.next(now), now)
}

func (p *lease) patience() time.Duration {
	if p.met {
		return tripPatience
	}
	return firstPatience
}

// fail is a store that does not answer in time: from now on the share counts.
func (p *lease) fail(now time.Time) {
	if p.met = true; !p.down {
		p.down, p.share, p.shared = true, 1, now
	}
}

// next begins a trip if it is time, and is when to look again; zero: nobody has to.
func (p *lease) next(now time.Time) time.Time {
	var wake time.Time
	if !p.away {
		do, at := p.errand(now)
		if at = later(at, p.left.Add(tripEvery)); do != nil && !at.After(now) {
			p.send(do, now)
		} else if do != nil {
			wake = at
		} else if p.tokens > 0 {
			wake = p.review.Add(tripEvery)
		}
	}
	if p.away && !p.down {
		wake = p.left.Add(p.patience())
	}
	if p.down && p.len() > 0 && p.rule.Limit > 0 {
		p.fill(now)
		lacking := max(1-p.share, 0) / p.rate()
		wake = sooner(wake, later(p.after, now.Add(time.Duration(min(lacking, Longest.Seconds())*float64(time.Second))+1)))
	}
	return wake
}

// send makes a trip.
func (p *lease) send(do errand, now time.Time) {
	p.away, p.left = true, now
	store, run := p.limiter.Shared, do()
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), tripTimeout)
		defer cancel()
		back := p.fail // what a store deserves that panics
		defer func() {
			_ = recover()
			p.mu.Lock()
			defer p.mu.Unlock()
			now := p.limiter.steady(time.Now())
			p.away = false
			back(now)
			p.pump(now)
		}()
		answer, err := run(ctx, store)
		if err == nil {
			back = func(now time.Time) { p.returned(now, answer) }
		}
	}()
}

// returned is the end of a trip that was answered.
func (p *lease) returned(now time.Time, answer func(now time.Time)) {
	if now.Sub(p.left) > p.patience() {
		p.fail(now)
	} else {
		p.down = false
	}
	p.met = true
	if p.count.IsZero() {
		p.count = now // soon, even if somebody waits all the time
	}
	answer(now)
}
