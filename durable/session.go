package durable

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/durable/driver"
	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// session is one call of Run, Work or WorkOne with the attempts that it began.
type session struct {
	core *core

	// sends is the context of the attempts: it ends DrainTimeout after that of the call.
	// stores is the context of storing outcomes, and ends a little later.
	sends, stores         context.Context
	stopSends, stopStores context.CancelCauseFunc
	forget                func() bool // the call's context

	// ahead is how far the local clock is ahead of the store's, plus the latency of a claim.
	ahead time.Duration

	all   sync.WaitGroup
	busy  atomic.Int64  // attempts that are not over
	freed chan struct{} // one is over
}

// outcomeGrace is how long after DrainTimeout outcomes may be stored.
const outcomeGrace = 800 * time.Millisecond

func (c *core) session(ctx context.Context) *session {
	s := &session{core: c, freed: make(chan struct{}, 1)}
	s.sends, s.stopSends = context.WithCancelCause(context.WithoutCancel(ctx))
	s.stores, s.stopStores = context.WithCancelCause(context.WithoutCancel(ctx))
	s.forget = context.AfterFunc(ctx, func() {
		_ = sleep.Context(s.sends, c.Drain)
		s.stopSends(errDrained)
	})
	return s
}

// claiming is the context of a claim. It does not end with ctx: the intents of a claim that is
// cut off are unknown, though nothing was sent. So a claim may still answer for outcomeGrace,
// and no longer than DrainTimeout.
func (s *session) claiming(ctx context.Context) (context.Context, context.CancelFunc) {
	claiming, cancel := context.WithCancel(s.sends)
	stop := context.AfterFunc(ctx, func() {
		_ = sleep.Context(claiming, outcomeGrace)
		cancel()
	})
	return claiming, func() {
		stop()
		cancel()
	}
}

func (s *session) send(a *attempt) {
	s.busy.Add(1)
	s.all.Go(func() {
		a.run(s)
		s.busy.Add(-1)
		select {
		case s.freed <- struct{}{}:
		default:
		}
	})
}

// close waits for all attempts until sends ends, and then stops them.
func (s *session) close() {
	over := make(chan struct{})
	go func() {
		s.all.Wait()
		close(over)
	}()
	defer s.stopStores(errDrained)
	defer s.stopSends(errDrained)
	defer s.forget()
	select {
	case <-over:
		return
	case <-s.sends.Done():
	}
	if wait(over, outcomeGrace) {
		return
	}
	s.stopStores(errDrained)
	wait(over, outcomeGrace/8)
}

// wait reports whether it came within d.
func wait(over <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-over:
		return true
	case <-timer.C:
		return false
	}
}

// Run sends what is due until ctx ends. Then it claims nothing more, waits for Drain
// for what is being sent, gives that up as unknown which is not over then, and returns
// nil. An error says that the configuration is wrong; the store's errors go to
// Trace.Failed, and Run goes on.
func (e *Engine) Run(ctx context.Context) error {
	c, err := e.start()
	if err != nil {
		return err
	}
	err = c.within(ctx, func(s *session) error {
		defer c.listen(ctx)()
		c.loop(ctx, s)
		return nil
	})
	c.releaseLease(ctx)
	return err
}

// loop claims until ctx ends.
func (c *core) loop(ctx context.Context, s *session) {
	var reaped, swept time.Time
	for ctx.Err() == nil {
		if now := time.Now(); now.Sub(reaped) >= c.Poll/2 {
			c.reap(ctx)
			reaped = now
			if c.Expiry > 0 && now.Sub(swept) >= time.Minute && !c.sweep(ctx) {
				swept = now
			}
		}
		taken, room, err := c.claim(ctx, s, c.Concurrency, nil)
		if err != nil && ctx.Err() == nil {
			c.Trace.failed(err)
		}
		if err == nil && room > 0 && taken == room {
			continue
		}
		c.idle(ctx)
	}
}

