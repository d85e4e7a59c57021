package resilienthttp

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/latency"
	"github.com/resilienthttp/resilienthttp/internal/neterr"
	"github.com/resilienthttp/resilienthttp/internal/retrybudget"
	"github.com/resilienthttp/resilienthttp/internal/scope"
)

const (
	defaultQuantile   = 0.95
	defaultHedgeRatio = 0.05

	minLatencies = 20 // for a measured delay
)

// Hedge sends a second request if an attempt is slower than usual. The first response that needs
// no retry wins, and the other request is canceled. Only requests with a safe method or an
// idempotency key, and a replayable body, are hedged; both have the same key. A hedge never waits
// for breaker or rate limit, and counts against MaxRatio, not against Budget or MaxAttempts.
//
// The zero value hedges after the 95th percentile of latencies, at most 5 % of the calls. A Hedge
// is safe for concurrent use, may be shared by Transports, and must not be modified after its
// first use. Base must obey the request's context. See docs/hedging.md.
type Hedge struct {
	// Delay is the time after which the hedge is sent. Zero means just more than the Quantile,
	// and no hedges before 20 responses; a client with few calls needs a Delay of its own. A
	// negative duration disables hedging.
	Delay time.Duration

	// Quantile is the quantile of the latencies to the response headers, in the last minute, that
	// is the delay. The result is up to a third too high. Zero or NaN means 0.95. More than 1
	// means 1. A negative number disables hedging, unless Delay is set.
	Quantile float64

	// MaxRatio is the maximum ratio of hedges to calls of a scope. Zero or NaN means 0.05. A
	// negative number means no limit. Hedges after a measured delay are also reduced while most
	// do not win.
	MaxRatio float64

	once      sync.Once
	fixed     time.Duration // the delay; zero means that it is measured
	level     float64       // the quantile at which it is measured
	unlimited bool
	rules     retrybudget.Rules
	scopes    scope.Map[string, hedgeScope]
}

type hedgeScope struct {
	scope.Refs

	latencies latency.Window
	bucket    retrybudget.Bucket
	credit    hedgeCredit
	firstCall atomic.Int64 // time of the first call since the origin; zero means none
}

// scope returns the state of a scope, or nil without a Hedge.
func (h *Hedge) scope(name string) *hedgeScope {
	if h == nil {
		return nil
	}
	h.once.Do(h.configure)
	return h.scopes.Get(name)
}

func (h *Hedge) configure() {
	h.fixed, h.level = h.Delay, h.Quantile
	if h.level == 0 || math.IsNaN(h.level) {
		h.level = defaultQuantile
	}
	h.level = min(h.level, 1)
	ratio := h.MaxRatio
	if ratio == 0 || math.IsNaN(ratio) {
		ratio = defaultHedgeRatio
	}
	h.unlimited = ratio < 0
	h.rules = retrybudget.Rules{Origin: time.Now(), Ratio: ratio, Tokens: 1, Static: true}.Checked()
	h.scopes.Held = (*hedgeScope).Held
}

// delay returns the time after which the scope's attempts are hedged.
func (h *Hedge) delay(s *hedgeScope, now time.Time) (time.Duration, bool) {
	if h.fixed != 0 {
		return h.fixed, h.fixed > 0
	}
	if h.level < 0 {
		return 0, false
	}
	recent := s.latencies.Histogram(now.Sub(h.rules.Origin))
	// Most responses may take exactly the quantile, to the precision of the clock. They are not
	// slow.
	return recent.Quantile(h.level) + 1, recent.Samples() >= minLatencies
}

// admit takes a token for one hedge.
func (h *Hedge) admit(s *hedgeScope, now time.Time) (retrybudget.Permit, bool) {
	if h.unlimited {
		return retrybudget.Permit{}, true
	}
	if h.fixed == 0 && !s.credit.admit(now, s.callRate(now.Sub(h.rules.Origin))) {
		return retrybudget.Permit{}, false
	}
	return s.bucket.Admit(now, &h.rules, retrybudget.Request{})
}

// deposit adds the tokens of one call.
func (s *hedgeScope) deposit(h *Hedge, now time.Time) {
	s.bucket.Deposit(now, &h.rules)
	s.firstCall.CompareAndSwap(0, int64(max(now.Sub(h.rules.Origin), 1)))
}

// callRate returns the number of responses per second in the last minute.
func (s *hedgeScope) callRate(at time.Duration) float64 {
	recent := s.latencies.Histogram(at)
	return float64(recent.Samples()) / max(min(at-time.Duration(s.firstCall.Load()), time.Minute).Seconds(), 1)
}

