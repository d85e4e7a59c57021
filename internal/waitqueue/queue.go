// Package waitqueue is a queue of calls that wait for a permit, in the order in which they began. The rate limiter uses
// it for the fixed limit, for the servers' quotas and for shared quotas, the circuit breaker for a server that fails, and the
// retry budget for retries after timeouts.
//
// A Queue has no goroutine. Each change of the gate's state, and the queue's timer, calls
// Dispatch.
package waitqueue

import (
	"context"
	"iter"
	"math"
	"slices"
	"sync"
	"time"
)

// Horizon bounds all estimates: no wait is estimated as longer.
const Horizon = 24 * time.Hour

// EstimateSlack is the maximum delay of a queued call after its estimate. Calls are released one
// after another when a wait ends.
const EstimateSlack = 2 * time.Second

// Gate issues the permits. Its methods are called under the queue's lock.
type Gate[P any] interface {
	// Take takes a permit if no call waits. cost is Limits.Cost.
	Take(now time.Time, cost int64) (p P, ok bool)
	// Dispatch grants permits to the calls at the head, and sets the timer for the next.
	Dispatch(now time.Time)
	// Estimate returns when a call of that cost would get a permit that has those calls ahead of
	// it. blocked is true if rejections have blocked the scope until then.
	Estimate(now time.Time, ahead Load, cost int64) (at time.Time, blocked bool)
	// Return returns an unused permit.
	Return(p P, now time.Time)
}

// Load is a number of calls, and what they cost together.
type Load struct{ Calls, Cost int64 }

// Limits bound the wait of a call.
type Limits struct {
	Ctx      context.Context
	Deadline time.Time     // zero: none
	MaxWait  time.Duration // not positive: the call must not wait
	MaxBlock time.Duration // longest wait while rejections block; not positive: MaxWait
	Waiter   Waiter        // nil: none
	Since    time.Time     // when the call began; zero: when it joins
	Sent     int           // how often it was sent
	RestsTo  time.Time     // it is no probe before
	Route    uint64        // a hash of its route
	Class    uint8         // what kind of call it is, for the gate
	Cost     int64         // what it takes from a quota that does not count calls; 0: unknown
}

// Waiter is called when a wait begins and ends. No lock is held.
type Waiter interface {
	// WaitBegins is called with the estimated end of the wait. fixed is true for a limit of the client's own.
	WaitBegins(estimate time.Time, fixed bool)
	// WaitEnds is called for each wait that has begun.
	WaitEnds()
}

// Rejection is the result for a call that gets no permit.
type Rejection struct {
	Reason    Reason
	NotBefore time.Time // when a permit may be available; zero: unknown
}

// Reason is why a call is rejected.
type Reason uint8

// The reasons.
const (
	MaxWaitExceeded  Reason = iota // the permit would come later than the call may wait
	DeadlineExceeded               // the permit would come too late for the deadline
	Canceled                       // the call's context is done
)

// Queue is a FIFO queue. Mu and Gate must be set before its first use.
type Queue[P any] struct {
	Mu        *sync.Mutex // the gate's lock; guards the queue
	Gate      Gate[P]
	Fixed     bool          // the gate is a limit of the client's own
	RTT       time.Duration // shortest time from the permit to the response
	LastFirst bool          // GrantAll begins with the call that began last

	calls []*Entry[P] // in the order in which they began
	cost  int64       // of all calls
	timer *time.Timer
	alarm time.Time // when the timer fires; zero: never
}

// Entry is a queued call. Its result is written before ready is closed.
type Entry[P any] struct {
	Limits

	Permit   P             // after Wait
	estimate time.Duration // of its wait
	ready    chan struct{}
	done     bool // ready is closed; under the lock
	rejected *Rejection
}

func (q *Queue[P]) load() Load { return Load{q.Len(), q.cost} }

// Len returns the number of calls that wait.
func (q *Queue[P]) Len() int64 { return int64(len(q.calls)) }