// idle waits for something to do.
func (c *core) idle(ctx context.Context) {
	timer := time.NewTimer(min(c.Poll/2+rand.N(c.Poll/2+1), max(c.wait(), fetchCooldown)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.wake:
	case <-ctx.Done():
	}
}

// sweep deletes a page of what is over for long, and reports whether there may be more.
func (c *core) sweep(ctx context.Context) bool {
	const page = 500
	swept, err := bounded(ctx, c, func(ctx context.Context) (int, error) { return c.Store.Sweep(ctx, c.Expiry, page) })
	if err != nil && ctx.Err() == nil {
		c.Trace.failed(err)
	}
	return err == nil && swept == page
}

// Work is one round for those who have a clock of their own, such as cron or Temporal:
// it takes up to limit of what is due, 0 or less for as many as Concurrency, no more at
// once than Run would, and returns when all of these are over, with their number. It
// reaps, too. When ctx ends it behaves as Run.
func (e *Engine) Work(ctx context.Context, limit int) (int, error) {
	c, err := e.start()
	if err != nil {
		return 0, err
	}
	if limit <= 0 {
		limit = c.Concurrency
	}
	c.reap(ctx)
	total := 0
	err = c.within(ctx, func(s *session) error {
		for total < limit && ctx.Err() == nil {
			busy := s.busy.Load() > 0
			taken, _, err := c.claim(ctx, s, limit-total, nil)
			total += taken
			if err != nil || taken == 0 && !busy {
				return err
			}
			if taken == 0 { // tenants and senders may have room when one is over
				select {
				case <-s.freed:
				case <-ctx.Done():
				}
			}
		}
		return nil
	})
	return total, err
}

// within has a round for the length of a call.
func (c *core) within(ctx context.Context, work func(*session) error) error {
	s := c.session(ctx)
	alive, stop := context.WithCancel(context.WithoutCancel(ctx))
	var beats sync.WaitGroup
	beats.Go(func() { c.beat(alive) })
	err := work(s)
	s.close()
	stop()
	beats.Wait()
	return err
}

// WorkOne sends one intent if it is due, and says when to come again, by this process's
// clock and a Poll from now at the earliest: zero when it is done, dead or cancelled. One
// that somebody else is at is to be looked at again after a lease. It needs a sender, but no
// share of a tenant or a Gateway: fairness is that of the queue which calls it. ErrNotFound:
// there is none.
func (e *Engine) WorkOne(ctx context.Context, id idempotency.ID) (next time.Time, err error) {
	c, err := e.start()
	if err != nil {
		return time.Time{}, err
	}
	var ahead time.Duration
	if err := c.within(ctx, func(s *session) error {
		_, _, err := c.claim(ctx, s, 1, &id)
		ahead = s.ahead
		return err
	}); err != nil {
		return time.Time{}, err
	}
	record, err := c.Store.Find(ctx, id)
	switch {
	case err != nil:
		return time.Time{}, err
	case record.State.Held():
		return time.Now().Add(c.Lease), nil
	case record.State.Claimable():
		next, soonest := record.NextAt.Add(ahead), time.Now().Add(c.Poll)
		if next.Before(soonest) {
			return soonest, nil
		}
		return next, nil
	default:
		return time.Time{}, nil
	}
}

// attempt is one send or question.
type attempt struct {
	core   *core
	worker *worker
	change *driver.Change
	route  *route
	now    time.Time // the database's, when it was claimed
	asked  time.Time // ours, before that
}

// clock is the database's time.
func (a *attempt) clock() time.Time { return a.now.Add(time.Since(a.asked)) }

// grace is how long a Gateway may take to come back when its time is over.
const grace = 200 * time.Millisecond

func (a *attempt) run(s *session) {
	record := &a.change.Record
	outcome, gone := a.call(s)
	event := driver.Event{
		Kind: driver.EventFinish, Intent: Intent{ID: record.ID}, Worker: record.Worker, Generation: record.Generation,
		Terms: &a.route.terms, Outcome: outcome, Held: record,
	}
	if outcome.Class != ClassSucceeded {
		event.Decision = a.decide(&outcome)
	}
	a.core.answered(a, &outcome)
	a.yield(gone)
	change, err := a.core.batcher.store(s.stores, record, event)
	a.core.stored(a.worker, err == nil || errors.Is(err, driver.ErrFenced))
	if err != nil {
		a.core.Trace.failed(fmt.Errorf("durable: an outcome was not stored: %w", err))
	} else {
		a.core.Trace.changed(&change)
	}
}

// yield gives the sender back, which sends the next while the outcome is stored.
func (a *attempt) yield(gone <-chan struct{}) {
	select {
	case <-gone: // a Gateway that does not come back keeps its sender
		a.core.free(a)
	default:
		go func() {
			<-gone
			a.core.free(a)
		}()
	}
}

// call calls the Gateway, and waits for it as long as that makes sense. gone is closed
// when it has come back.
func (a *attempt) call(s *session) (outcome Outcome, gone <-chan struct{}) {
	ctx, cancel := a.context(s)
	defer cancel()
	if ctx.Err() != nil { // the claim's answer came late
		never := make(chan struct{})
		close(never)
		return Outcome{Class: ClassFailed, Err: unsentError{context.Cause(ctx)}}, never
	}
	var answer Outcome // stays as it is where the Gateway ends its goroutine
	over := make(chan struct{})
	go func() {
		defer close(over)
		answer = a.guarded(ctx)
	}()
	select {
	case <-over:
		return answer, over
	case <-ctx.Done():
	}
	if wait(over, grace) {
		return answer, over
	}
	return Outcome{Err: context.Cause(ctx)}, over
}

// context is that of the send: it ends with the lease, with Timeout, with Drain, and a
// resend of what nobody knows with the protection of its key. The two of these that nothing
// puts off are its deadline.
func (a *attempt) context(s *session) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(s.sends)
	held := a.worker.lease.context()
	ends := func() { cancel(context.Cause(held)) }
	stop := context.AfterFunc(held, ends)
	if held.Err() != nil { // AfterFunc takes its time
		ends()
	}
	at, cause := a.bound()
	ctx, done := context.WithDeadlineCause(ctx, at, cause)
	return ctx, func() {
		stop()
		done()
		cancel(context.Canceled)
	}
}

