package resilienthttp

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/neterr"
	"github.com/resilienthttp/resilienthttp/internal/outcome"
	"github.com/resilienthttp/resilienthttp/internal/retrybudget"
)

// hedgedCall is an attempt of the call's goroutine with its copies: hedges, and further attempts
// if it is very slow. Each copy has a goroutine. The first response that needs no retry wins and
// cancels the others. A failure does not win while a response is possible. call.mu guards the
// fields.
type hedgedCall struct {
	call     *call
	original *attempt

	over      bool // there is a winner, or nothing is in flight: no copy may begin
	preparing int  // copies in preparation, which read the caller's request, until their AttemptStart has returned
	running   int  // copies in flight
	copies    []*attempt
	winner    *attempt
	latest    *attempt  // the last failure of an attempt that is not a hedge
	kept      *attempt  // a hedge with a response that may not be the result: see mayWin
	changed   sync.Cond // preparing or running; its L is call.mu
	waited    bool      // it came after the outcome of the first attempt
}

func (r *hedgedCall) copy(of *attempt, kind attemptKind) {
	a := &attempt{call: r.call, visit: of.next(kind, time.Now()), hedged: r, kind: kind}
	a.report = Attempt{of: a, Number: of.report.Number, Hedge: kind == kindHedge, Concurrent: true}
	begun := false
	defer func() {
		if !begun {
			_ = recover() // GetBody or a hook may panic; the caller cannot recover in this goroutine
			a.abandon()
			r.change(func() { r.preparing-- })
		}
	}()
	// Tokens first, because abandon returns them if a gate rejects the copy.
	if a.payForCopy() && r.call.prepare(a) == nil && r.begin(a) {
		begun = true
		r.run(a)
	}
}

// payForCopy takes the tokens of a copy: those of a hedge, or of a retry.
func (a *attempt) payForCopy() (ok bool) {
	c, now := a.call, time.Now()
	switch {
	case a.kind != kindHedge:
		a.permits.tokens, ok = c.takeTokens(retrybudget.Request{
			Slow:  c.record.circuit.Usual() == 0, // then the server may have too many requests, as after a timeout
			Batch: c.priority == PriorityBatch,
		}, now, a.visit.Record, c.record)
	case c.mayHedge(now):
		a.permits.tokens, ok = c.hedge.admit(c.record, now.Sub(c.origin), now)
	}
	return ok
}

// mayHedge reports whether the priority may be hedged: PriorityBatch only while the Budget is
// more than half full.
func (c *call) mayHedge(now time.Time) bool {
	if c.priority != PriorityBatch {
		return true
	}
	tokens := c.budget.status(c.record.bucket, now)
	return tokens.Remaining < 0 || tokens.Remaining > tokens.Used
}

// begin counts a prepared copy as running. It returns false if the outcome is known or no attempt
// is left.
func (r *hedgedCall) begin(a *attempt) (begun bool) {
	c := r.call
	r.change(func() {
		// Meanwhile there may be a result, or another copy may have taken the last attempt.
		if r.over || a.kind != kindHedge && !c.mayHaveSecond() {
			return
		}
		if a.kind != kindHedge {
			c.seconds++
			c.number++
			a.report.Number = c.number
		}
		r.running++
		r.copies = append(r.copies, a)
		begun = true
	})
	return begun
}

// change makes a change under the lock, and wakes wait.
func (r *hedgedCall) change(change func()) {
	r.call.mu.Lock()
	defer r.call.mu.Unlock()
	change()
	r.changed.Broadcast()
}

// run sends a copy. If Base or a hook panics, or ends the goroutine, only the copy fails.
func (r *hedgedCall) run(a *attempt) {
	returned := false
	defer r.finish(a)
	defer func() {
		if v := recover(); v != nil {
			a.fail(neterr.With(neterr.New("panic in a concurrent attempt"), fmt.Errorf("%v", v)))
		} else if !returned {
			a.fail(neterr.New("goroutine of a concurrent attempt exited"))
		}
	}()
	r.announce(a)
	a.send()
	returned = true
}

// announce ends the preparation of a copy, so that its AttemptStart is before its AttemptDone.
func (r *hedgedCall) announce(a *attempt) {
	defer r.change(func() { r.preparing-- })
	runHooks(a.call, attemptStart, &a.report)
}

// fail sets the outcome of an attempt for which Base returned none.
func (a *attempt) fail(err error) {
	a.abandon()
	a.came, a.outcome = outcome.Broken, outcome.Of(outcome.Broken, 0)
	// A panic says nothing about the server.
	a.outcome.Server, a.report.work = outcome.Silent, a.outcome.Work
	a.report.Latency = time.Since(a.report.Start)
	a.report.Err = err
	a.report.Verdict = VerdictTransient
	if a.phase.sent() {
		a.call.note(resultUnknown)
	}
}

