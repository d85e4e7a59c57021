package resilienthttp

import "time"

// pace remembers when requests were sent, so that there are never more of them
// than a limit in any time as long as a window. That keeps within every kind of
// quota of that limit and window, without any news of it.
//
// It remembers them in groups, and a group leaves with its last request. So one
// that was sent slowly holds up its first requests for longer than need be; the
// next time round they go together.
type pace struct {
	groups [paceGroups]paceGroup // a ring
	oldest int
	used   int   // of the groups
	n      int64 // requests in them
}

const paceGroups = 32

type paceGroup struct {
	n    int64
	last time.Time
}

// newPace begins with n requests that were sent just now.
func newPace(n int64, now time.Time) *pace {
	p := &pace{}
	if n > 0 {
		p.groups[0], p.used, p.n = paceGroup{n, now}, 1, n
	}
	return p
}

// add remembers one request.
func (p *pace) add(now time.Time, limit int64) {
	p.n++
	if p.used > 0 {
		g := &p.groups[(p.oldest+p.used-1)%paceGroups]
		// One group less than there are makes up the limit: the oldest may be
		// nearly gone.
		if g.n < (limit-1)/(paceGroups-1)+1 || p.used == paceGroups {
			g.n++
			g.last = now
			return
		}
	}
	p.groups[(p.oldest+p.used)%paceGroups] = paceGroup{1, now}
	p.used++
}

// room is when a request may go that has so many others ahead of it: at once, if
// that is not after now.
func (p *pace) room(now time.Time, window time.Duration, limit, ahead int64) time.Time {
	for p.used > 0 && !p.groups[p.oldest].last.Add(window).After(now) {
		p.n -= p.groups[p.oldest].n
		p.oldest = (p.oldest + 1) % paceGroups
		p.used--
	}
	at := now
	over := p.n + ahead%limit - limit // that many of the oldest must have left, and one more
	for i := 0; i < p.used && over >= 0; i++ {
		g := &p.groups[(p.oldest+i)%paceGroups]
		at = g.last.Add(window)
		over -= g.n
	}
	// Who has a whole limit ahead goes one window after the one that many places
	// before him.
	rounds := min(ahead/limit, int64(maxForesight/window))
	return at.Add(time.Duration(rounds) * window)
}
