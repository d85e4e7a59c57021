package resilienthttp

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resilienthttp/resilienthttp/internal/circuit"
	"github.com/resilienthttp/resilienthttp/internal/latency"
	"github.com/resilienthttp/resilienthttp/internal/neterr"
	"github.com/resilienthttp/resilienthttp/internal/quota"
	"github.com/resilienthttp/resilienthttp/internal/scope"
	"github.com/resilienthttp/resilienthttp/internal/window"
)

// record is the state of one scope and priority in a Transport. A call finds it by one look-up.
// It points to the entries of Breaker, Budget, RateLimit and Hedge, which Transports may share.
type record struct {
	circuit *circuit.Circuit
	bucket  *budgetScope // nil: retries have no limit
	quotas  *quota.Set
	hedges  *hedgeScope // nil: there is no Hedge

	inFlight, queued, retryWaiting atomic.Int32

	protocol atomic.Uint32 // of the last connection of a Connections

	failing   atomic.Bool  // the last finished call failed, and nothing has succeeded since
	succeeded atomic.Int64 // time of the last success since the origin, to successInterval; zero means never

	// latencies has the successes, for State, Hedge and AdaptiveTimeout. A server that fails fast
	// must not shorten the delay of hedges. The quick latencies are apart, because the time that a
	// retry needs before the deadline must not rise while the server is slow.
	latencies latency.Window
	responses latency.Quick // successes
	bodies    latency.Quick // durations of bodies after the headers

	created  time.Duration // since the origin
	ended    endCounts
	adaptive atomic.Pointer[latency.Adaptive] // nil: not used
	slowest  slowestCall
	failure  lastFailure
}

// newRecords returns the map of records.
func (c *config) newRecords() *scope.Map[scope.Key, record] {
	return &scope.Map[scope.Key, record]{
		Init: func(key scope.Key, r *record) {
			r.circuit, r.bucket = c.breaker.circuits(c.origin).Circuit(key), c.budget.scope(key.Name)
			r.quotas, r.hedges = c.rateLimit.engine().Set(key.Name), c.hedge.scope(key.Name)
			r.created = time.Since(c.origin)
			r.each((*scope.Refs).Acquire)
		},
		Keep: func(r *record) bool {
			return r.circuit.NotClosed() || r.quotas.Active() || r.inFlight.Load() > 0
		},
		Evicted: func(r *record) { r.each((*scope.Refs).Release) },
	}
}

// each calls f for each entry that the record points to.
func (r *record) each(f func(*scope.Refs)) {
	f(&r.circuit.Refs)
	f(&r.quotas.Refs)
	if r.bucket != nil {
		f(&r.bucket.Refs)
	}
	if r.hedges != nil {
		f(&r.hedges.Refs)
	}
}

func (r *record) describe(s *ScopeState, origin time.Time, at time.Duration) {
	s.InFlight, s.Queued, s.RetryWaiting = int(r.inFlight.Load()), int(r.queued.Load()), int(r.retryWaiting.Load())
	recent := r.latencies.Histogram(at)
	s.Latency = LatencyStatus{P50: recent.Quantile(0.5), P95: recent.Quantile(0.95), P99: recent.Quantile(0.99), Samples: recent.Samples()}
	s.Slowest, s.Failure, s.Responses = r.slowest.read(at), r.failure.read(), r.ended.read(at, origin)
}

// adaptiveTimeout is created at its first use.
func (r *record) adaptiveTimeout() *latency.Adaptive {
	if a := r.adaptive.Load(); a != nil {
		return a
	}
	r.adaptive.CompareAndSwap(nil, new(latency.Adaptive))
	return r.adaptive.Load()
}

// responseRate returns the number of responses per second in the last minute.
func (r *record) responseRate(at time.Duration) float64 {
	recent := r.latencies.Histogram(at)
	return float64(recent.Samples()) / max(min(at-r.created, time.Minute).Seconds(), 1)
}

// successInterval is how often a success is noted. The processors of a busy client must not
// write to shared memory at each call.
const successInterval = 100 * time.Millisecond

