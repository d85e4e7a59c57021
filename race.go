package resilienthttp

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/allowance"
)

// plan is what is to be done if an attempt takes long: times since its start; 0 is
// never.
type plan struct {
	hedge time.Duration // send a hedge beside it
	again time.Duration // send the next attempt beside it
	cut   time.Duration // end it
	timer *time.Timer   // of the next of these; nil: there is none
	quiet bool          // its outcome is there: nothing is to be done any more
}

// next is the earliest time of the plan, or 0.
func (p *plan) next() time.Duration {
	next := time.Duration(0)
	for _, at := range [...]time.Duration{p.hedge, p.again, p.cut} {
		if at > 0 && (next == 0 || at < next) {
			next = at
		}
	}
	return next
}

const (
	// longestAnswer is the longest that an answer is waited for, where neither the
	// call has a deadline nor the policy a timeout. A proxy that waits longer for its
	// server, or a server for its caller, is rare.
	longestAnswer = 2 * time.Minute

	// slowAnswer is when an answer is so late that another copy of the request is
	// sent, or when half of what is left of the call's deadline has passed.
	slowAnswer = 30 * time.Second
)

// schedule is the attempt's plan. Where the policy sets a timeout, that is a cut; and
// where it does not, a slow answer is not a failure (DESIGN §4.25).
func (c *call) schedule(a *attempt, now time.Time) {
	a.deadline = c.deadline
	left, bounded := c.deadline.Sub(now), !c.deadline.IsZero()
	switch timeout := c.perCall().AttemptTimeout; {
	case timeout > 0:
		if bounded && timeout >= left {
			break
		}
		a.plan.cut = timeout
		if !c.longUpload() { // or it may take longer
			a.deadline = now.Add(timeout)
		}
	case timeout == 0:
		if !bounded {
			a.plan.cut = longestAnswer
		}
		if c.mayBeCopied() {
			a.plan.again = slowAfter(a.beside, left, bounded)
		}
	}
	if s := c.hedging(); s != nil && !a.beside {
		if delay, ok := c.hedge.delay(s, now); ok {
			a.plan.hedge, a.hedgedAfter = delay, delay
		}
	}
}

// slowAfter is when an attempt is so slow that another one is sent beside it: 0 for
// never. One copy is enough, save where the deadline comes nearer.
func slowAfter(beside bool, left time.Duration, bounded bool) time.Duration {
	switch {
	case !bounded && beside:
		return 0
	case !bounded:
		return slowAnswer
	case beside:
		return left / 2
	}
	return min(slowAnswer, left/2)
}

// mayBeCopied reports whether a second copy does no harm while the first is under way:
// the request is safe, or bears the caller's own key. A server that is sent a key
// unasked may not honour it.
func (c *call) mayBeCopied() bool {
	return (c.ownKey || safeMethod(c.request.Method)) && c.replayable() && !c.single
}

func (c *call) attemptsLeft() bool { return c.number < c.perCall().MaxAttempts }

// nextNumber gives a copy the number of the next attempt, if there is one left. The
// race is locked.
func (c *call) nextNumber(copied *attempt) bool {
	if !c.attemptsLeft() {
		return false
	}
	c.number++
	copied.record.Number = c.number
	return true
}

// race is an attempt that the call's goroutine makes, and the copies that are made
// beside it, each in a goroutine of its own: a hedge when it takes longer than
// usual, and further attempts when it takes very long. The first answer wins, and
// the others are cancelled. A failure never beats an answer that may still come.
type race struct {
	first *attempt

	mu        sync.Mutex    // protects what follows, and the plans of all attempts in the race
	over      bool          // an answer is there, or nobody is left to give one: no copy begins any more
	preparing int           // copies that are being made ready, and read the caller's request
	running   int           // copies under way
	copies    []*attempt    // that have begun, in that order
	winner    *attempt      // the first answer
	latest    *attempt      // the last to fail of those that are no hedges
	changed   chan struct{} // closed when preparing or running falls, or somebody wins; nil: nobody waits
	decided   bool          // the outcome has been picked
}

// errLost is the cause with which the slower copies of a request are cancelled.
var errLost = errors.New("another copy of the request was answered first")

// start sets the attempt's timer to what comes first in its plan.
func (a *attempt) start() {
	next := a.plan.next()
	if next == 0 {
		return
	}
	a.round.mu.Lock()
	defer a.round.mu.Unlock()
	a.plan.timer = time.AfterFunc(next, a.wake)
}

