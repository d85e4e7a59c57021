package resilienthttp

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/allowance"
	"github.com/resilienthttp/resilienthttp/internal/scope"
)

const (
	defaultQuantile   = 0.95
	defaultHedgeRatio = 0.05
	hedgeWindow       = 10 * time.Second

	fewestLatencies = 20  // before a quantile means anything
	keptLatencies   = 128 // the recent ones, per scope
	staleLatencies  = 16  // new ones before the quantile is computed anew
)

// Hedge cuts the tail of the latency: an attempt that takes unusually long gets
// a second copy, and the first answer wins (Dean and Barroso, "The Tail at
// Scale"). The loser is cancelled. A failure never beats an answer that is still
// in flight.
//
// Only requests are hedged whose second copy changes nothing and is answered like
// the first: those with a safe method (RFC 9110 section 9.2.1) or an idempotency
// key, whose body can be replayed. (DELETE is idempotent, but its second copy gets
// a 404.) Both copies bear the same key. GetBody is called for the second copy
// while Base may still read the body of the first. A hedge passes breaker and rate limit without waiting and
// counts against MaxRatio, and not against the Budget; if one of them says no,
// there is no hedge. It is not counted against Policy.MaxAttempts.
//
// The zero value hedges after the 95th percentile of the scope's latencies, at
// most 5 % of calls. A Hedge is safe for concurrent use, may be shared by several
// Transports, and its fields must not change after its first use.
type Hedge struct {
	// Delay is the time after which the second copy is sent. 0 means just longer
	// than the Quantile of the scope's recent latencies, once 20 are known and
	// until then no hedging. A client with few calls does better with a Delay of
	// its own. A negative duration turns hedging off.
	Delay time.Duration

	// Quantile says which of the scope's last 128 latencies to headers is the
	// delay; of a copy that lost, the delay is all that is known. 0 or NaN means 0.95; more than 1 means 1; negative turns hedging by
	// quantile off.
	Quantile float64

	// MaxRatio caps hedges as a share of the scope's calls in the last 10 s; at
	// least one in that time is allowed. 0 or NaN means 0.05; negative means no
	// cap.
	MaxRatio float64

	once      sync.Once
	fixed     time.Duration // the delay, if it is not measured
	level     float64       // the quantile, if it is
	unlimited bool
	rule      allowance.Rule
	scopes    scope.Map[scope.Key, hedgeScope]
}

// hedgeScope is what a Hedge knows of one scope.
type hedgeScope struct {
	latencies latencies
	share     allowance.Allowance
}

func (h *Hedge) settle(now time.Time) {
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
	h.rule = allowance.Rule{Origin: now, Window: hedgeWindow, Ratio: ratio, Least: 1, Static: true}.Checked()
	h.scopes.Clone = scope.Key.Clone
}

// delay is the time after which the scope's attempts are hedged.
func (h *Hedge) delay(s *hedgeScope) (time.Duration, bool) {
	if h.fixed != 0 {
		return h.fixed, h.fixed > 0
	}
	if h.level < 0 {
		return 0, false
	}
	quantile, ok := s.latencies.quantile(h.level)
	// Longer than the quantile, and not just as long: where most answers take the
	// same time, to the clock's precision, they are not the slow ones.
	return quantile + 1, ok
}

// take takes one of the hedges that MaxRatio allows.
func (h *Hedge) take(s *hedgeScope, now time.Time) (allowance.Ticket, bool) {
	if h.unlimited {
		return allowance.Ticket{}, true
	}
	return s.share.Admit(now, &h.rule, allowance.Ask{})
}

// latencies are the recent latencies of a scope, without a lock: a reading that
// is torn between two writers is still one of the recent ones.
type latencies struct {
	count  atomic.Uint64
	recent [keptLatencies]atomic.Int64
	cached atomic.Int64 // the quantile
	asOf   atomic.Uint64
}

func (l *latencies) record(d time.Duration) {
	n := l.count.Add(1) - 1
	l.recent[n%keptLatencies].Store(int64(d))
}

func (l *latencies) quantile(q float64) (time.Duration, bool) {
	count := l.count.Load()
	if count < fewestLatencies {
		return 0, false
	}
	asOf := l.asOf.Load()
	if asOf != 0 && count-asOf < staleLatencies {
		return time.Duration(l.cached.Load()), true
	}
	var sorted [keptLatencies]int64
	n := int(min(count, keptLatencies))
	for i := range n {
		sorted[i] = l.recent[i].Load()
	}
	slices.Sort(sorted[:n])
	d := sorted[min(int(q*float64(n)), n-1)]
	l.cached.Store(d)
	l.asOf.Store(count)
	return time.Duration(d), true
}

// hedging is the scope's record when the call may be hedged, and nil otherwise.
func (c *call) hedging() *hedgeScope {
	if c.hedge == nil || c.single || c.key == "" && !safeMethod(c.request.Method) || !c.replayable() {
		return nil
	}
	c.hedge.once.Do(func() { c.hedge.settle(c.start) })
	return c.hedge.scopes.Get(c.scopeKey())
}

// hedged makes the attempt, and a second copy if the first takes too long. It
// returns the one whose outcome counts.
func (c *call) hedged(a *attempt, s *hedgeScope) *attempt {
	if a == &c.first {
		s.share.Called(a.record.Start, &c.hedge.rule)
	}
	winner := a
	delay, ok := c.hedge.delay(s)
	if ok {
		winner = c.race(a, s, delay)
	} else {
		c.send(a)
	}
	switch {
	case a.answered():
		s.latencies.record(a.record.Latency)
	case a.fate == fateLost:
		// All that is known is that it took longer than the delay. What it had
		// taken when the other copy was answered would raise the next delay, and
		// that the one after it.
		s.latencies.record(delay)
	}
	return winner
}

