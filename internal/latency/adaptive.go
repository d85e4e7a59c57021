package latency

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/window"
)

// Rules say how an Adaptive reckons. All of it is set: there are no defaults here.
type Rules struct {
	Multiple   float64       // of the quantile
	Quantile   float64       // of what answers took
	Min        time.Duration // that it never is below
	MinSamples int           // that it needs
}

// Adaptive is how long the answers of a scope are waited for, by how long they took of
// late: so long that hardly any comes later, and not much longer. The zero value is ready
// for use, and of those in use each takes some two kilobytes. It is safe for concurrent
// use.
//
// It must not feed on itself. What it has ended would have taken longer, nobody knows how
// much, and counts as twice as long. It also holds a fuse: where it would end more than a
// fiftieth of what is sent, it is not those that are stuck, but all of them are slow, and
// it ends none.
type Adaptive struct {
	answered, late Window         // what was answered, and what was not in time: at twice its length
	counts         window.Counter // of the last length: sent, ended

	mu   sync.Mutex // for what is ended
	fuse atomic.Pointer[safetyLimit]
}

// fuse is when it last blew.
type safetyLimit struct {
	until time.Duration // it is blown
	blown uint          // so often in a row
}

const (
	most     = 0.02 // of what is sent may be ended,
	fewest   = 5    // and so many always: fewer are chance
	mostWide = 10   // doublings

	// Of the answers that a quantile leaves out, so many may be those that are stuck: it is
	// not raised for them.
	stuck = 0.5
)

// Sent counts an attempt.
func (a *Adaptive) Sent(at time.Duration) { a.counts.Add(at, length, 1, 0) }

// Answered notes how long an answer took.
func (a *Adaptive) Answered(at, took time.Duration) { a.answered.Add(at, took) }

// TimedOut notes that no answer came for so long.
func (a *Adaptive) TimedOut(at, waited time.Duration) {
	a.late.Add(at, time.Duration(min(uint64(max(waited, 0))*2, math.MaxInt64)))
}

// Timeout is how long an answer is to be waited for; ok is false while nobody can say.
func (a *Adaptive) Timeout(at time.Duration, r *Rules) (timeout time.Duration, ok bool) {
	wide := uint(0)
	if f := a.fuse.Load(); f != nil {
		if at < f.until {
			return 0, false
		}
		wide = f.wide(at)
	}
	answered := a.answered.Late(at)
	all := a.late.Late(at)
	late := all.n
	if all.add(&answered); all.n < uint64(max(r.MinSamples, 1)) {
		return 0, false
	}
	quantile := all.middle(r.Quantile)
	if answered.n > 0 && float64(late) <= most*float64(all.n) {
		quantile = min(quantile, answered.middle(r.Quantile+stuck*(1-r.Quantile)))
	}
	exact := max(quantile*r.Multiple, float64(r.Min)) * float64(uint64(1)<<wide)
	return time.Duration(min(exact, 1<<62)), true
}

// Admit asks whether one more may be ended before its time, and counts it.
func (a *Adaptive) Admit(at time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.fuse.Load()
	if f != nil && at < f.until {
		return false
	}
	if sent, ended := a.counts.Sum(at, length); float64(ended+1) > max(most*float64(sent), fewest) {
		next := safetyLimit{until: at + length, blown: 1}
		if f != nil {
			next.blown = min(f.wide(at)+1, mostWide)
		}
		a.fuse.Store(&next)
		return false
	}
	a.counts.Add(at, length, 0, 1)
	return true
}

// wide is how often the timeout is doubled after the fuse has blown: once less when all
// that was known then is forgotten.
func (f *safetyLimit) wide(at time.Duration) uint {
	past := max(at-f.until, 0) / (windows * length)
	return f.blown - min(f.blown, uint(past))
}

// add adds another histogram.
func (h *Histogram) add(other *Histogram) {
	h.n += other.n
	for b, count := range &other.counts {
		h.counts[b] += count
	}
}

// middle is the middle of the bucket that the quantile is in: right to within a seventh,
// in nanoseconds.
func (h *Histogram) middle(q float64) float64 {
	end, _ := h.Quantile(q)
	return float64(end) * halfBucket
}

var halfBucket = math.Exp2(-0.5 / fine) //nolint:gochecknoglobals // never written to