// observe records the latency of an attempt.
func (s *hedgeScope) observe(h *Hedge, a *attempt) {
	switch {
	case a.hasFinalResponse():
		s.latencies.Add(a.report.Start.Add(a.report.Latency).Sub(h.rules.Origin), a.report.Latency)
	case a.end == endSuperseded && a.timers.hedgeDelay > 0:
		// The latency was more than the delay. The age at which the hedge won would raise the
		// next delay, which would raise the next age. The delay would do the same, because it is
		// above a quantile.
		s.latencies.Add(time.Since(h.rules.Origin), a.timers.hedgeDelay-1)
	}
}

// hedgeCredit records whether hedges after a measured delay win. If requests wait in a queue of
// the server, all responses are slow together: hedges then lose, and make the queue longer. The
// zero value has no credit.
type hedgeCredit struct {
	mu      sync.Mutex
	credit  int // a win adds two, a loss takes one; above 0 hedges need no pause
	losses  int // consecutive losses
	nextTry time.Time
}

const (
	maxCredit = 8
	winCredit = 2
	tryPause  = 10 * time.Second // pause between hedges without credit; each loss doubles it
	maxPauses = 8                // maximum of the pause, in multiples of tryPause
	sureRate  = 10               // calls per second at which a try is certain; small clients share a server's queue
)

// admit reports whether a hedge may be sent. Without credit there is one after each pause, with a
// lower probability for a small client.
func (c *hedgeCredit) admit(now time.Time, callRate float64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.credit > 0 {
		return true
	}
	if now.Before(c.nextTry) || rand.Float64() >= callRate/sureRate {
		return false
	}
	pause := tryPause * time.Duration(min(1<<min(c.losses, 8), maxPauses))
	c.nextTry = now.Add(pause + rand.N(pause))
	return true
}

func (c *hedgeCredit) done(won bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if won {
		c.credit, c.losses = min(c.credit+winCredit, maxCredit), 0
		return
	}
	c.credit = max(c.credit-1, 0)
	c.losses++
}

// hedgedCall is an attempt of the call's goroutine with its copies: hedges, and further attempts
// if it is very slow. Each copy has a goroutine. The first response that needs no retry wins and
// cancels the others. A failure does not win while a response is possible. call.mu guards the
// fields.
type hedgedCall struct {
	call  *call
	first *attempt

	over      bool // there is a winner, or nothing is in flight: no copy may begin
	preparing int  // copies in preparation, which read the caller's request
	running   int  // copies in flight
	copies    []*attempt
	winner    *attempt
	latest    *attempt      // the last failure of an attempt that is not a hedge
	changed   chan struct{} // closed when preparing or running changes; nil: nothing waits
	decided   bool          // the outcome is known
	waited    bool          // it came after the outcome of the first attempt
}

// copy sends a copy of an attempt.
func (r *hedgedCall) copy(of *attempt, hedge bool) {
	a := &attempt{call: r.call, hedged: r, concurrent: true}
	a.report = Attempt{Number: of.report.Number, Hedge: hedge, Concurrent: true}
	if r.call.traced {
		a.announced = make(chan struct{})
	}
	begun := false
	defer func() {
		if !begun {
			_ = recover() // GetBody or a hook may panic; the caller cannot recover in this goroutine
			a.abandon()
			a.paid.Cancel()
			r.change(func() { r.preparing-- })
		}
	}()
	if a.payForCopy() && r.call.prepare(a) == nil && r.begin(a) {
		begun = true
		r.run(a)
	}
}