// race is an attempt with a hedge beside it. The first copy runs in the caller's
// goroutine; the second gets one of its own, when the delay is over.
type race struct {
	call  *call
	scope *hedgeScope
	first *attempt

	prepared chan struct{} // closed when the second copy is ready to be sent, or will not be
	started  chan struct{} // closed when the hooks know of the second copy
	done     chan struct{} // closed when the second copy is through

	mu      sync.Mutex
	over    bool     // the first copy is through, or the race decided
	second  *attempt // nil until it is on its way
	through bool     // second has its outcome
	won     bool     // and was the first answer

	decided bool // the first copy's goroutine has seen to all that; its own
}

// race makes the attempt first and returns the copy whose outcome counts.
func (c *call) race(first *attempt, s *hedgeScope, delay time.Duration) *attempt {
	r := &race{
		call: c, scope: s, first: first,
		prepared: make(chan struct{}), started: make(chan struct{}), done: make(chan struct{}),
	}
	timer := time.AfterFunc(delay, r.hedge)
	defer r.stop(timer) // also where Base panics
	c.send(first)
	if timer.Stop() {
		r.decided = true
		return first
	}
	second := r.inFlight()
	<-r.prepared // until then it reads the caller's request, which is the caller's again when we return
	if second && !first.answered() {
		<-r.done // a failure never beats an answer still in flight
	}
	return r.decide()
}

// answered reports whether the attempt got an answer that ends the call.
func (a *attempt) answered() bool {
	return a.fate == fateAnswered && !a.record.Verdict.retryable()
}

// inFlight reports whether there is a second copy to wait for. If there is none
// yet, there will be none.
func (r *race) inFlight() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.second == nil {
		r.over = true
	}
	return r.second != nil
}

// stop ends the second copy's way where Base has panicked, or ended the
// goroutine, and nothing was decided.
func (r *race) stop(timer *time.Timer) {
	if r.decided || timer.Stop() {
		return
	}
	r.mu.Lock()
	r.over = true
	second, won := r.second, r.won
	r.mu.Unlock()
	<-r.prepared
	if second == nil {
		return
	}
	second.end(errHedgeLost)
	if won {
		second.discard()
	}
}

// decide picks the winner and enters the second copy in the call's record.
func (r *race) decide() *attempt {
	r.decided = true
	r.mu.Lock()
	r.over = true
	second, through, won := r.second, r.through, r.won
	if second != nil && !through {
		second.end(errHedgeLost)
	}
	r.mu.Unlock()
	if second == nil {
		return r.first
	}
	entry := second
	if !through {
		// It goes on for a moment in its own goroutine: what the call keeps of
		// it must not change any more.
		entry = &attempt{call: r.call, fate: fateLost, record: Attempt{
			Number: r.first.record.Number, Hedge: true, Request: second.record.Request, Start: second.record.Start,
			Latency: time.Since(second.record.Start), Err: errHedgeLost, Verdict: VerdictPermanent,
		}}
	}
	more := r.call.further()
	more.sent = append(more.sent, entry)
	if r.call.tracing() {
		<-r.started // or its AttemptStart could come after its AttemptDone
		r.call.traceAttempt(attemptDone, &entry.record)
	}
	if !won {
		return r.first
	}
	r.first.discard()
	return second
}

// hedge makes the second copy, in a goroutine of its own.
func (r *race) hedge() {
	defer close(r.done)
	if second := r.prepare(); second != nil {
		r.run(second)
		r.finish(second)
	}
}

// prepare gets the second copy ready, and what it costs. It returns nil if there
// is to be none: somebody says no, or the first copy is through. A GetBody or a
// hook that panics would end the program here, where the caller's recover cannot
// reach: there is no hedge, no more.
func (r *race) prepare() (ready *attempt) {
	defer close(r.prepared)
	if r.isOver() {
		return nil
	}
	c, now := r.call, time.Now()
	var share allowance.Ticket
	second := &attempt{call: c, record: Attempt{Number: r.first.record.Number, Hedge: true}}
	defer func() {
		if ready == nil {
			_ = recover()
			second.abandon()
			share.Cancel()
		}
	}()
	var ok bool
	if share, ok = c.hedge.take(r.scope, now); !ok {
		return nil
	}
	if c.prepare(second) != nil || !r.begin(second) {
		return nil
	}
	return second
}

func (r *race) isOver() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.over
}

// begin puts the second copy on its way, unless the first is through already.
func (r *race) begin(second *attempt) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return false
	}
	r.second = second
	return true
}

// run sends the second copy. A Base or a hook that panics has failed the copy, no
// more, for the same reason.
func (r *race) run(second *attempt) {
	defer func() {
		if v := recover(); v != nil {
			second.fate = fateError
			second.record.Err = fmt.Errorf("hedge: panic: %v", v)
			second.record.Verdict = VerdictTransient
		}
	}()
	defer second.abandon()
	r.announce(second)
	second.handed = true
	resp, err := r.call.base.RoundTrip(&second.request)
	second.settle(resp, err)
}

// announce tells the hooks that the second copy is on its way.
func (r *race) announce(second *attempt) {
	defer close(r.started)
	if r.call.tracing() {
		r.call.traceAttempt(attemptStart, &second.record)
	}
}

// finish makes the second copy the winner if it is the first answer. Otherwise
// nobody will see its response.
func (r *race) finish(second *attempt) {
	r.mu.Lock()
	r.through = !r.over // too late to be looked at
	r.won = r.through && second.answered()
	won := r.won
	if won {
		r.over = true
		r.first.end(errHedgeLost)
	}
	r.mu.Unlock()
	if !won {
		second.discard()
	}
}
