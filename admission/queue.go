package admission

import (
	"time"

	"github.com/resilienthttp/resilienthttp"
)

const (
	// defaultMaxWait is the default of Shedder.MaxWait for quick requests.
	defaultMaxWait = 100 * time.Millisecond

	// queuePerSlot is the default number of waiting requests per slot, at least.
	queuePerSlot = 2

	// maxWaiters is the largest default queue.
	maxWaiters = 10_000

	// A known latency is used for maxLatencyAge after the last sample, or for
	// maxLatencyAgeRatio times the latency if that is longer.
	maxLatencyAge, maxLatencyAgeRatio = time.Second, 2

	// minYieldSeconds is the latency from which a request yields the processor first. A
	// quicker request costs hardly more than its rejection.
	minYieldSeconds = 10e-6

	// noDeadline is the remaining time of a request without a deadline.
	noDeadline = time.Duration(1<<63 - 1)
)

// classes is the number of priorities.
const classes = 3

// class is the index of a priority: 0 is the most important.
func class(p resilienthttp.Priority) int { return int(resilienthttp.PriorityCritical - p) }

// waiter is a request that waits for a slot.
type waiter struct {
	key          *keyQueue
	mark         uint64 // of its key, see knownKeys; zero means no key
	class        int
	older, newer *waiter // of its key and class
	queued       bool
	since        uint64        // when it came, see fairQueue.sequence
	until        time.Duration // it does not wait longer
	flight       int           // how many are in flight with it when it gets a slot
	verdict      chan Reason   // receives one value when another goroutine removes it from the queue
	timer        *time.Timer
}

// concurrencyGate is a Shedder without clock, lock and waiting: the limiter, the queue, and
// the latencies that it has seen. A time is the duration since any fixed moment.
type concurrencyGate struct {
	limiter
	fairQueue

	queueLimit int           // zero means as many as get a slot in time, negative none
	maxWait    time.Duration // zero means the default, negative none

	interval   typicalInterval
	alone      float64       // seconds that the last request took that was alone in flight
	latest     time.Duration // when the last sample came
	emptyUntil time.Duration // when the queue was last seen empty
}

// enter decides about a request that arrives. If it gets a slot, flight is the number in
// flight. It is hopeless if it cannot be served in the remaining time. Otherwise it may join
// the queue.
func (g *concurrencyGate) enter(now, left time.Duration, k *keyQueue, mark uint64, class int) (flight int, hopeless bool) {
	if left < noDeadline {
		g.observeTimeout(seconds(left))
		if left <= 0 || g.latency(now, 1) > left {
			g.forget(k)
			return 0, true
		}
		if g.latency(now, g.inflight+1) > left {
			g.crowded = true // there is enough time if fewer are in flight
			return 0, false
		}
	}
	g.observe(now)
	if g.fairQueue.len == 0 && g.limiter.admit() {
		g.fairQueue.admit(k, class, mark)
		return g.limiter.inflight, false
	}
	return 0, false
}

// join adds a request to the queue, or returns why not. Another request may be evicted.
func (g *concurrencyGate) join(now, left time.Duration, w *waiter) (victim *waiter, why Reason) {
	if g.fairQueue.len == 0 {
		g.emptyUntil = now
	}
	wait := g.longestWait(now)
	if left < noDeadline {
		latency := g.latency(now, g.slots())
		ahead := int64(w.key.ahead(w.class)+1) * int64(g.slotInterval(now))
		if ahead+int64(latency) > int64(left) {
			g.forget(w.key)
			return nil, ReasonDeadline
		}
		// After a short pause, each request can be served before its deadline. In a lasting
		// overload only critical ones wait that long.
		latest := left - latency
		if g.maxWait == 0 && (w.class == 0 || g.queuedFor(now) < left) {
			wait = latest
		}
		wait = min(wait, latest)
	}
	size := g.queueSize(wait)
	if size <= 0 || wait <= 0 {
		g.forget(w.key)
		return nil, ReasonQueueFull
	}
	w.until = now + wait
	g.push(w)
	if g.fairQueue.len <= size && !g.tooManyKeys(g.slots()) {
		return nil, ReasonNone
	}
	victim = g.last()
	g.drop(victim)
	if victim == w {
		return nil, ReasonQueueFull
	}
	return victim, ReasonNone
}