// wake does what is due, in a goroutine of its own.
func (a *attempt) wake() {
	if hedge, begin := a.due(); begin {
		a.round.copy(a, hedge)
	}
}

// due finds out what is due, and sets the timer for what comes next. A body that
// makes progress on its way puts off all but the hedge. begin says that a copy is to
// be made, as a hedge or as the next attempt.
func (a *attempt) due() (hedge, begin bool) {
	r := a.round
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &a.plan
	if p.quiet {
		return false, false
	}
	now, moved := time.Since(a.record.Start), a.upload.progress()
	switch {
	case p.cut > 0 && now >= moved+p.cut:
		a.end(ErrAttemptTimeout)
		return false, false
	case p.hedge > 0 && now >= p.hedge:
		p.hedge, hedge, begin = 0, true, true
	case p.again > 0 && now >= moved+p.again:
		p.again, begin = 0, a.call.attemptsLeft()
	}
	rest := *p
	if moved > 0 && rest.cut > 0 {
		rest.cut += moved
	}
	if moved > 0 && rest.again > 0 {
		rest.again += moved
	}
	if next := rest.next(); next > 0 {
		p.timer.Reset(max(next-now, 0))
	}
	if begin = begin && !r.over; begin {
		r.preparing++
	}
	return hedge, begin
}

// hush says that the attempt's outcome is there, and that it is not to be disturbed
// any more.
func (a *attempt) hush() {
	if a.plan.timer == nil {
		return
	}
	a.round.mu.Lock()
	defer a.round.mu.Unlock()
	a.plan.quiet = true
	a.plan.timer.Stop()
}

// copy makes a copy beside an attempt that takes long.
func (r *race) copy(of *attempt, hedge bool) {
	copied := &attempt{call: of.call, round: r, beside: true, record: Attempt{Number: of.record.Number, Hedge: hedge}}
	if of.call.tracing() {
		copied.announced = make(chan struct{})
	}
	begun := false
	defer func() {
		// A GetBody or a hook that panics would end the program here, where the
		// caller's recover cannot reach: there is no copy, no more.
		if !begun {
			_ = recover()
			r.changes(func() { r.preparing-- })
		}
	}()
	if !r.prepare(of, copied) {
		return
	}
	if begun = r.begin(copied); !begun {
		copied.abandon()
		copied.cancelPaid()
		return
	}
	r.run(copied)
}

// prepare makes a copy ready. It returns false if there is to be none: somebody says
// no.
func (r *race) prepare(of, copied *attempt) (ready bool) {
	c, now := of.call, time.Now()
	defer func() {
		if !ready { // also where a function of the user's panics
			copied.abandon()
			copied.cancelPaid()
		}
	}()
	admitted := false
	if copied.record.Hedge {
		copied.share, admitted = c.hedge.admit(c.hedging(), now)
	} else {
		copied.paid, admitted = c.payCopy(of, now)
	}
	return admitted && c.prepare(copied) == nil
}

// payCopy asks the budget for a copy beside an attempt that is slow: for one that was
// usual it is too early, and where the time that is left is not enough, too late.
func (c *call) payCopy(of *attempt, now time.Time) (allowance.Ticket, bool) {
	health, took := c.circuits().Health(c.scopeKey(), now), now.Sub(of.record.Start)
	if took < 2*health.Typical || !c.timeFor(now, health) {
		return allowance.Ticket{}, false
	}
	return c.budget.admit(c.scopeKey(), now, allowance.Ask{Overload: true, Whole: !health.Served, Share: !health.Served && health.Slow})
}

// begin puts a copy on its way, unless the race is over already, or the attempts are
// spent.
func (r *race) begin(copied *attempt) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || !copied.record.Hedge && !copied.call.nextNumber(copied) {
		return false
	}
	r.preparing--
	r.running++
	r.copies = append(r.copies, copied)
	r.notify()
	return true
}

// changes makes a change that somebody may wait for.
func (r *race) changes(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	r.notify()
}

