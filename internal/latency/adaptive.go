package latency

import (
	"math"
	"sync"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/window"
)

// Rules describe an adaptive timeout. There are no defaults.
type Rules struct {
	Multiple   float64       // factor for the quantile
	Quantile   float64       // quantile of the latencies
	Min        time.Duration // minimum timeout
	MinSamples int           // minimum number of samples
}

// Adaptive is a timeout for the attempts of a scope, computed from its recent latencies. The zero
// value is ready for use and takes a kilobyte. It is safe for concurrent use.
//
// The timeout must not shorten itself, so an attempt that it ended counts with twice its time. If
// it would end more than a fiftieth of the attempts, the server is slow and the attempts are not
// stuck. Then it ends none (safety limit).
type Adaptive struct {
	timeouts Window         // they count with twice their length
	counts   window.Counter // attempts sent, attempts ended

	mu       sync.Mutex    // guards the safety limit
	disabled time.Duration // no attempt is ended until then
	exceeded uint          // how often the safety limit was exceeded in succession
}

const (
	maxEnded     = 0.02 // maximum ratio of ended attempts of a slot
	minEnded     = 5    // minimum of that maximum, because fewer may be chance
	maxDoublings = 10

	// stuckRatio is the ratio of the responses above the quantile that may be stuck. They do not
	// raise the quantile.
	stuckRatio = 0.5

	// halfBucket is the quotient of the middle of a bucket and its end: 2^(-1/2 perOctave).
	halfBucket = 0.8781
)

// Sent counts an attempt.
func (a *Adaptive) Sent(at time.Duration) { a.counts.Add(at, length, 1, 0) }

// TimedOut notes that no response arrived within a time.
func (a *Adaptive) TimedOut(at, waited time.Duration) {
	a.timeouts.Add(at, time.Duration(min(uint64(max(waited, 0))*2, math.MaxInt64)))
}

// Timeout returns the adaptive timeout for the latencies of the responses. ok is false without enough samples, and while the safety
// limit is exceeded.
func (a *Adaptive) Timeout(at time.Duration, latencies *Window, r *Rules) (timeout time.Duration, ok bool) {
	a.mu.Lock()
	disabled, doublings := at < a.disabled, a.doublings(at)
	a.mu.Unlock()
	responses := latencies.Histogram(at)
	all := responses
	all.add(&a.timeouts, at)
	if disabled || all.Samples() < max(r.MinSamples, 1) {
		return 0, false
	}
	quantile := all.Quantile(r.Quantile)
	if float64(all.samples-responses.samples) <= maxEnded*float64(all.samples) {
		quantile = min(quantile, responses.Quantile(r.Quantile+stuckRatio*(1-r.Quantile)))
	}
	exact := max(float64(quantile)*halfBucket*r.Multiple, float64(r.Min)) * float64(uint64(1)<<doublings)
	return time.Duration(min(exact, 1<<62)), true
}

// Admit reports whether one more attempt may be ended early, and counts it.
func (a *Adaptive) Admit(at time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at < a.disabled {
		return false
	}
	if sent, ended := a.counts.Sum(at, length); float64(ended+1) > max(maxEnded*float64(sent), minEnded) {
		a.exceeded = min(a.doublings(at)+1, maxDoublings)
		a.disabled = at + length
		return false
	}
	a.counts.Add(at, length, 0, 1)
	return true
}

// doublings returns how often the timeout is doubled after the safety limit was exceeded: once
// less for each Window that has passed. a.mu is locked.
func (a *Adaptive) doublings(at time.Duration) uint {
	past := max(at-a.disabled, 0) / (slots * length)
	return a.exceeded - min(a.exceeded, uint(past))
}
