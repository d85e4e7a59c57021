package resilienthttp

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/latency"
	"github.com/resilienthttp/resilienthttp/internal/retrybudget"
	"github.com/resilienthttp/resilienthttp/internal/scope"
)

const (
	defaultQuantile   = 0.95
	defaultHedgeRatio = 0.05

	fewestLatencies = 20 // before a quantile means anything
)

// Hedge sends a second request beside an attempt that is slower than usual (Dean and
// Barroso, "The Tail at Scale"). The first response that needs no retry wins, and the other
// request is canceled.
//
// Requests with a safe method (RFC 9110 section 9.2.1) or an idempotency key are hedged, if
// their body can be replayed. Both have the same key. GetBody is called for the hedge while
// Base may still read the body of the first. A hedge never waits: it is not sent if the
// breaker or the rate limit does not admit it at once, while less than half of a quota is
// left, or within a minute after a 429. It counts against MaxRatio, not against the Budget
// or Policy.MaxAttempts.
//
// Base must heed the context of a request, as http.Transport does: the call returns only
// when both have ended. A hedge is a request more for the server. So use hedges where
// responses are slow by chance, not where the server is overloaded.
//
// The zero value hedges after the 95th percentile of the scope's latencies, at most 5 % of
// the calls. A Hedge is safe for concurrent use, may be shared by Transports, and must not
// be modified after its first use.
type Hedge struct {
	// Delay is the time after which the hedge is sent. Zero means just longer than the
	// Quantile of the scope's recent latencies, and no hedges until 20 are known. A client
	// with few calls needs a Delay of its own. A negative duration disables hedging.
	Delay time.Duration

	// Quantile is the quantile of the scope's latencies to the response headers, in the last
	// minute, that is the delay. It is measured to within a third, and never too low. Zero
	// or NaN means 0.95. More than 1 means 1. A negative number disables hedging, unless
	// Delay is set.
	Quantile float64

	// MaxRatio is the maximum ratio of hedges to calls of a scope. Each call adds
	// MaxRatio of a token, and a hedge takes one. The bucket holds one token, plus what
	// the calls of the last 1.25 s have added. Zero or NaN means 0.05. A negative number
	// means no limit. With a measured delay hedges must win, too: after one that loses there
	// is none for 10 s to 160 s, until most of them win again.
	MaxRatio float64

	once      sync.Once
	fixed     time.Duration // the delay, if it is not measured
	level     float64       // the quantile, if it is
	unlimited bool
	rules     retrybudget.Rules
	scopes    scope.Map[scope.Key, hedgeScope]
}

// hedgeScope is what a Hedge knows of one scope.
type hedgeScope struct {
	latencies latency.Window
	bucket    retrybudget.Bucket
	credit    hedgeCredit
	first     atomic.Int64 // when the first call was, since the origin; 0: there was none
}

func (h *Hedge) withDefaults(now time.Time) {
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
	h.rules = retrybudget.Rules{Origin: now, Ratio: ratio, Tokens: 1, Static: true}.Checked()
	h.scopes.Clone = scope.Key.Clone
}

// delay is the time after which the scope's attempts are hedged.
func (h *Hedge) delay(s *hedgeScope, now time.Time) (time.Duration, bool) {
	if h.fixed != 0 {
		return h.fixed, h.fixed > 0
	}
	if h.level < 0 {
		return 0, false
	}
	quantile, known := s.latencies.Quantile(now.Sub(h.rules.Origin), h.level)
	// Longer than the quantile, and not just as long: where most answers take the
	// same time, to the clock's precision, they are not the slow ones.
	return quantile + 1, known >= fewestLatencies
}

// admit takes one of the hedges that MaxRatio allows.
func (h *Hedge) admit(s *hedgeScope, now time.Time) (retrybudget.Permit, bool) {
	if h.unlimited {
		return retrybudget.Permit{}, true
	}
	if h.fixed == 0 && !s.credit.admit(now, s.callRate(now.Sub(h.rules.Origin))) {
		return retrybudget.Permit{}, false
	}
	return s.bucket.Admit(now, &h.rules, retrybudget.Request{})
}

// callRate is the number of responses a second in the last minute.
func (s *hedgeScope) callRate(at time.Duration) float64 {
	_, responses := s.latencies.Quantile(at, 1)
	return float64(responses) / max(min(at-time.Duration(s.first.Load()), time.Minute).Seconds(), 1)
}

// hedgeCredit records whether hedges after a measured delay win. If requests wait in a
// queue all responses are slow together: hedges lose there, and make the queue longer. The
// zero value has no credit.
type hedgeCredit struct {
	mu      sync.Mutex
	credit  int // a win adds two, a loss takes one; above 0 there is no condition
	losses  int // in a row
	nextTry time.Time
}

const (
	maxCredit = 8
	winCredit = 2
	tryPause  = 10 * time.Second // between hedges without credit; doubled by each loss,
	maxPauses = 8                // up to so many
	surely    = 10               // calls a second with which a try is certain: small clients share a queue with others
)

// admit reports whether a hedge may be sent. Without credit there is one after each pause,
// with a probability that small clients have less of.
func (c *hedgeCredit) admit(now time.Time, callRate float64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.credit > 0 {
		return true
	}
	if now.Before(c.nextTry) || rand.Float64() >= callRate/surely {
		return false
	}
	pause := tryPause * time.Duration(min(1<<min(c.losses, 8), maxPauses))
	c.nextTry = now.Add(pause + rand.N(pause))
	return true
}

// done records the result of a hedge.
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

// hedging is the scope's record when the call may be hedged, and nil otherwise.
func (c *call) hedging() *hedgeScope {
	if c.hedge == nil || c.single || c.key == "" && !safeMethod(c.request.Method) || !c.replayable() {
		return nil
	}
	c.hedge.once.Do(func() { c.hedge.withDefaults(c.start) })
	return c.hedge.scopes.Get(c.scopeKey())
}

// called adds the tokens of a call to the bucket of hedges.
func (s *hedgeScope) called(h *Hedge, now time.Time) {
	if s != nil {
		s.bucket.Deposit(now, &h.rules)
		s.first.CompareAndSwap(0, int64(max(now.Sub(h.rules.Origin), 1)))
	}
}

// observe learns from an attempt how long answers take.
func (s *hedgeScope) observe(h *Hedge, a *attempt) {
	switch {
	case s == nil:
	case a.answered():
		s.latencies.Add(a.record.Start.Add(a.record.Latency).Sub(h.rules.Origin), a.record.Latency)
	case a.fate == fateLost && a.hedgedAfter > 0:
		// All that is known is that it took longer than the delay. What it had
		// taken when the other copy was answered would raise the next delay, and
		// that the one after it; so would the delay, which is just above a quantile.
		s.latencies.Add(time.Since(h.rules.Origin), a.hedgedAfter-1)
	}
}