func (r *race) notify() {
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// run sends a copy. A Base or a hook that panics has failed the copy, no more, and so
// has one that ends its goroutine.
func (r *race) run(copied *attempt) {
	back := false
	defer r.finish(copied)
	defer func() {
		if v := recover(); v != nil {
			copied.fail(fmt.Errorf("panic in a copy of the request: %v", v))
		} else if !back {
			copied.fail(errors.New("its goroutine has ended"))
		}
	}()
	copied.send()
	back = true
}

// fail is the outcome of an attempt that has none from Base.
func (a *attempt) fail(err error) {
	a.fate = fateError
	a.record.Err = err
	a.record.Verdict = VerdictTransient
}

// finish makes a copy the winner if it is the first answer.
func (r *race) finish(copied *attempt) {
	useless, won := false, false // its response
	r.changes(func() {
		r.running--
		copied.through = !r.over // too late to be looked at
		switch {
		case r.over:
			useless = true
		case copied.answered():
			won = true
			r.win(copied)
		case copied.record.Hedge:
			useless = true
		default:
			r.latest = copied
		}
	})
	now := time.Now()
	copied.paid.Done(won, now)
	copied.share.Done(won, now)
	if useless {
		copied.discard()
	}
}

// win ends the race, and the way of all but the winner.
func (r *race) win(winner *attempt) {
	r.winner, r.over = winner, true
	r.endOthers()
}

// endOthers cancels all but the winner, if they are not through.
func (r *race) endOthers() {
	for _, a := range append(slices.Clip(r.copies), r.first) {
		if a != r.winner && !a.through {
			a.end(errLost)
		}
	}
}

// answered reports whether the attempt got an answer that ends the call.
func (a *attempt) answered() bool {
	return a.fate == fateAnswered && !a.record.Verdict.retryable()
}

// decide is called when the first copy is through, by the goroutine that made it. It
// waits for those that may still be answered, and returns the one whose outcome
// counts: the first answer, or else the last failure.
func (r *race) decide() *attempt {
	outcome := r.first
	if r.first.plan.timer != nil {
		outcome = r.wait()
		r.enter(outcome)
	}
	r.decided = true
	return outcome
}

// wait waits for the end of the race.
func (r *race) wait() (outcome *attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.first.through = true
	switch {
	case r.winner != nil:
	case r.first.answered():
		r.win(r.first)
	default:
		r.latest = r.first
	}
	// Until a copy is ready it reads the caller's request, which is the caller's
	// again when the call returns.
	for r.preparing > 0 || r.winner == nil && r.running > 0 {
		r.sleep()
	}
	r.over = true
	if r.winner != nil {
		return r.winner
	}
	return r.latest
}

// sleep waits for a change. The race is locked before and after.
func (r *race) sleep() {
	changed := make(chan struct{})
	r.changed = changed
	r.mu.Unlock()
	defer r.mu.Lock()
	<-changed
}

// enter puts the copies into the call's record, and closes the responses of those
// that nobody will see.
func (r *race) enter(outcome *attempt) {
	r.mu.Lock()
	copies := r.copies
	r.mu.Unlock()
	if len(copies) == 0 {
		return
	}
	c := r.first.call
	more := c.further()
	for _, a := range copies {
		if a.announced != nil {
			<-a.announced // or its AttemptStart could come after its AttemptDone
		}
		entry := r.entry(a)
		more.sent = append(more.sent, entry)
		if c.tracing() {
			c.traceAttempt(attemptDone, &entry.record)
		}
		if entry == a && a != outcome && !a.record.Hedge {
			a.discard()
		}
	}
	if r.first != outcome {
		r.first.discard()
	}
}

// entry is what is recorded of a copy. One that has lost goes on for a moment in its
// own goroutine: what the call keeps of it must not change any more.
func (r *race) entry(a *attempt) *attempt {
	r.mu.Lock()
	through := a.through
	r.mu.Unlock()
	if through {
		return a
	}
	return &attempt{call: a.call, fate: fateLost, record: Attempt{
		Number: a.record.Number, Hedge: a.record.Hedge, Request: a.record.Request, Start: a.record.Start, Queued: a.record.Queued,
		Latency: time.Since(a.record.Start), Err: errLost, Verdict: VerdictPermanent,
	}}
}

// abandon ends the copies' way where Base has panicked, or ended the goroutine, and
// nothing was decided.
func (r *race) abandon() {
	if r.decided {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	r.endOthers()
	for r.preparing > 0 {
		r.sleep()
	}
	for _, a := range [...]*attempt{r.winner, r.latest} {
		if a != nil {
			a.discard()
		}
	}
}