// payForCopy takes the tokens of a copy: those of a hedge, or of a retry.
func (a *attempt) payForCopy() (ok bool) {
	c, now := a.call, time.Now()
	switch {
	case !a.report.Hedge:
		if c.spare(now) >= 0 {
			a.paid, ok = c.takeTokens(now, retrybudget.Request{Batch: c.priority == PriorityBatch})
		}
	case c.mayHedge(now):
		a.paid, ok = c.hedge.admit(c.record.hedges, now)
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
func (r *hedgedCall) begin(a *attempt) bool {
	c := r.call
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.over || !a.report.Hedge && c.number >= c.maxAttempts() {
		return false
	}
	if !a.report.Hedge {
		c.number++
		a.report.Number = c.number
	}
	r.preparing--
	r.running++
	r.copies = append(r.copies, a)
	r.notify()
	return true
}

// change makes a change under the lock, and wakes wait.
func (r *hedgedCall) change(change func()) {
	r.call.mu.Lock()
	defer r.call.mu.Unlock()
	change()
	r.notify()
}

func (r *hedgedCall) notify() {
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
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
	a.send()
	returned = true
}

// fail sets the outcome of an attempt for which Base returned none.
func (a *attempt) fail(err error) {
	a.abandon()
	a.end = endError
	a.report.Latency = time.Since(a.report.Start)
	a.report.Err = err
	a.report.Verdict = VerdictTransient
}

// finish makes a copy the winner if it is the first to succeed.
func (r *hedgedCall) finish(a *attempt) {
	useless, won := false, false
	r.change(func() {
		r.running--
		a.inTime = !r.over
		switch {
		case r.over:
			useless = true
		case a.hasFinalResponse():
			won = true
			r.win(a)
		case a.report.Hedge:
			useless = true
		default:
			r.latest = a
		}
	})
	a.paid.Done(won)
	if a.report.Hedge {
		r.call.record.hedges.credit.done(won)
	}
	if useless {
		a.discard()
	}
}

func (r *hedgedCall) win(winner *attempt) {
	r.winner, r.over = winner, true
	r.cancelOthers()
}

// cancelOthers cancels the attempts without an outcome.
func (r *hedgedCall) cancelOthers() {
	for _, a := range append(slices.Clip(r.copies), r.first) {
		if a != r.winner && !a.inTime {
			a.endWith(neterr.ErrSuperseded)
		}
	}
}

// outcome waits for the copies that may still succeed. It returns the winner, or else the last
// failure. It adds the copies to the call's record, and discards the responses that the caller
// does not get.
func (r *hedgedCall) outcome() *attempt {
	result, copies := r.wait()
	c := r.call
	for _, a := range copies {
		if a.announced != nil {
			<-a.announced // so that its AttemptStart is before its AttemptDone
		}
		entry := r.entry(a)
		state := c.retryState()
		state.later = append(state.later, entry)
		if c.traced {
			c.traceAttempt(attemptDone, &entry.report)
		}
		if entry == a && a != result && !a.report.Hedge {
			a.discard()
		}
	}
	if len(copies) > 0 && r.first != result {
		r.first.discard()
	}
	r.decided = true
	return result
}

// wait waits for the outcome.
func (r *hedgedCall) wait() (result *attempt, copies []*attempt) {
	r.call.mu.Lock()
	defer r.call.mu.Unlock()
	r.first.inTime = true
	switch {
	case r.winner != nil:
	case r.first.hasFinalResponse():
		r.win(r.first)
	default:
		r.latest = r.first
	}
	// A copy in preparation reads the caller's request, which the caller may reuse after the call.
	for r.preparing > 0 || r.winner == nil && r.running > 0 {
		r.waited = true
		r.sleep()
	}
	r.over = true
	if r.winner != nil {
		return r.winner, r.copies
	}
	return r.latest, r.copies
}

// sleep waits for a change, without the lock.
func (r *hedgedCall) sleep() {
	changed := make(chan struct{})
	r.changed = changed
	r.call.mu.Unlock()
	defer r.call.mu.Lock()
	<-changed
}

// entry returns the record of a copy. A copy that has lost may still write to its own record, so
// it gets a new one.
func (r *hedgedCall) entry(a *attempt) *attempt {
	r.call.mu.Lock()
	defer r.call.mu.Unlock()
	if a.inTime {
		return a
	}
	return &attempt{call: a.call, end: endSuperseded, report: Attempt{
		Number: a.report.Number, Hedge: a.report.Hedge, Concurrent: true, Request: a.report.Request, Start: a.report.Start,
		QueueWait: a.report.QueueWait, Latency: time.Since(a.report.Start), Err: neterr.ErrSuperseded, Verdict: VerdictPermanent,
	}}
}

// cancelCopies cancels the copies of an attempt after its Base panicked.
func (a *attempt) cancelCopies() {
	a.call.mu.Lock()
	r := a.hedged
	a.call.mu.Unlock()
	if r == nil || r.decided {
		return
	}
	for _, done := range r.cancelAll() {
		done.discard()
	}
}

// cancelAll cancels all attempts, and returns those that may hold a response. The others release
// their responses when they end.
func (r *hedgedCall) cancelAll() (done []*attempt) {
	r.call.mu.Lock()
	defer r.call.mu.Unlock()
	r.over = true
	r.cancelOthers()
	for r.preparing > 0 {
		r.sleep()
	}
	for _, a := range append(slices.Clip(r.copies), r.first) {
		if a.inTime && (a == r.winner || !a.report.Hedge) {
			done = append(done, a)
		}
	}
	return done
}
