package quota

import (
	"container/list"
	"time"
)

// scouts are requests that are sent in spite of a claim, to see whether it is true: calls
// that would be turned away for it, and so have nothing to lose. One goes at first, and
// then as many more as were served; others who would be turned away wait for them.
//
// Whoever heeds a refusal's NotBefore sends none: the first call that is turned away is
// turned away, and only the next one goes.
type scouts struct {
	turned bool      // a call was turned away
	away   int64     // so many are under way
	until  time.Time // then one more goes, even if none is back
	watch  list.List // of chan struct{}: those who wait for them, in order
}

// appeal is what comes of a call that was turned away: a ticket after all, or that it
// is to ask again.
func (b *bucket) appeal(refusal *Refusal, class int8, q queueing) (t Ticket, again bool) {
	if refusal.Reason == moved || refusal.Reason == Gone {
		return Ticket{}, refusal.Reason == moved
	}
	now := time.Now()
	t, place := b.scout(now, class, &q)
	if place == nil {
		return t, false
	}
	return Ticket{}, b.await(place, now, q)
}

// scout is what is left to a call that is turned away: to go and see, with a ticket; a
// place among those who wait for others who do; or neither.
func (b *bucket) scout(now time.Time, class int8, q *queueing) (Ticket, *list.Element) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now, q.trip = b.tick(now), b.trip
	s := &b.scouts
	most := b.mayScout(now, class, b.route(q.method, q.path))
	switch {
	case most == 0:
		return Ticket{}, nil
	case !s.turned:
		s.turned = true
		return Ticket{}, nil
	case s.away >= most && s.until.After(now):
		return Ticket{}, s.watch.PushBack(make(chan struct{}))
	}
	t := b.take(now, class)
	t.Waited, t.scout = true, true // it may have stood in line
	s.away++
	s.until = now.Add(scoutTime + 2*b.lag)
	return t, nil
}

// mayScout is how many scouts there may be where nothing but claims holds calls of the
// route up; 0: something does that is known to be true, or nothing does.
func (b *bucket) mayScout(now time.Time, class int8, route uint64) (most int64) {
	if until, _ := b.closedUntil(class, now); !until.IsZero() {
		return 0
	}
	for i := range b.axes {
		q := &b.axes[i]
		if !q.closes(now) {
			continue
		}
		if q.belief.holds(route) {
			return 0
		}
		if may := 1 + q.belief.served; most == 0 || may < most {
			most = may
		}
	}
	return most
}

// scoutLanded lets others ask again: as many as may go, or all if there is nothing more to
// be seen on its route.
func (b *bucket) scoutLanded(t Ticket) {
	if !t.scout {
		return
	}
	s := &b.scouts
	s.away--
	n := s.watch.Len()
	if most := b.mayScout(b.latest, t.class, b.route(t.method, t.path)); most > 0 {
		n = min(n, int(max(most-s.away, 0)))
	}
	for range n {
		close(watchAt(s.watch.Front()))
		s.watch.Remove(s.watch.Front())
	}
}

func watchAt(place *list.Element) chan struct{} {
	return place.Value.(chan struct{}) //nolint:errcheck // there is nothing else among them
}

// await waits for a scout, as long as the call may and could still be answered. It
// reports whether to ask again.
func (b *bucket) await(place *list.Element, now time.Time, q queueing) bool {
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.scouts.watch.Remove(place)
	}()
	end := now.Add(q.maxWait)
	if !q.deadline.IsZero() {
		end = sooner(end, q.deadline.Add(-q.trip))
	}
	if !end.After(now) {
		return false
	}
	look := sooner(end, now.Add(scoutTime+2*q.trip))
	patience := time.NewTimer(look.Sub(now))
	defer patience.Stop()
	if q.who != nil {
		defer q.who.WaitEnds()
		q.who.WaitBegins(look, false)
	}
	select {
	case <-watchAt(place):
		return true
	case <-patience.C:
		return look.Before(end)
	case <-q.ctx.Done():
		return true // the line tells
	}
}
