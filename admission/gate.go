package admission

import "time"

const (
	// defaultMaxWait is the longest wait, where requests do not take longer.
	defaultMaxWait = 100 * time.Millisecond

	// queuePerPlace is how many may wait for each place, at least.
	queuePerPlace = 2

	// mostWaiters is how many may wait at most, if nobody says.
	mostWaiters = 10_000

	// staleAfter is how long it is believed, without a sample, that requests take as
	// long as they did; if they take long, staleTimes as long as that.
	staleAfter, staleTimes = time.Second, 2

	// worthYielding is how many seconds a request must take for others to be let in first:
	// one that takes less costs hardly more than to refuse it.
	worthYielding = 10e-6

	// forever is what is left to a request without a deadline.
	forever = time.Duration(1<<63 - 1)
)

// gate is a Shedder without clock, lock and waiting: limiter, queue, and what is
// known of how long it all takes. Times are since any moment.
type gate struct {
	limiter
	queue

	most    int           // in the queue; 0: as many as get a place in time; negative: none
	maxWait time.Duration // 0: the default; negative: none

	each    each
	alone   float64 // seconds that the last one took that had no others beside it
	emptyAt time.Duration
	latest  time.Duration // when the last sample came
}

// enter is a request that comes, with so much time left. Either it is let in, and
// then flight is how many have a place with it; or it has no chance to be served in
// time; or neither: then it may join the queue.
func (g *gate) enter(now, left time.Duration) (flight int, hopeless bool) {
	if left < forever {
		g.observeTimeout(seconds(left))
		if g.service(now, g.inflight+1) > left || left <= 0 {
			if left <= 0 || g.service(now, 1) > left {
				return 0, true
			}
			g.full = true // there would be time enough, if fewer were in flight
			return 0, false
		}
	}
	if g.queue.len == 0 && g.admit() {
		return g.inflight, false
	}
	return 0, false
}

// join puts a request into the queue that was not let in, or says why not. Somebody
// may have to make room for it.
func (g *gate) join(now, left time.Duration, w *waiter) (room *waiter, why Reason) {
	if g.queue.len == 0 {
		g.emptyAt = now
	}
	wait := g.longestWait(now)
	if left < forever {
		// So many places have to come first, if nobody else does.
		service := g.service(now, g.slots())
		if int64(g.ahead(w.class)+1)*int64(g.interval(now))+int64(service) > int64(left) {
			return nil, ReasonDeadline
		}
		latest := left - service
		if g.maxWait == 0 && (w.class == 0 || now-g.emptyAt < left) {
			wait = latest
		}
		wait = min(wait, latest)
	}
	size := g.queueSize(wait)
	if size <= 0 || wait <= 0 {
		return nil, ReasonQueueFull
	}
	w.until = now + wait
	if g.queue.len >= size {
		if room = g.last(); room.class < w.class {
			return nil, ReasonQueueFull
		}
		g.remove(room)
	}
	g.push(w)
	return room, ReasonNone
}

// next takes the one out of the queue for whom there is a place; nil: none.
func (g *gate) next() *waiter {
	w := g.first()
	if w == nil || !g.admit() {
		return nil
	}
	g.remove(w)
	w.flight = g.inflight
	return w
}

// done is a request that leaves.
func (g *gate) done(now time.Duration, s sample) {
	if s.took >= 0 {
		took := seconds(s.took) // if it was late, so long at least
		g.each.add(took, float64(s.flight))
		g.latest = now
		if s.flight == 1 {
			g.alone = took
		}
	}
	g.release(now, s)
}

// queueSize is how many may wait: as many as get a place within the longest wait, by how
// long requests took.
func (g *gate) queueSize(wait time.Duration) int {
	if g.most != 0 {
		return g.most
	}
	size := queuePerPlace * g.slots()
	if interval := g.usual(g.inflight) / time.Duration(max(g.inflight, 1)); interval > 0 {
		size = max(size, int(min(wait/interval, mostWaiters)))
	}
	return size
}

func (g *gate) longestWait(now time.Duration) time.Duration {
	if g.maxWait == 0 {
		// So long it takes to serve a queue of the default size.
		return max(defaultMaxWait, queuePerPlace*g.service(now, g.inflight))
	}
	return g.maxWait
}

// yields reports whether one that has got a place yields the processor before it begins, so
// that those who stand behind it come in. Go interrupts nobody who computes for less than
// 10 ms: each would be served, all of it, before the next is seen, with hardly more in
// flight than there are processors, and all of the queue in the scheduler.
func (g *gate) yields() bool {
	took := g.each.time * g.each.flight
	return took == 0 || took > worthYielding
}

// service is how long a request takes, three of four at least, with so many in
// flight; 0 if nobody knows, or not any more.
func (g *gate) service(now time.Duration, flight int) time.Duration {
	took := g.usual(flight)
	if now-g.latest > max(staleAfter, staleTimes*took) {
		return 0
	}
	return took
}

// usual is what service was when it was known, however long ago that is.
func (g *gate) usual(flight int) time.Duration {
	least := g.base
	if g.alone > 0 && (least == 0 || g.alone < least) {
		least = g.alone
	}
	return time.Duration(max(g.each.time*min(float64(flight), 2*g.each.flight), least) * float64(time.Second))
}

// interval is how long it takes, about, until a place comes.
func (g *gate) interval(now time.Duration) time.Duration {
	return g.service(now, g.inflight) / time.Duration(max(g.inflight, 1))
}

// each is how long requests take for each that is in flight, the lower quartile, in
// seconds. If they wait for each other that is the time between two that are served;
// if they do not it is less.
type each struct{ time, flight float64 }

func (e *each) add(seconds, flight float64) {
	time := seconds / flight
	switch {
	case e.flight == 0:
		e.time, e.flight = time, flight
	case time > e.time:
		e.time = min(e.time*(1+1./32)+1e-9, time)
	default:
		e.time = max(e.time*(1-1./32), time)
	}
	e.flight += (flight - e.flight) / 32
}
