package resilienthttp

import (
	"cmp"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/latency"
	"github.com/resilienthttp/resilienthttp/internal/retrybudget"
	"github.com/resilienthttp/resilienthttp/internal/scope"
)

const (
	defaultQuantile   = 0.95
	defaultHedgeRatio = 0.05

	minLatencies = 20 // for a measured delay
)

// Hedge sends a second request if an attempt is slower than usual. The first response that needs
// no retry wins, and the other request is canceled. Only requests with a safe method, an
// idempotency key or Policy.Idempotent, and a replayable body, are hedged; both have the same key. A hedge never waits
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
	// negative number means no limit, and hedges are sent although they do not win. Otherwise
	// hedges after a measured delay are also reduced while most do not win.
	MaxRatio float64

	once   sync.Once
	level  float64 // the quantile at which the delay is measured
	rules  retrybudget.Rules
	scopes scope.Map[string, hedgeScope]
}

type hedgeScope struct {
	scope.Refs

	bucket retrybudget.Bucket
	credit hedgeCredit
}

func (h *Hedge) scope(name string) *hedgeScope {
	if h == nil {
		return nil
	}
	h.once.Do(h.configure)
	return h.scopes.Get(name)
}

func (h *Hedge) configure() {
	h.level = min(numberOr(h.Quantile, defaultQuantile), 1)
	h.rules = retrybudget.Rules{Origin: time.Now(), Ratio: numberOr(h.MaxRatio, defaultHedgeRatio), Tokens: 1, Static: true}.Checked()
	h.scopes.Held = (*hedgeScope).Held
}

// numberOr returns x, or another number if x is zero or NaN.
func numberOr(x, other float64) float64 {
	if math.IsNaN(x) {
		return other
	}
	return cmp.Or(x, other)
}

// delay returns the time after which attempts are hedged, from the latencies of the scope.
func (h *Hedge) delay(latencies *latency.Window, at time.Duration) (time.Duration, bool) {
	if h.Delay != 0 {
		return h.Delay, h.Delay > 0
	}
	if h.level < 0 {
		return 0, false
	}
	recent := latencies.Histogram(at)
	// Most responses may take exactly the quantile, to the precision of the clock. They are not
	// slow.
	return recent.Quantile(h.level) + 1, recent.Samples >= minLatencies
}

// admit takes a token for one hedge at a time since the origin of the record.
func (h *Hedge) admit(r *record, at time.Duration, now time.Time) (retrybudget.Permit, bool) {
	if h.MaxRatio < 0 {
		return retrybudget.Permit{}, true
	}
	if h.Delay == 0 {
		recent := r.latencies.Histogram(at)
		perSecond := float64(recent.Samples) / max(min(at-r.created, time.Minute).Seconds(), 1) // in the last minute
		if !r.hedges.credit.admit(perSecond, now) {
			return retrybudget.Permit{}, false
		}
	}
	return r.hedges.bucket.Admit(retrybudget.Request{}, &h.rules, now)
}

// hedgeCredit is whether hedges after a measured delay win. If requests wait in a queue of
// the server, all responses are slow together: hedges then lose, and make the queue longer. The
// zero value has no credit.
type hedgeCredit struct {
	mu      sync.Mutex
	credit  int // hedges that need no pause: a win permits four, a loss takes one
	nextTry time.Time
}

const (
	winCredit = 4
	tryPause  = 15 * time.Second // between two hedges without credit, and up to twice as long
	sureRate  = 10               // responses per second at which a try is certain; small clients share a server's queue
)

// admit reports whether a hedge may be sent. Without credit there is one after each pause, with a
// lower probability for a small client.
func (c *hedgeCredit) admit(responseRate float64, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.credit > 0 {
		return true
	}
	if now.Before(c.nextTry) || rand.Float64() >= responseRate/sureRate {
		return false
	}
	c.nextTry = now.Add(tryPause + rand.N(tryPause))
	return true
}

func (c *hedgeCredit) done(won bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if won {
		c.credit = winCredit
		return
	}
	c.credit = max(c.credit-1, 0)
}