// queuedFor returns for how long the queue has not been empty.
func (g *concurrencyGate) queuedFor(now time.Duration) time.Duration {
	if g.fairQueue.len == 0 {
		return 0
	}
	return now - g.emptyUntil
}

// admitNext removes the request from the queue that gets a free slot. It returns nil if there
// is none.
func (g *concurrencyGate) admitNext() *waiter {
	w := g.first(g.slots())
	if w == nil || !g.limiter.admit() {
		return nil
	}
	g.fairQueue.remove(w)
	g.fairQueue.admit(w.key, w.class, w.mark)
	w.flight = g.limiter.inflight
	return w
}

// done ends a request that had a slot.
func (g *concurrencyGate) done(now time.Duration, s sample, k *keyQueue, class int) {
	if s.took >= 0 {
		took := seconds(s.took) // at least, if it was late
		g.interval.add(took, float64(s.flight))
		g.latest = now
		if s.flight == 1 {
			g.alone = took
		}
	}
	g.release(now, s)
	g.observe(now)
	k.inflight[class]--
	if k.queued > 0 {
		g.update(k)
	} else {
		g.forget(k)
	}
}

// observe sets what the fairQueue needs to know.
func (g *concurrencyGate) observe(now time.Duration) {
	g.allSlots = g.limiter.slots()
	g.admitted.second = uint16(now / time.Second)
}

// queueSize returns how many may wait: as many as get a slot within the wait, by the
// latencies seen.
func (g *concurrencyGate) queueSize(wait time.Duration) int {
	if g.queueLimit != 0 {
		return g.queueLimit
	}
	size := queuePerSlot * g.slots()
	inflight := g.limiter.inflight
	if interval := g.lastLatency(inflight) / time.Duration(max(inflight, 1)); interval > 0 {
		size = max(size, int(min(wait/interval, maxWaiters)))
	}
	return size
}

func (g *concurrencyGate) longestWait(now time.Duration) time.Duration {
	if g.maxWait == 0 {
		// This is how long it takes to serve a queue of the default size.
		return max(defaultMaxWait, queuePerSlot*g.latency(now, g.limiter.inflight))
	}
	return g.maxWait
}

// yields reports whether a request with a slot yields the processor before its handler
// begins, so that requests behind it reach the queue. Go does not interrupt a goroutine that
// computes for less than 10 ms: without that, requests wait in the scheduler, which knows no
// priorities.
func (g *concurrencyGate) yields() bool {
	took := g.interval.time * g.interval.flight
	return took == 0 || took > minYieldSeconds
}

// latency returns the lower quartile of the latency with so many in flight; 0 if it is
// unknown or too old.
func (g *concurrencyGate) latency(now time.Duration, flight int) time.Duration {
	took := g.lastLatency(flight)
	if now-g.latest > max(maxLatencyAge, maxLatencyAgeRatio*took) {
		return 0
	}
	return took
}

// lastLatency is latency at any age.
func (g *concurrencyGate) lastLatency(flight int) time.Duration {
	least := g.base
	if g.alone > 0 && (least == 0 || g.alone < least) {
		least = g.alone
	}
	return time.Duration(max(g.interval.time*min(float64(flight), 2*g.interval.flight), least) * float64(time.Second))
}

// slotInterval returns the typical time until a slot becomes free.
func (g *concurrencyGate) slotInterval(now time.Duration) time.Duration {
	return g.latency(now, g.limiter.inflight) / time.Duration(max(g.limiter.inflight, 1))
}

// typicalInterval is the latency divided by the number in flight, in seconds: its lower
// quartile. If requests wait for each other, it is the time between two responses. If they
// do not, it is less.
type typicalInterval struct{ time, flight float64 }

func (t *typicalInterval) add(seconds, flight float64) {
	time := seconds / flight
	switch {
	case t.flight == 0:
		t.time, t.flight = time, flight
	case time > t.time:
		t.time = min(t.time*(1+1./32)+1e-9, time)
	default:
		t.time = max(t.time*(1-1./32), time)
	}
	t.flight += (flight - t.flight) / 32
}
