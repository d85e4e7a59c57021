package resilienthttp

import (
	"math"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/circuit"
	"github.com/resilienthttp/resilienthttp/internal/latency"
	"github.com/resilienthttp/resilienthttp/internal/neterr"
	"github.com/resilienthttp/resilienthttp/internal/outcome"
	"github.com/resilienthttp/resilienthttp/internal/route"
	"github.com/resilienthttp/resilienthttp/internal/window"
)

// record is the state of one scope and priority in a Transport. Attempts succeed or fail.
type record struct {
	*scopeRecords

	circuit  *circuit.Circuit
	protocol atomic.Uint32 // of the last connection of a Connections
	hooked   atomic.Bool   // Base has called the hooks of an attempt, so it shows whether it asks for a connection

	inFlight             latency.InFlight
	queued, retryWaiting atomic.Int32
	rest                 route.Rest // of package endpoints

	succeeded atomic.Int64  // time of the last success since the origin, to latency.SampleEvery; zero means never
	created   time.Duration // since the origin

	bodies latency.Median // durations of bodies after the headers
	ended  endCounts

	// latencies has the successes, for State and Hedge. A server that fails fast must not shorten
	// the delay of hedges.
	latencies latency.Window
	usual     latency.Usual

	failingRoutes failingRoutes

	slowest atomic.Pointer[CallStatus]    // of the last minute, until a slower one comes
	failed  atomic.Pointer[FailureStatus] // the last attempt that failed; nil: none yet
	said    atomic.Pointer[scopeLog]      // nil: nothing yet
}

func (r *record) describe(s *ScopeState, origin time.Time, at time.Duration) {
	s.InFlight, s.Queued, s.RetryWaiting = r.inFlight.Count(), int(r.queued.Load()), int(r.retryWaiting.Load())
	s.Latency = r.latency(at)
	if slowest := r.slowest.Load(); !isOld(slowest, origin.Add(at)) {
		s.Slowest = *slowest
	}
	if failed := r.failed.Load(); failed != nil {
		s.Failure = *failed
	}
	s.Responses = r.ended.read(at, window.Buckets, origin)
	minute := r.ended.read(at, 1+int(window.Buckets*time.Minute/window.Status), origin) // the newest bucket is not over
	s.LastMinute = MinuteStatus{Calls: minute.Calls, Failures: minute.Failures()}
	s.Responses.History, s.Responses.HistoryAt = make([]MinuteStatus, window.Buckets), origin.Add(at.Truncate(window.Status/window.Buckets))
	n, calls := r.ended.counts(at, 0, window.Buckets)
	answersFail := s.Responses.Failures() > calls-n[outcome.CountSuccess]-n[outcome.CountClientError]
	for i := range s.Responses.History {
		n, calls := r.ended.counts(at, i, i+1)
		part := &s.Responses.History[window.Buckets-1-i]
		if *part = (MinuteStatus{Calls: calls, Failures: calls - n[outcome.CountSuccess]}); !answersFail {
			part.Failures -= n[outcome.CountClientError]
		}
	}
}

func (r *record) latency(at time.Duration) LatencyStatus {
	recent := r.latencies.Histogram(at)
	quantile := func(q float64) time.Duration { return min(recent.Quantile(q), recent.Slowest) } // not the end of its bin
	s := LatencyStatus{
		P50: quantile(0.5), P95: quantile(0.95), P99: quantile(0.99), Samples: recent.Samples,
		InFlightAge: r.inFlight.Age(at), Slow: r.usual.IsSlow(&recent, r.attemptsAreOld(at)),
	}
	s.UsualP50, s.UsualP99, _ = r.usual.Get()
	return s
}

func (r *record) attemptsAreOld(at time.Duration) bool {
	return r.usual.IsOld(r.inFlight.Age(at), r.inFlight.Count())
}

// made returns the value of a pointer, which its first use creates.
func made[T any](p *atomic.Pointer[T]) *T {
	if v := p.Load(); v != nil {
		return v
	}
	p.CompareAndSwap(nil, new(T))
	return p.Load()
}

// noteSuccess notes a success at a time since the origin.
func (r *record) noteSuccess(at time.Duration) {
	if last := r.succeeded.Load(); last != 0 && at-time.Duration(last) < latency.SampleEvery {
		return
	}
	r.succeeded.Store(int64(max(at, 1)))
	r.usual.Follow(at, &r.latencies)
}

// isLate reports whether an attempt that began at a time since the origin had longer than responses take now, so that it speaks of the
// server and not of its caller's deadline.
func (r *record) isLate(began, took time.Duration) bool {
	if !r.circuit.Late(took) {
		return false
	}
	recent := r.latencies.Histogram(began + took)
	return took >= recent.Slowest
}

func (a *attempt) noteOutcome(now time.Time) {
	r, at := a.visit.Record, now.Sub(a.call.origin)
	switch {
	case a.outcome.Server == outcome.Works:
		r.latencies.Add(at, a.report.Latency)
		r.noteSuccess(at)
		r.failingRoutes.remove(a.call.routeHash, a.report.Start.Sub(a.call.origin))
	case a.serverFailed():
		r.failingRoutes.add(a.call.routeHash(), at, never)
	case (a.came == outcome.Superseded || a.came == outcome.Overtaken) && a.timers.hedgeDelay > 0:
		// The latency was more than the delay. The age at which the hedge won would raise the
		// next delay, which would raise the next age. The delay would do the same, because it is
		// above a quantile.
		r.latencies.Add(at, a.timers.hedgeDelay-1)
	}
}