// Enter takes a permit. It waits for it if the limits allow.
func (q *Queue[P]) Enter(now time.Time, limits Limits) (p P, waited bool, rejected *Rejection) {
	q.Mu.Lock()
	p, e, rejected := q.TakeOrJoin(now, &limits)
	if e == nil && rejected == nil {
		q.Gate.Dispatch(now)
	}
	if q.Mu.Unlock(); e != nil {
		rejected = q.Wait(e)
		p = e.Permit
	}
	return p, e != nil, rejected
}

// TakeOrJoin takes a permit, or queues the call. The lock is held.
func (q *Queue[P]) TakeOrJoin(now time.Time, limits *Limits) (p P, e *Entry[P], rejected *Rejection) {
	if len(q.calls) == 0 {
		if p, ok := q.Gate.Take(now, limits.Cost); ok {
			return p, nil, nil
		}
	}
	e = &Entry[P]{Limits: *limits}
	if rejected = q.Join(now, e); rejected != nil {
		e = nil
	}
	return p, e, rejected
}

// Join queues a call, unless its permit would come too late. The lock is held.
func (q *Queue[P]) Join(now time.Time, e *Entry[P]) *Rejection {
	at, blocked := q.Gate.Estimate(now, q.load(), e.Cost)
	wait := max(at.Sub(now), 0)
	trip := q.RTT
	if q.Len() > 0 {
		trip += wait / 32 // an estimate for a call behind others is less exact
	}
	if r := e.check(now, at, trip, blocked); r != nil {
		return r
	}
	if e.MaxWait <= 0 {
		return &Rejection{MaxWaitExceeded, at}
	}
	e.estimate, e.ready = wait, make(chan struct{})
	if e.Since.IsZero() {
		e.Since = now
	}
	q.cost += e.Cost
	ahead := len(q.calls)
	for ahead > 0 && q.calls[ahead-1].Since.After(e.Since) {
		ahead--
	}
	q.calls = slices.Insert(q.calls, ahead, e)
	q.Gate.Dispatch(now)
	return nil
}

// Wait waits for the Permit. The lock is not held.
func (q *Queue[P]) Wait(e *Entry[P]) *Rejection {
	select {
	case <-e.ready:
		return e.rejected // at once: that is no wait
	default:
	}
	limit := time.AfterFunc(e.MaxWait+min(e.slack(), math.MaxInt64-e.MaxWait), func() { q.leave(e, MaxWaitExceeded) })
	begun := e.Waiter == nil
	defer func() {
		if limit.Stop(); !begun { // WaitBegins panicked, or exited the goroutine
			q.leave(e, Canceled)
		}
		if e.Waiter != nil {
			e.Waiter.WaitEnds()
		}
	}()
	if e.Waiter != nil {
		e.Waiter.WaitBegins(time.Now().Add(e.estimate), q.Fixed)
		begun = true
	}
	select {
	case <-e.ready:
	case <-e.Ctx.Done():
		q.leave(e, Canceled)
	}
	return e.rejected
}

// leave ends a wait without a permit. After the end of MaxWait, a permit that was granted in the same instant remains.
func (q *Queue[P]) leave(e *Entry[P], reason Reason) {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	now := time.Now()
	rejected := &Rejection{Reason: reason}
	switch {
	case !e.done:
		q.remove(e)
		if reason == MaxWaitExceeded {
			rejected.NotBefore, _ = q.Gate.Estimate(now, q.load(), e.Cost)
		}
		e.end(e.Permit, rejected)
	case e.rejected != nil || reason == MaxWaitExceeded:
		return
	default:
		q.Gate.Return(e.Permit, now)
		e.Permit, e.rejected = *new(P), rejected
	}
	q.Gate.Dispatch(now)
}

// Cancel returns a permit that was not used. The lock is not held.
func (q *Queue[P]) Cancel(p P, now time.Time) {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	q.Gate.Return(p, now)
	q.Gate.Dispatch(now)
}

// GrantAll grants permits as long as the gate has some. The lock is held.
func (q *Queue[P]) GrantAll(now time.Time) {
	for q.Len() > 0 {
		next := q.First()
		if q.LastFirst {
			next = q.Last()
		}
		p, ok := q.Gate.Take(now, next.Cost)
		if !ok {
			return
		}
		q.Grant(next, p)
	}
}

