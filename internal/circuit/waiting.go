package circuit

import (
	"cmp"
	"slices"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/hold"
	"github.com/resilienthttp/resilienthttp/internal/waitqueue"
)

// waiting are the calls that wait for a circuit. While it is not closed, the one that was sent least often is the next
// probe. When it has closed, they are released in the order in which they began (see sendNext), and new calls do not wait behind them.
type waiting struct {
	circuit *Circuit
	queue   waitqueue.Queue[Permit]
	release hold.Release
}

// FailedBefore is the Class of a waiting call of which the route had failed before the outage. Its failure would not show that the server
// is still away, so it is the last to be a probe.
const FailedBefore = 1

const (
	maxOutage   = 20 * time.Second // of a server for which calls wait as long as they may
	releaseRate = 1.5              // of released calls, in usual rates

	// A later call waits for so long, or for a Cooldown if the server is slow. If it were rejected at once, workers would go
	// through a long list of jobs in an instant.
	lateWait = 2 * time.Second
)

// outage is what the last outage began with.
type outage struct {
	since time.Time     // of the first failure
	usual time.Duration // between two results before
	ratio float64       // of failures before
	slow  bool          // it began with timeouts: the server may have too much work

	routes routes // that failed in the outage and have not succeeded in it
}

// Wait waits for the Permit of a call that Admit has rejected. A call that was never sent, and gets none, is sent as a
// test if lastly is true: the server may work for this call, although it fails for all others. A late call is not sent, because those
// before it have shown that the server is away.
func (c *Circuit) Wait(now time.Time, e *waitqueue.Entry[Permit], lastly bool) *Rejection {
	joined, late, rejected := c.join(now, e)
	switch {
	case !joined:
		return rejected
	case c.waiting.queue.Wait(e) == nil:
		return nil
	}
	now = time.Now()
	if lastly && !late && e.Sent == 0 && e.Ctx.Err() == nil && c.testLastly(now, e) {
		return nil
	}
	return cmp.Or(c.Rejects(now), &Rejection{NotBefore: now})
}

// testLastly gives a call that has waited as long as it may the permit of a test, and reports whether it may. A server with too much work
// gets no more of it.
func (c *Circuit) testLastly(now time.Time, e *waitqueue.Entry[Permit]) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.opening == nil || c.outage.slow {
		return false
	}
	e.Permit = c.probe(now, e.Route)
	return true
}

// join queues a call, and reports whether it is late. One that must not wait has its result at once.
func (c *Circuit) join(now time.Time, e *waitqueue.Entry[Permit]) (joined, late bool, rejected *Rejection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if late = c.tooLate(); late {
		longest := lateWait
		if c.outage.slow {
			longest = c.breaker.rules.Cooldown
		}
		e.MaxWait = min(e.MaxWait, longest)
	}
	if e.MaxWait <= 0 {
		e.Permit, rejected = c.admit(now, e.Route)
		return false, late, rejected
	}
	if c.waiting == nil {
		c.waiting = &waiting{circuit: c}
		c.waiting.queue.Mu, c.waiting.queue.Gate = &c.mu, c.waiting
	}
	return c.waiting.queue.Join(now, e) == nil, late, nil
}

// waitingCalls returns the number of calls that wait. The circuit is locked.
func (c *Circuit) waitingCalls() int64 {
	if c.waiting == nil {
		return 0
	}
	return c.waiting.queue.Len()
}

// TooLate reports whether the server has failed for so long that calls hardly wait. For a closed circuit it takes no lock.
func (c *Circuit) TooLate() bool {
	if c.closed.Load() != nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tooLate()
}

// tooLate is TooLate for a locked circuit.
func (c *Circuit) tooLate() bool {
	return c.opening != nil && c.opening.failed.Sub(c.outage.since) > maxOutage
}

// Holds reports whether a call would be rejected now because the circuit is open, and may wait instead.
func (c *Circuit) Holds(now time.Time) bool {
	return c.NotClosed() && c.Rejects(now) != nil && !c.TooLate()
}