// finish makes a copy the winner if it is the first to succeed.
func (r *hedgedCall) finish(a *attempt) {
	useless, won := false, false
	r.change(func() {
		r.running--
		a.inTime = !r.over
		switch {
		case r.over:
			// The call has its result, so it does not need this one.
			useless = true
		case a.hasFinalResponse() && r.mayWin(a):
			won = true
			r.win(a)
		case a.hasFinalResponse():
			// It may become the result when the other attempts have failed.
			r.kept = a
		case a.kind == kindHedge:
			// A failed hedge is not the result: its original is in flight, or has failed too.
			useless = true
		default:
			r.latest = a
		}
	})
	a.permits.tokens.Done(retrybudget.Result{Succeeded: won})
	if a.kind == kindHedge {
		r.original.visit.Record.hedges.credit.done(won)
	}
	if useless {
		a.discard()
	}
}

// mayWin reports whether a final response is the result of the call now. A 4xx to a hedge of an
// unsafe method is not while another attempt is in flight, because the server may reject the
// second of two requests with the same key. The lock is held.
func (r *hedgedCall) mayWin(a *attempt) bool {
	clientError := a.report.status()/100 == 4
	ofSecond := clientError && r.call.repeats != repeatsNothing // such a method has no other copies than hedges
	return !ofSecond || !r.othersInFlight(a)
}

// othersInFlight reports whether another attempt of the call has no outcome yet. The lock is held.
func (r *hedgedCall) othersInFlight(a *attempt) bool {
	if !r.original.inTime && a != r.original || r.preparing > 0 {
		return true
	}
	return slices.ContainsFunc(r.copies, func(c *attempt) bool { return c != a && !c.inTime })
}

func (r *hedgedCall) win(winner *attempt) {
	r.winner, r.over = winner, true
	r.cancelOthers()
}

func (r *hedgedCall) cancelOthers() {
	for _, a := range append(slices.Clip(r.copies), r.original) {
		if !a.inTime {
			if r.winner != nil && a.visit.Server != r.winner.visit.Server {
				// It lost to another server, so its own may be too slow: see Overtaken.
				a.visit.Overtaken = true
			}
			a.endWith(neterr.ErrSuperseded)
		}
	}
}

// outcome waits for the copies that may still succeed. It returns the winner, or else the last
// failure. It adds the copies to the reports of the call, and discards the responses that the caller
// does not get.
func (r *hedgedCall) outcome() *attempt {
	result, copies := r.wait()
	c := r.call
	for _, a := range copies {
		entry := r.entry(a)
		state := c.retryState()
		state.later = append(state.later, entry)
		runHooks(c, attemptDone, &entry.report)
		held := a == r.kept || a.kind != kindHedge // finish has discarded the others
		if held && entry == a && a != result {
			a.discard()
		}
	}
	if r.original != result {
		r.original.discard()
	}
	return result
}

func (r *hedgedCall) wait() (result *attempt, copies []*attempt) {
	r.call.mu.Lock()
	defer r.call.mu.Unlock()
	r.original.inTime = true
	switch {
	case r.winner != nil:
	case r.original.hasFinalResponse():
		// There is no winner yet, and the rule of mayWin does not concern the original.
		r.win(r.original)
	default:
		r.latest = r.original
	}
	// A copy in preparation reads the caller's request, which the caller may reuse after the call.
	for r.preparing > 0 || r.winner == nil && r.running > 0 {
		r.waited = true
		r.changed.Wait()
	}
	// A response says more than an error, also one that may not be the result while others are in flight.
	if r.winner == nil && r.latest.report.Response == nil {
		r.winner = r.kept // or none
	}
	r.over = true
	if r.winner != nil {
		return r.winner, r.copies
	}
	return r.latest, r.copies
}

// entry returns the report of a copy. A copy that has lost may still write to its own report, so
// it gets a new one.
func (r *hedgedCall) entry(a *attempt) *attempt {
	r.call.mu.Lock()
	defer r.call.mu.Unlock()
	if a.inTime {
		return a
	}
	report := *a.soFar()
	report.Err, report.Verdict = neterr.ErrSuperseded, VerdictPermanent
	return &attempt{call: a.call, kind: a.kind, came: outcome.Superseded, report: report}
}

// cancelCopies cancels the attempts after a panic of Base, and discards the responses that they hold. An attempt that is in flight
// releases its own when it ends.
func (a *attempt) cancelCopies() {
	a.call.mu.Lock()
	r := a.hedged
	if r == nil {
		a.call.mu.Unlock()
		return
	}
	r.over = true
	r.cancelOthers()
	for r.preparing > 0 {
		r.changed.Wait()
	}
	all := append(slices.Clip(r.copies), r.original)
	done := slices.DeleteFunc(all, func(a *attempt) bool { return !a.inTime || a != r.winner && a != r.kept && a.kind == kindHedge })
	a.call.mu.Unlock()
	for _, each := range done {
		each.discard()
	}
}