// noteSuccess notes a success at a time since the origin. It reports whether that was a
// sample of the latencies.
func (r *record) noteSuccess(at, took time.Duration) (sampled bool) {
	if r.failing.Load() {
		r.failing.Store(false)
	}
	if last := r.succeeded.Load(); last != 0 && at-time.Duration(last) < successInterval {
		return false
	}
	r.succeeded.Store(int64(max(at, 1)))
	r.responses.Follow(took)
	return true
}

// succeededWithin reports whether an attempt has succeeded in the time before at.
func (r *record) succeededWithin(before, at time.Duration) bool {
	last := r.succeeded.Load()
	return last > 0 && at-time.Duration(last) <= before
}

// noteOutcome notes how the attempt has ended.
func (a *attempt) noteOutcome(outcome circuit.Outcome, now time.Time) {
	r, at := a.call.record, now.Sub(a.call.origin)
	switch {
	case outcome == circuit.Success:
		r.latencies.Add(at, a.report.Latency)
		a.sampled = r.noteSuccess(at, a.report.Latency)
	case a.end == endSuperseded && a.timers.hedgeDelay > 0:
		// The latency was more than the delay. The age at which the hedge won would raise the
		// next delay, which would raise the next age. The delay would do the same, because it is
		// above a quantile.
		r.latencies.Add(at, a.timers.hedgeDelay-1)
	}
}

// noteFailure notes the attempt if it has failed, after it was classified.
func (a *attempt) noteFailure(now time.Time) {
	if class := a.class(); class != classSuccess && class != classNone {
		a.call.record.failure.note(now, a.report.Response, a.report.Err)
	}
}

// class returns how the attempt ended, for ResponseStatus.
func (a *attempt) class() responseClass {
	resp, err := a.report.Response, a.report.Err
	switch {
	case a.end == endCanceled || a.end == endSuperseded:
		return classNone
	case a.end == endTimeout || a.end == endEarly || a.end == endDeadline || resp == nil && neterr.TimedOut(err):
		return classTimeout
	case resp == nil:
		return classNetworkError
	case a.report.Verdict == VerdictSuccess:
		return classSuccess
	case resp.StatusCode >= http.StatusBadRequest && resp.StatusCode < http.StatusInternalServerError:
		return classClientError
	}
	return classServerError
}

// noteEnd notes how the call has ended.
func (c *call) noteEnd(resp *http.Response) {
	if c.last != nil && c.last.report.Verdict.retryable() && c.last.failed() && !c.record.failing.Load() {
		c.record.failing.Store(true)
	}
	end := c.accounted // the end of a call that had one attempt
	if c.retries != nil || c.failure != nil {
		end = time.Now()
	}
	took, at := end.Sub(c.start), end.Sub(c.origin)
	c.latency = took
	if c.last != nil && !c.rejected && (c.failure == nil || !errors.Is(c.failure.Err, context.Canceled)) {
		c.record.ended.add(at, c.last.class())
	}
	if c.record.slowest.isSlower(at, took) {
		c.record.slowest.note(at, c.status(resp, took))
	}
}

// failed reports whether the circuit breaker counts the attempt as a failure.
func (a *attempt) failed() bool {
	outcome := a.breakerOutcome()
	return outcome == circuit.Failure || outcome == circuit.Timeout
}