// Grant gives a permit to a call. The lock is held.
func (q *Queue[P]) Grant(e *Entry[P], p P) { q.finish(e, p, nil) }

// First returns the call that began first. The lock is held.
func (q *Queue[P]) First() *Entry[P] { return q.calls[0] }

// Last returns the call that began last. The lock is held.
func (q *Queue[P]) Last() *Entry[P] { return q.calls[len(q.calls)-1] }

// Middle returns the call in the middle. The lock is held.
func (q *Queue[P]) Middle() *Entry[P] { return q.calls[len(q.calls)/2] }

// InTime returns the first call that has a later deadline than a time, or none. Otherwise it is the last call, because it has
// the most time left. The lock is held.
func (q *Queue[P]) InTime(at time.Time) *Entry[P] {
	for _, e := range q.calls {
		if e.inTime(at) {
			return e
		}
	}
	return q.Last()
}

// Backward returns the calls that wait, with their places, the last one first. The lock is held.
func (q *Queue[P]) Backward() iter.Seq2[int, *Entry[P]] { return slices.Backward(q.calls) }

func (q *Queue[P]) finish(e *Entry[P], p P, r *Rejection) {
	q.remove(e)
	e.end(p, r)
}

func (e *Entry[P]) end(p P, r *Rejection) {
	e.Permit, e.rejected, e.done = p, r, true
	close(e.ready)
}

func (q *Queue[P]) remove(e *Entry[P]) {
	q.cost -= e.Cost
	switch i := slices.Index(q.calls, e); {
	case len(q.calls) == 1:
		q.calls = nil // a long queue needs much memory
	case i == 0: // the usual one, without a move of all others
		q.calls[0] = nil
		q.calls = q.calls[1:]
	default:
		q.calls = slices.Delete(q.calls, i, i+1)
	}
}

// Sweep rejects the calls that would now get their permit too late. The lock is held.
func (q *Queue[P]) Sweep(now time.Time) {
	var ahead Load
	for ahead.Calls < q.Len() {
		e := q.calls[ahead.Calls]
		at, blocked := q.Gate.Estimate(now, ahead, e.Cost)
		if r := e.check(e.Since, at, q.RTT, blocked); r != nil {
			q.finish(e, e.Permit, r)
		} else {
			ahead.Calls++
			ahead.Cost += e.Cost
		}
	}
}

// WakeAt sets the timer; the zero time stops it. The lock is held.
func (q *Queue[P]) WakeAt(at, now time.Time) {
	if at.Equal(q.alarm) {
		return // the usual case, in which setting a timer would cost more
	}
	q.alarm = at
	if q.timer != nil {
		q.timer.Stop()
		q.timer = nil
	}
	if !at.IsZero() {
		q.timer = time.AfterFunc(at.Sub(now), q.wake)
	}
}

func (q *Queue[P]) wake() {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	q.alarm, q.timer = time.Time{}, nil // so that a timer that fired too early is set again
	q.Gate.Dispatch(time.Now())
}

// Alarm returns when the timer fires; zero means never. The lock is held. Only tests call it.
func (q *Queue[P]) Alarm() time.Time { return q.alarm }

func (e *Entry[P]) slack() time.Duration {
	if e.estimate > 0 {
		return EstimateSlack
	}
	return 0
}

// inTime reports whether a response at the given time is before the deadline.
func (e *Entry[P]) inTime(at time.Time) bool { return e.Deadline.IsZero() || at.Before(e.Deadline) }

// check rejects a call that has waited since a time, if a permit at the given time is too late for a round trip.
func (e *Entry[P]) check(since, at time.Time, trip time.Duration, blocked bool) *Rejection {
	wait := at.Sub(since)
	if wait <= 0 {
		return nil
	}
	if !e.inTime(at.Add(trip)) {
		return &Rejection{DeadlineExceeded, at}
	}
	if wait -= e.slack(); wait > e.MaxWait || blocked && e.MaxBlock > 0 && wait > e.MaxBlock {
		return &Rejection{MaxWaitExceeded, at}
	}
	return nil
}