// serverFailed reports whether the server has failed in a way that may pass.
func (a *attempt) serverFailed() bool {
	return a.outcome.Server == outcome.Fails && a.report.Verdict.retryable()
}

// failingRoutes are the routes of which an attempt has failed, and nothing that was sent since has succeeded. It is safe for concurrent
// use, and only a failure takes a lock as long as there are none. Methods that ask take a function, because the hash of a route takes time.
type failingRoutes struct {
	some   atomic.Bool // there are some
	mu     sync.Mutex
	routes []failingRoute
}

type failingRoute struct {
	hash    uint64
	attempt time.Duration // the end of the first attempt that has failed, since the origin
	call    time.Duration // the end of the first call that has failed; never: none has
}

const (
	maxFailingRoutes = 64
	never            = math.MaxInt64
	failsForLong     = 30 * time.Second // a restart or a short outage is over sooner
)

// add notes that an attempt has failed, and a call if it is not never.
func (f *failingRoutes) add(route uint64, attempt, call time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i := f.index(route); i >= 0 {
		f.routes[i].call = min(f.routes[i].call, call)
		return
	}
	if len(f.routes) >= maxFailingRoutes {
		f.routes = f.routes[:0] // those that fail are known again later
	}
	f.routes = append(f.routes, failingRoute{route, attempt, call})
	f.some.Store(true)
}

// remove notes that a request that was sent at a time has succeeded. It speaks of the failures before.
func (f *failingRoutes) remove(route func() uint64, sent time.Duration) {
	if !f.some.Load() {
		return
	}
	succeeded := route()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.routes = slices.DeleteFunc(f.routes, func(r failingRoute) bool { return r.hash == succeeded && r.attempt <= sent })
	f.some.Store(len(f.routes) > 0)
}

// onlyFailed reports whether a call of a route had failed before a time, and nothing has succeeded for as long as the first two early
// waits: in a busy route, a call may fail and nothing succeed for a moment.
func (f *failingRoutes) onlyFailed(route func() uint64, before time.Duration) bool {
	r := f.find(route)
	return r.call <= before && r.attempt <= before-earlyWaits[0]-earlyWaits[1]
}

// find returns a route, or one that has never failed.
func (f *failingRoutes) find(route func() uint64) failingRoute {
	found := failingRoute{attempt: never, call: never}
	if !f.some.Load() {
		return found
	}
	asked := route()
	f.mu.Lock()
	defer f.mu.Unlock()
	if i := f.index(asked); i >= 0 {
		found = f.routes[i]
	}
	return found
}

// index returns the place of a route, or -1. The lock is held.
func (f *failingRoutes) index(route uint64) int {
	return slices.IndexFunc(f.routes, func(r failingRoute) bool { return r.hash == route })
}

func (a *attempt) noteFailure(now time.Time) {
	if count := a.outcome.Count; count != outcome.CountSuccess && count != outcome.CountNone {
		status := &FailureStatus{At: now, ErrorType: a.report.errorType(), Policies: a.report.Policies()}
		if resp := a.report.Response; resp != nil {
			status.Status = resp.StatusCode
		} else {
			status.Err = neterr.SafeText(a.report.Err)
		}
		a.visit.Record.failed.Store(status)
		a.visit.Record.ended.noteFailing(a.call.failingSince(a.visit.Record))
	}
}

func (c *call) noteEnd(resp *http.Response) {
	end := c.timeline.accounted // the end of a call that had one attempt
	if c.retries != nil || c.failure != nil {
		// Time has passed since the last attempt.
		end = time.Now()
	}
	took, at := end.Sub(c.start), end.Sub(c.origin)
	c.timeline.latency = took
	if a := c.last; a != nil && a.serverFailed() {
		a.visit.Record.failingRoutes.add(c.routeHash(), at, at)
	}
	c.record.ended.add(c.failingSince(c.record), at, c.count())
	if slowest := c.record.slowest.Load(); isOld(slowest, end) || took > slowest.Latency {
		// Another goroutine may have been first.
		c.record.slowest.CompareAndSwap(slowest, c.status(resp, took))
	}
}

// isOld reports whether a slowest call is no longer one of the last minute.
func isOld(slowest *CallStatus, now time.Time) bool {
	return slowest == nil || now.Sub(slowest.Start.Add(slowest.Latency)) >= time.Minute
}

// failingSince returns the time from which the scope fails if this call is the first to fail: its
// start, or a later success.
func (f *facts) failingSince(r *record) time.Duration {
	return max(f.start.Sub(f.origin), time.Duration(r.succeeded.Load()))
}

func (c *call) status(resp *http.Response, took time.Duration) *CallStatus {
	var one [1]Attempt // most calls need no memory
	done := Call{Attempts: c.appendAttempts(one[:0]), QueueWait: c.timeline.queued}
	s := &CallStatus{Start: c.start, Latency: took}
	s.QueueWait, s.InFlight, s.RetryWait = done.Timings()
	for i := range done.Attempts {
		if !done.Attempts[i].Hedge {
			s.Attempts++
		}
	}
	if resp != nil {
		s.Status = resp.StatusCode
	} else {
		s.Err = c.failure.summary()
	}
	return s
}

func (c *call) setRetryWaiting(waiting bool) {
	if c.retries.waiting == waiting {
		return
	}
	c.retries.waiting = waiting
	if waiting {
		c.record.retryWaiting.Add(1)
	} else {
		c.record.retryWaiting.Add(-1)
	}
}
