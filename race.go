package resilienthttp

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/neterr"
	"github.com/resilienthttp/resilienthttp/internal/retrybudget"
)

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
	waited    bool          // which came later than the first's
}

// errLost is the cause with which the slower copies of a request are cancelled.
var errLost = neterr.New("another copy of the request was answered first")

// copy makes a copy beside an attempt that takes long.
func (r *race) copy(of *attempt, hedge bool) {
	copied := &attempt{call: of.call, round: r, beside: true, record: Attempt{Number: of.record.Number, Hedge: hedge, Concurrent: true}}
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
		copied.paid.Cancel()
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
			copied.paid.Cancel()
		}
	}()
	var admitted bool
	if copied.record.Hedge {
		if c.mayHedge(now) {
			copied.hedged = c.hedging()
			copied.paid, admitted = c.hedge.admit(copied.hedged, now)
		}
	} else {
		copied.paid, admitted = c.payCopy(now)
	}
	return admitted && c.prepare(copied) == nil
}

// payCopy asks the budget for a copy beside an attempt that is slow: where the time
// that is left is not enough, it is too late.
func (c *call) payCopy(now time.Time) (retrybudget.Permit, bool) {
	if !c.timeFor(now) {
		return retrybudget.Permit{}, false
	}
	return c.budget.admit(c.scopeKey(), now, retrybudget.Request{Batch: c.priority == PriorityBatch})
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
			copied.fail(neterr.With(neterr.New("panic in a copy of the request"), fmt.Errorf("%v", v)))
		} else if !back {
			copied.fail(neterr.New("its goroutine has ended"))
		}
	}()
	copied.send()
	back = true
}

// fail is the outcome of an attempt that has none from Base.
func (a *attempt) fail(err error) {
	a.fate = fateError
	a.record.Latency = time.Since(a.record.Start)
	a.record.Err = err
	a.record.Verdict = VerdictTransient
}

// finish makes a copy the winner if it is the first answer.
func (r *race) finish(copied *attempt) {
	useless := false // its response
	won := false
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
	copied.paid.Done(won)
	if copied.hedged != nil {
		copied.hedged.credit.done(won)
	}
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
		r.waited = true
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
		Number: a.record.Number, Hedge: a.record.Hedge, Concurrent: true, Request: a.record.Request, Start: a.record.Start, QueueWait: a.record.QueueWait,
		Latency: time.Since(a.record.Start), Err: errLost, Verdict: VerdictPermanent,
	}}
}

// abandon ends the copies' way where Base has panicked, or ended the goroutine, and
// nothing was decided.
func (r *race) abandon() {
	if r.decided {
		return
	}
	for _, a := range r.leave() {
		a.discard()
	}
}

// leave ends the race without an outcome, and returns those that are through and hold a
// response, maybe: the others let go of theirs when they are.
func (r *race) leave() (through []*attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	r.endOthers()
	for r.preparing > 0 {
		r.sleep()
	}
	for _, a := range append(slices.Clip(r.copies), r.first) {
		if a.through && (a == r.winner || !a.record.Hedge) { // a hedge that is of no use has closed its own
			through = append(through, a)
		}
	}
	return through
}