// Slow reports whether the server may have too much work: the last outage began with timeouts.
func (c *Circuit) Slow() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.outage.slow
}

// startRelease plans the release of the calls that wait. It takes no longer than the first of them has waited, as long as the
// results are quick successes. The circuit is locked.
func (c *Circuit) startRelease(now time.Time) {
	w, calls := c.waiting, c.waitingCalls()
	if w == nil {
		return
	}
	longest := time.Duration(0)
	if calls > 0 {
		longest = now.Sub(w.queue.First().Since)
	}
	c.closed.Load().releasing.Store(calls > 0)
	w.release.Begin(now, int(calls), time.Duration(float64(c.outage.usual)/releaseRate), longest)
}

// Take implements waitqueue.Gate. Dispatch chooses the next call.
func (w *waiting) Take(time.Time, int64) (p Permit, ok bool) { return p, false }

// Return implements waitqueue.Gate.
func (w *waiting) Return(p Permit, now time.Time) {
	if p.Change != nil {
		// The change was not reported.
		p.opening.halfOpen = false
	}
	w.circuit.done(p, Result{}, now)
}

// Estimate implements waitqueue.Gate. When the server will be back is unknown.
func (w *waiting) Estimate(now time.Time, _ waitqueue.Load, _ int64) (at time.Time, blocked bool) {
	return now, false
}

// Dispatch implements waitqueue.Gate. It sends the calls that need not wait any longer.
func (w *waiting) Dispatch(now time.Time) {
	wake := time.Time{}
	for w.queue.Len() > 0 && wake.IsZero() {
		if w.circuit.opening != nil {
			wake = w.sendProbe(now)
		} else {
			wake = w.sendNext(now)
		}
	}
	if s := w.circuit.closed.Load(); s != nil && w.queue.Len() == 0 {
		s.releasing.Store(false)
	}
	w.queue.WakeAt(wake, now)
}

// sendProbe sends the call that was sent least often, so that no call fails often. It returns when to come back if none
// may be sent now.
func (w *waiting) sendProbe(now time.Time) (wake time.Time) {
	if next := w.circuit.opening.probeAt(&w.circuit.breaker.rules, now); now.Before(next) {
		// Before the search, because each call that joins a long queue comes here.
		return next
	}
	e, rested := w.nextProbe(now)
	if e == nil {
		return rested
	}
	w.queue.Grant(e, w.circuit.probe(now, e.Route))
	return time.Time{}
}

// nextProbe returns the last of the calls that were sent least often and do not rest: it has the most time left. Among those the
// routes take turns, and the route that failed or was tested last comes last. Those of the Class FailedBefore come after all others. If
// all calls rest, e is nil, and at is when the first may be a probe.
func (w *waiting) nextProbe(now time.Time) (e *waitqueue.Entry[Permit], at time.Time) {
	turns := w.circuit.opening.failing
	for _, next := range w.queue.Backward() {
		switch {
		case next.RestsTo.After(now):
			if at.IsZero() || next.RestsTo.Before(at) {
				at = next.RestsTo
			}
		case e == nil, cmp.Or(cmp.Compare(next.Class, e.Class), next.Sent-e.Sent, slices.Index(turns, next.Route)-slices.Index(turns, e.Route)) < 0:
			e = next
		}
	}
	return e, at
}

// sendNext releases the first call that has enough time for a response like the last one, because the server may have a
// queue now.
func (w *waiting) sendNext(now time.Time) (wake time.Time) {
	if next := w.release.Next(); now.Before(next) {
		return next
	}
	closed := w.circuit.closed.Load()
	e := w.queue.InTime(now.Add(time.Duration(closed.took.Load())))
	p, rejected := w.circuit.admit(now, e.Route)
	if rejected != nil {
		return rejected.NotBefore
	}
	least := time.Duration(0)
	if closed.pressed.Load() {
		// The server cannot do more.
		least = w.circuit.breaker.rules.Cooldown
	}
	w.release.Take(now, least)
	w.queue.Grant(e, p)
	return time.Time{}
}