// bound is when the attempt must be over, and why.
func (a *attempt) bound() (at time.Time, cause error) {
	at, cause = time.Now().Add(driver.MaxWait), errTimeout
	if a.core.Timeout > 0 {
		at = time.Now().Add(a.core.Timeout)
	}
	if record := &a.change.Record; record.InDoubt && record.State == StateSending {
		if last := a.asked.Add(record.FirstSentAt.Add(a.route.terms.KeyTTL - a.route.terms.VisibilityDelay).Sub(a.now)); last.Before(at) {
			return last, errKeyTTL
		}
	}
	return at, cause
}

var errPanicked = errors.New("durable: the gateway panicked")

// guarded calls the Gateway. A panic, or the end of the goroutine, is an outcome that
// nobody knows.
func (a *attempt) guarded(ctx context.Context) (outcome Outcome) {
	record := &a.change.Record
	s := &Send{
		Intent: record.Intent, Number: record.Attempts, Key: a.change.StartedAttempt.Key, Epoch: record.Epoch,
		Generation: record.Generation, First: record.FirstSentAt,
	}
	defer func() {
		if p := recover(); p != nil {
			outcome = Outcome{Err: errPanicked}
			a.core.Trace.failed(fmt.Errorf("durable: the gateway %q panicked: %s", record.Gateway, panicText(p)))
		}
	}()
	if record.State == StateQuerying {
		return a.route.finder.Find(ctx, s)
	}
	return a.route.gateway.Send(ctx, s)
}

// decide asks the Policy, and puts right what it must not say.
func (a *attempt) decide(outcome *Outcome) Decision {
	record := &a.change.Record
	now := a.clock()
	notBefore := time.Time{}
	if !outcome.NotBefore.IsZero() {
		notBefore = now.Add(min(max(time.Until(outcome.NotBefore), 0), driver.MaxWait))
	}
	fitted := outcome.Fitted()
	means := driver.Meaning(&fitted, record, record.State, &a.route.terms)
	h := &History{
		Intent: record.Intent, Outcome: fitted, WasQuery: record.State == StateQuerying,
		InDoubt:  means == ClassUnknown,
		CanQuery: a.route.terms.CanQuery, Attempts: record.Attempts, Tries: record.Claims, Declines: record.Declines,
		Since: record.RetryWindowStart, First: record.FirstSentAt,
	}
	if means == ClassDeclined {
		h.Declines++
	}
	if h.Outcome.NotBefore = notBefore; !record.LastSentAt.IsZero() {
		h.Wait = max(record.NextAt.Sub(record.LastSentAt), 0)
	}
	if outcome.Unsent() {
		h.Attempts--
	}
	d := a.ask(h, now)
	if !d.At.After(now) {
		d.At = now.Add(time.Second + rand.N(time.Second))
	}
	if d.At.Before(notBefore) && (d.Action != Query || !h.InDoubt || !h.CanQuery) {
		d.At = notBefore.Add(rand.N(time.Second))
	}
	return d
}

// ask asks the Policy. One that panics is not heard.
func (a *attempt) ask(h *History, now time.Time) (d Decision) {
	defer func() {
		if p := recover(); p != nil {
			a.core.Trace.failed(fmt.Errorf("durable: the policy of %q panicked: %s", a.change.Record.Gateway, panicText(p)))
			d = Schedule{}.Next(h, now)
		}
	}()
	return a.route.policy.Next(h, now)
}

// panicText tells of a panic what may be logged: what the runtime says, and of other
// values, which may hold anything, the type.
func panicText(p any) string {
	if err, ok := p.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("%T", p)
}