func (c *call) status(resp *http.Response, took time.Duration) *CallStatus {
	done := Call{Attempts: c.attempts(), QueueWait: c.queueWait}
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

// responseClass is how the last attempt of a call ended.
type responseClass uint8

const (
	classNone responseClass = iota // the caller canceled it, or another copy had its response first
	classSuccess
	classClientError
	classServerError
	classNetworkError
	classTimeout
)

// endCounts counts the calls by how they ended. It takes no lock.
type endCounts struct {
	responses window.Counter // successes, client errors
	failures  window.Counter // server errors, network errors
	timeouts  window.Counter // timeouts, none
	failing   atomic.Int64   // the first failure since the last success, since the origin; zero means none
}

// responsesWindow is the time that ResponseStatus covers.
const responsesWindow = 5 * time.Minute

// add counts a call that ended at a time since the origin.
func (e *endCounts) add(at time.Duration, class responseClass) {
	switch class {
	case classNone:
		return
	case classSuccess:
		e.responses.Add(at, responsesWindow, 1, 0)
	case classClientError:
		e.responses.Add(at, responsesWindow, 0, 1)
	case classServerError:
		e.failures.Add(at, responsesWindow, 1, 0)
	case classNetworkError:
		e.failures.Add(at, responsesWindow, 0, 1)
	case classTimeout:
		e.timeouts.Add(at, responsesWindow, 1, 0)
	}
	switch since := e.failing.Load(); {
	case class == classSuccess && since != 0:
		e.failing.Store(0)
	case class != classSuccess && since == 0:
		e.failing.CompareAndSwap(0, int64(max(at, 1)))
	}
}

func (e *endCounts) read(at time.Duration, origin time.Time) ResponseStatus {
	successes, client := e.responses.Sum(at, responsesWindow)
	server, network := e.failures.Sum(at, responsesWindow)
	timeouts, _ := e.timeouts.Sum(at, responsesWindow)
	s := ResponseStatus{
		Calls: int(successes + client + server + network + timeouts), ClientErrors: int(client), ServerErrors: int(server),
		NetworkErrors: int(network), Timeouts: int(timeouts),
	}
	if since := e.failing.Load(); since != 0 {
		s.Since = origin.Add(time.Duration(since))
	}
	return s
}

// setRetryWaiting notes whether the call waits before a retry.
func (c *call) setRetryWaiting(waiting bool) {
	if c.retries == nil || c.retries.waiting == waiting {
		return
	}
	c.retries.waiting = waiting
	if waiting {
		c.record.retryWaiting.Add(1)
	} else {
		c.record.retryWaiting.Add(-1)
	}
}

// slowestCall is the slowest call of this period and of the one before. A call that is not
// slower takes no lock.
type slowestCall struct {
	period atomic.Int64 // its number, from 1
	least  atomic.Int64 // the latency that a call must exceed in it

	mu    sync.Mutex
	calls [2]CallStatus // of the period, and of the one before
}

const slowestPeriod = 30 * time.Second

func periodOf(at time.Duration) int64 { return int64(max(at, 0)/slowestPeriod) + 1 }

// isSlower reports whether a call that ended at a time since the origin is the slowest.
func (s *slowestCall) isSlower(at, took time.Duration) bool {
	is, has := periodOf(at), s.period.Load()
	return is > has || is == has && int64(took) > s.least.Load()
}

func (s *slowestCall) note(at time.Duration, c *CallStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isSlower(at, c.Latency) { // another goroutine may have been first
		s.begin(periodOf(at))
		s.calls[0] = *c
		s.least.Store(int64(c.Latency))
	}
}

// begin begins a period. The lock is held.
func (s *slowestCall) begin(period int64) {
	before := s.period.Load()
	if period <= before {
		return
	}
	s.calls[1], s.calls[0] = s.calls[0], CallStatus{}
	if period > before+1 {
		s.calls[1] = CallStatus{}
	}
	s.least.Store(0)
	s.period.Store(period)
}

func (s *slowestCall) read(at time.Duration) CallStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin(periodOf(at))
	if s.calls[1].Latency > s.calls[0].Latency {
		return s.calls[1]
	}
	return s.calls[0]
}

// lastFailure is one of the last failures: of those at once, one is enough.
type lastFailure struct {
	mu   sync.Mutex
	last FailureStatus
}

// failureInterval is how often a failure is noted.
const failureInterval = 10 * time.Millisecond

// note notes a failure, unless another goroutine does.
func (f *lastFailure) note(at time.Time, resp *http.Response, err error) {
	if !f.mu.TryLock() {
		return
	}
	defer f.mu.Unlock()
	if at.Sub(f.last.At) < failureInterval {
		return
	}
	f.last = FailureStatus{At: at}
	if resp != nil {
		f.last.Status, f.last.ErrorType = resp.StatusCode, neterr.Other
		if resp.StatusCode >= http.StatusBadRequest {
			f.last.ErrorType = strconv.Itoa(resp.StatusCode)
		}
	} else {
		f.last.ErrorType, f.last.Err = ErrorType(err), neterr.SafeText(err)
	}
}

func (f *lastFailure) read() FailureStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}
