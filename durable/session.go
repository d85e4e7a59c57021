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

	"github.com/resilienthttp/resilienthttp/idempotency"
	"github.com/resilienthttp/resilienthttp/internal/sleep"
)

// session is one call of Run, Work or WorkOne with the attempts that it began.
type session struct {
	core *core

	// sends is the context of the attempts: it ends DrainTimeout after that of the call.
	// stores is the context of storing outcomes, and ends a little later.
	sends, stores         context.Context
	stopping              func() error // the error of the call's context
	stopSends, stopStores context.CancelCauseFunc
	forget                func() bool // the call's context

	mu        sync.Mutex
	lease     context.Context // of the worker that sends
	leased    context.Context // ends with sends and with lease
	stopLease func() bool

	all   sync.WaitGroup
	busy  atomic.Int64  // attempts that are not over
	freed chan struct{} // one is over
}

// outcomeGrace is how long after DrainTimeout outcomes may be stored.
const outcomeGrace = 800 * time.Millisecond

func (c *core) session(ctx context.Context) *session {
	s := &session{core: c, stopping: ctx.Err, freed: make(chan struct{}, 1)}
	s.sends, s.stopSends = context.WithCancelCause(context.WithoutCancel(ctx))
	s.stores, s.stopStores = context.WithCancelCause(context.WithoutCancel(ctx))
	s.forget = context.AfterFunc(ctx, func() {
		_ = sleep.Context(s.sends, c.DrainTimeout)
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

// during returns a context that ends with sends and with the lease.
func (s *session) during(lease context.Context) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease != lease {
		ctx, cancel := context.WithCancelCause(s.sends)
		end := func() { cancel(context.Cause(lease)) }
		s.stopLease = context.AfterFunc(lease, end)
		if lease.Err() != nil { // AfterFunc takes its time
			end()
		}
		s.lease, s.leased = lease, ctx
	}
	return s.leased
}

func (s *session) send(a *attempt) {
	s.busy.Add(1)
	s.all.Add(1)
	go a.run(s)
}

// over notes the end of an attempt.
func (s *session) over() {
	s.busy.Add(-1)
	select {
	case s.freed <- struct{}{}:
	default:
	}
	s.all.Done()
}

// releaseLease lets go of the worker's lease, which outlives the session.
func (s *session) releaseLease() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopLease != nil {
		s.stopLease()
	}
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
	defer s.releaseLease()
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
	select {
	case <-over:
		return true
	case <-time.After(d):
		return false
	}
}

// startSending is start for an Engine that sends. Without a Gateway it would bury all intents.
func (e *Engine) startSending() (*core, error) {
	c, err := e.start()
	if err == nil && len(c.routes) == 0 {
		err = invalidf("Engine.Gateways is empty, want at least one to send")
	}
	return c, err
}

// Run sends due intents until ctx ends. Then it claims nothing more, waits up to DrainTimeout
// for sends in flight, gives up the others as unknown, and returns nil. It returns an error
// only if the configuration is invalid. Errors of the store are reported to Trace.Failed, and
// Run goes on.
func (e *Engine) Run(ctx context.Context) error {
	c, err := e.startSending()
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
	for jobs := false; ctx.Err() == nil; {
		now := time.Now()
		if now.Sub(reaped) >= c.PollInterval/2 {
			c.reap(ctx)
			reaped, jobs = now, true
		}
		old := false
		if c.Retention > 0 && now.Sub(swept) >= time.Minute {
			if old = c.sweep(ctx); !old {
				swept = now
			}
		}
		jobs = jobs && c.workJob(ctx)
		taken, room, err := c.claim(ctx, s, c.Concurrency, nil)
		c.report(ctx, nil, err)
		if err == nil && room > 0 && taken == room || jobs || old {
			continue
		}
		c.idle(ctx)
	}
}

// idle waits for something to do.
func (c *core) idle(ctx context.Context) {
	select {
	case <-time.After(min(c.PollInterval/2+rand.N(c.PollInterval/2+1), max(c.wait(), fetchCooldown))):
	case <-c.wake:
	case <-ctx.Done():
	}
}

// sweep deletes a page of old intents, and reports whether there may be more. The page is twice
// what a claim takes at most, so that sweeping is faster than sending.
func (c *core) sweep(ctx context.Context) bool {
	page := 2 * c.Concurrency
	swept, err := bounded(ctx, c, func(ctx context.Context) (int, error) { return c.Store.Sweep(ctx, c.Retention, page) })
	c.report(ctx, nil, err)
	return err == nil && swept == page
}

// Work is one round, for a scheduler such as cron or Temporal. It sends up to limit due intents
// (0 or less: Concurrency), waits until they are over, and returns their number. It also reaps,
// and works a page of a Job. If ctx ends it behaves like Run.
func (e *Engine) Work(ctx context.Context, limit int) (int, error) {
	c, err := e.startSending()
	if err != nil {
		return 0, err
	}
	if limit <= 0 {
		limit = c.Concurrency
	}
	c.reap(ctx)
	total := 0
	err = c.within(ctx, func(s *session) error {
		for jobs := true; total < limit && ctx.Err() == nil; {
			jobs = jobs && c.workJob(ctx)
			busy := s.busy.Load() > 0 || jobs
			taken, _, err := c.claim(ctx, s, limit-total, nil)
			total += taken
			if err != nil || taken == 0 && !busy {
				return err
			}
			if taken == 0 && !jobs { // tenants and senders may have room when one is over
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

// within runs a session for one call.
func (c *core) within(ctx context.Context, work func(*session) error) error {
	s := c.session(ctx)
	alive, stop := context.WithCancel(context.WithoutCancel(ctx))
	var beats sync.WaitGroup
	beats.Go(func() { c.beat(alive) })
	err := work(s)
	s.close()
	c.mu.Lock()
	c.endTurn(s)
	c.mu.Unlock()
	stop()
	beats.Wait()
	return err
}

// WorkOne sends one intent if it is due, and returns the time of the next call, by this
// process's clock and at least a PollInterval from now. Zero means that the intent is done, dead or
// canceled. If another worker holds it, that is a lease from now. An intent that has lost three workers
// in a row waits until the Engine sends nothing else. WorkOne needs a free worker, and ignores
// PerTenant, PerGateway and the Engine's own hold: the queue that calls it is responsible for fairness.
// ErrNotFound: there is no such intent.
func (e *Engine) WorkOne(ctx context.Context, id idempotency.ID) (next time.Time, err error) {
	c, err := e.startSending()
	if err != nil {
		return time.Time{}, err
	}
	if err := c.within(ctx, func(s *session) error {
		return c.claimID(ctx, s, func() error {
			_, _, err := c.claim(ctx, s, 1, &id)
			return err
		})
	}); err != nil {
		return time.Time{}, err
	}
	record, err := c.Store.Find(ctx, id)
	switch {
	case err != nil:
		return time.Time{}, err
	case record.State.Held():
		return time.Now().Add(c.LeaseDuration), nil
	case record.State.Claimable():
		next, soonest := c.dueByOurs(&record), time.Now().Add(c.PollInterval)
		if at := c.resumes(&record); at.After(soonest) && !record.QueryNext {
			soonest = at
		}
		if next.Before(soonest) {
			return soonest, nil
		}
		return next, nil
	default:
		return time.Time{}, nil
	}
}

// attempt is one send or status query.
type attempt struct {
	core   *core
	worker *worker
	change *Change
	route  *route
	terms  Terms     // of the outcome
	now    time.Time // the database's, when it was claimed
	asked  time.Time // ours, before that
	alone  bool      // the Engine holds nothing else
	ended  atomic.Bool
}

// clock returns the database's time.
func (a *attempt) clock() time.Time { return a.now.Add(time.Since(a.asked)) }

// grace is the time in which a Gateway must return after its context has ended.
const grace = 200 * time.Millisecond

// run calls the Gateway, and ends the attempt with its outcome. If the Gateway does not return
// in time, the attempt ends without it; its worker slot is busy until it returns.
func (a *attempt) run(s *session) {
	// It ends with the lease, with Timeout, with DrainTimeout and, for a resend of an unknown result, with the protection of its key.
	at, cause := a.bound()
	ctx, cancel := context.WithDeadlineCause(s.during(a.worker.lease.context()), at, cause)
	answer := Outcome{} // stays so if the Gateway ends its goroutine
	stop := context.AfterFunc(ctx, func() {
		time.AfterFunc(grace, func() {
			if a.ended.CompareAndSwap(false, true) {
				a.end(s, Outcome{Err: context.Cause(ctx)}, false)
			}
		})
	})
	defer func() {
		stop()
		cancel()
		if a.ended.CompareAndSwap(false, true) {
			a.end(s, answer, true)
		} else {
			a.core.free(a)
		}
	}()
	switch {
	case s.stopping() != nil:
		answer = notBegun(errDrained)
	case ctx.Err() != nil: // the answer to the claim came late
		answer = notBegun(context.Cause(ctx))
	case a.change.Record.LostLeases > 0 && a.decide(&Outcome{Err: errLostLease}).Action == Bury: // Reap does not know the Policy
		answer = notBegun(errLostLease)
	default:
		answer = a.guarded(ctx)
	}
}

// end stores the outcome. If the Gateway has returned, its worker slot is free meanwhile.
func (a *attempt) end(s *session, outcome Outcome, returned bool) {
	defer s.over()
	record := &a.change.Record
	event := Event{
		Kind: EventFinish, Intent: Intent{ID: record.ID}, Worker: record.Worker, Generation: record.Generation,
		Terms: &a.terms, Outcome: outcome, Held: record, Interrupted: s.interrupted(&outcome),
	}
	switch {
	case event.Interrupted && record.State == StateQuerying:
		event.Decision = Decision{Action: Query} // at once
	case !event.Interrupted && outcome.Class != ClassSucceeded:
		event.Decision = a.decide(&outcome)
	}
	hold := a.core.answered(a, &outcome)
	if returned {
		a.core.free(a)
	}
	if hold != nil {
		a.core.storeHold(s.stores, hold)
	}
	change, err := a.core.batcher.store(s.stores, record, event)
	a.core.stored(s, a, err == nil || errors.Is(err, ErrFenced))
	if err != nil {
		a.core.Trace.failed(fmt.Errorf("durable: an outcome was not stored: %w", err))
	} else {
		change.Err = outcome.Err
		a.core.Trace.changed(&change)
	}
}

// interrupted reports whether an attempt has this outcome because the call ended: it was not begun,
// or it was cut after DrainTimeout.
func (s *session) interrupted(o *Outcome) bool {
	switch {
	case s.stopping() == nil || o.Status != 0:
		return false
	case o.Class == ClassUnknown:
		return s.sends.Err() != nil
	default:
		return o.Unsent() && (s.sends.Err() != nil || errors.Is(o.Err, errDrained))
	}
}

// bound returns the deadline of the attempt, and its cause.
func (a *attempt) bound() (at time.Time, cause error) {
	at, cause = time.Now().Add(maxWait), errTimeout
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

// guarded calls the Gateway. After a panic, or the end of the goroutine, the result is unknown.
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

// maxRetryAfter is the longest delay that a provider can ask for: a longer one would let the
// intent reach its MaxAge.
const maxRetryAfter = 24 * time.Hour

// decide calls the Policy, and corrects what is not permitted.
func (a *attempt) decide(outcome *Outcome) Decision {
	record := &a.change.Record
	now := a.clock()
	notBefore := time.Time{}
	if !outcome.NotBefore.IsZero() {
		notBefore = now.Add(min(max(time.Until(outcome.NotBefore), 0), maxRetryAfter))
	}
	fitted := outcome.Fitted()
	means := meaning(&fitted, record, record.State, &a.terms)
	h := &History{
		Intent: record.Intent, Outcome: fitted, WasQuery: record.State == StateQuerying,
		InDoubt:  means == ClassUnknown,
		CanQuery: a.terms.CanQuery, Attempts: record.Attempts, Tries: record.Claims, Declines: record.Declines,
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

// ask calls the Policy. If it panics, the zero Schedule decides.
func (a *attempt) ask(h *History, now time.Time) (d Decision) {
	defer func() {
		if p := recover(); p != nil {
			a.core.Trace.failed(fmt.Errorf("durable: the policy of %q panicked: %s", a.change.Record.Gateway, panicText(p)))
			d = Schedule{}.Next(h, now)
		}
	}()
	return a.route.policy.Next(h, now)
}

// panicText returns what may be logged of a panic: the text of a runtime error, and of other
// values the type.
func panicText(p any) string {
	if err, ok := p.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("%T", p)
}
